"""SASL on the connections of a listener, in frames of Kafka's protocol.

Until a connection has authenticated, an `Authentication` serves its frames instead of the
dispatcher: ApiVersions, SaslHandshake and SaslAuthenticate, in this order, and nothing else. Then
the connection gets its dispatcher, or a `Session` where the login expires (KIP-368): that watches
the time and begins the next authentication. Texts and states are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from struct import Struct
from struct import error as StructError

from headwater.errors import ErrorCode
from headwater.io import Clock
from headwater.net import Answer, Connection, Dispatch, PendingResponse
from headwater.net.connection import CloseConnection
from headwater.observability import Log, printable
from headwater.protocol import DecodeError, EncodeError, Message, decode
from headwater.protocol.apis import APIS, ApiKey, response_class
from headwater.protocol.frame import encode_response, read_request_header
from headwater.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headwater.security.principal import Principal
from headwater.security.sasl.server import (
    Authenticated,
    Challenge,
    SaslRefused,
    SaslServer,
)

_SIZE = Struct(">i")
_ERROR_CODE = Struct(">h")
_ERROR_CODE_AT = 8  # in a response to ApiVersions, after its size and correlation id
_TOKENS_IN_FRAMES = 1  # the version of SaslHandshake since which tokens are in SaslAuthenticate
_REFUSED_VERSIONS_MAX = 3  # requests for ApiVersions; a client that is too new asks again once
_REAUTHENTICATION_SECONDS_MIN = 1.0


@dataclass(slots=True)
class SaslSettings:
    """SASL on one listener, as its next connection finds it."""

    servers: Mapping[str, Callable[[], SaslServer]]  # by mechanism, in the order of the settings
    reauthentication_ms: Mapping[str, int]  # connections.max.reauth.ms, by mechanism
    receive_bytes_max: int
    failure_delay_seconds: float
    clock: Clock
    lines: Log
    # The principal builder: returns the principal of a user, or raises SaslRefused.
    identify: Callable[[Connection, str, Principal], Principal] | None = None


Source = Callable[[], SaslSettings]
"""Returns the settings of the listener as they are now: they may change while it runs."""


class Authentication:
    """One authentication on one connection."""

    __slots__ = (
        "_dispatch",
        "_has_versions",
        "_is_raw",
        "_mechanism",
        "_previous",
        "_refused_versions",
        "_sasl",
        "_server",
        "_source",
    )

    def __init__(self, source: Source, dispatch: Dispatch, previous: Session | None = None) -> None:
        """`dispatch` serves the connection afterwards, and ApiVersions before."""
        self._source = source
        self._sasl = source()
        self._dispatch = dispatch
        self._previous = previous
        self._has_versions = previous is not None
        self._refused_versions = 0
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._is_raw = False

    def begin(self, connection: Connection) -> None:
        if self._previous is not None:
            connection.must_prove()
        connection.serve_by(self, frame_bytes_max=self._sasl.receive_bytes_max)

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        try:
            if self._server is None:
                return self._choose(connection, frame)
            if self._is_raw:
                return self._exchange_raw(connection, self._server, frame)
            return self._exchange(connection, self._server, frame)
        except (DecodeError, ValueError, IndexError, StructError) as error:
            reason = f"malformed request: {printable(str(error))}"
            return self._fail(connection, reason)

    # Before the handshake

    def _choose(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        header, at = read_request_header(frame)
        key, version = header.api.key, header.version
        if (
            key == ApiKey.API_VERSIONS
            and not self._has_versions
            and self._refused_versions < _REFUSED_VERSIONS_MAX
        ):
            answer = self._dispatch(connection, frame)
            assert not isinstance(answer, PendingResponse)
            first = memoryview(answer[0])  # type: ignore[arg-type]  # a file slice it is not
            self._has_versions = not _ERROR_CODE.unpack_from(first, _ERROR_CODE_AT)[0]
            self._refused_versions += not self._has_versions
            return answer
        if key != ApiKey.SASL_HANDSHAKE:
            return self._fail(
                connection,
                f"Unexpected Kafka request of type {header.api.key.name} during SASL handshake.",
            )
        _check_version(header.api.key, version)
        mechanism = decode(SaslHandshakeRequest, frame, version, at).mechanism
        response = SaslHandshakeResponse(mechanisms=list(self._sasl.servers))
        make = self._sasl.servers.get(mechanism)
        if make is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._fail(
                connection,
                f"Unsupported SASL mechanism {mechanism}",
                (encode_response(response, version, header.correlation_id),),
            )
        previous = self._previous
        if previous is not None and previous.mechanism != mechanism:
            self._server = _Refusing(
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{previous.mechanism}'"
            )
        else:
            self._server = make()
        self._mechanism = mechanism
        self._is_raw = version < _TOKENS_IN_FRAMES
        return (encode_response(response, version, header.correlation_id),)

    # The exchange of tokens

    def _exchange(
        self, connection: Connection, server: SaslServer, frame: memoryview
    ) -> Answer | PendingResponse:
        header, at = read_request_header(frame)
        key, version = header.api.key, header.version
        if key != ApiKey.SASL_AUTHENTICATE:
            reason = f"Unexpected Kafka request of type {key.name} during SASL authentication."
            return self._fail(
                connection, reason, _refusal(key, version, header.correlation_id, reason)
            )
        _check_version(key, version)
        token = decode(SaslAuthenticateRequest, frame, version, at).auth_bytes
        try:
            said = self._answer(connection, server, token)
        except SaslRefused as refused:
            if isinstance(server, _Refusing):  # Kafka, too, answers nothing here
                return self._fail(connection, str(refused), user=refused.user)
            text = self._text(refused)
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text
            )
            parts = (encode_response(response, version, header.correlation_id),)
            return self._fail(connection, str(refused), parts, user=refused.user)
        if isinstance(said, Authenticated):
            lifetime_ms = self._admit(connection, said)
            token = said.token_to_send
        else:
            lifetime_ms, token = 0, said.token
        response = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return (encode_response(response, version, header.correlation_id),)

    def _exchange_raw(
        self, connection: Connection, server: SaslServer, frame: memoryview
    ) -> Answer | PendingResponse:
        """Serves a client of SaslHandshake version 0, whose tokens have no header. It learns of a
        refusal by the end of the connection."""
        try:
            said = self._answer(connection, server, bytes(frame))
        except SaslRefused as refused:
            return self._fail(connection, str(refused), user=refused.user)
        if isinstance(said, Authenticated):
            self._admit(connection, said)
            token = said.token_to_send
        else:
            token = said.token
        return (_SIZE.pack(len(token)) + token,)

    def _answer(
        self, connection: Connection, server: SaslServer, token: bytes
    ) -> Challenge | Authenticated:
        said = server.answer(token)
        if isinstance(said, Authenticated):
            if self._sasl.identify is not None:
                found = self._sasl.identify(connection, self._mechanism, said.principal)
                said = said._replace(principal=found._replace(is_token=said.principal.is_token))
            self._check_same(said.principal)
        return said

    def _check_same(self, principal: Principal) -> None:
        if self._previous is None or self._previous.principal == principal:
            return
        before = self._previous.principal
        raise SaslRefused(
            f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
            f"{principal.type}.{principal.name}",
            user=principal.name,
            is_told=True,
        )

    def _text(self, refused: SaslRefused) -> str:
        if refused.is_told:
            return str(refused)
        what = "authentication" if self._previous is None else "re-authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    # The end

    def _admit(self, connection: Connection, done: Authenticated) -> int:
        """Lets the connection in; returns the lifetime of its login in ms, 0 for unlimited."""
        sasl = self._sasl
        most_ms = sasl.reauthentication_ms.get(self._mechanism, 0)
        lifetimes = [most_ms] if most_ms > 0 else []
        if done.expires_at_ms is not None:  # 0 for a token in the tolerance for clocks
            lifetimes.append(max(0, done.expires_at_ms - sasl.clock.wall_ms()))
        connection.principal = done.principal
        connection.proven()
        if sasl.lines.is_debug:
            sasl.lines.debug(
                f"{connection.stream.peer} authenticated on {connection.listener} as "
                f"{printable(str(done.principal))} with {self._mechanism}"
            )
        if not lifetimes:
            connection.serve_by(self._dispatch)
            return 0
        lifetime_ms = min(lifetimes)
        now = sasl.clock.monotonic()
        began = -inf if self._previous is None else self._previous.reauthenticated
        session = Session(
            self._source,
            self._dispatch,
            self._mechanism,
            done.principal,
            now + lifetime_ms / 1000,
            began,
            sasl.clock,
        )
        connection.serve_by(session)
        return lifetime_ms

    def _fail(
        self, connection: Connection, reason: str, parts: Answer = (), *, user: str = ""
    ) -> PendingResponse:
        """Ends the connection after a delay, which slows down guessing."""
        sasl = self._sasl
        fields: dict[str, object] = {
            "peer": connection.stream.peer,
            "listener": connection.listener,
        }
        if self._mechanism:
            fields["mechanism"] = self._mechanism
        if user:
            fields["user"] = user
        sasl.lines.bounded.warn("authentication failed", **fields, reason=reason)
        return connection.dismiss(parts, after_seconds=sasl.failure_delay_seconds)


class _Refusing:
    """The server of an exchange that cannot succeed."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def answer(self, token: bytes) -> Authenticated:
        raise SaslRefused(self._reason, is_told=True)


class Session:
    """Serves an authenticated connection whose login expires."""

    __slots__ = (
        "_clock",
        "_dispatch",
        "_expires",
        "_source",
        "mechanism",
        "principal",
        "reauthenticated",
    )

    def __init__(
        self,
        source: Source,
        dispatch: Dispatch,
        mechanism: str,
        principal: Principal,
        expires: float,
        reauthenticated: float,
        clock: Clock,
    ) -> None:
        self.mechanism = mechanism
        self.principal = principal
        self.reauthenticated = reauthenticated  # when this last began
        self._source = source
        self._dispatch = dispatch
        self._expires = expires
        self._clock = clock

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        now = self._clock.monotonic()
        if frame[:2] == _HANDSHAKE and now - self.reauthenticated >= _REAUTHENTICATION_SECONDS_MIN:
            self.reauthenticated = now
            again = Authentication(self._source, self._dispatch, self)
            again.begin(connection)
            return again(connection, frame)
        if now > self._expires:
            raise CloseConnection(f"the login of {printable(str(self.principal))} has expired")
        return self._dispatch(connection, frame)


_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2)


def _check_version(key: ApiKey, version: int) -> None:
    advertised = APIS[key].advertised
    assert advertised is not None
    if not advertised[0] <= version <= advertised[1]:
        raise DecodeError(f"version {version} of {key.name} is not supported")


def _refusal(key: ApiKey, version: int, correlation_id: int, text: str) -> Answer:
    """Returns a response that says so, for an API that has a place for it."""
    versions = APIS[key].versions
    if versions is None or not versions[0] <= version <= versions[1]:
        return ()
    cls = response_class(key)
    try:
        message: Message = cls(error_code=ErrorCode.ILLEGAL_SASL_STATE)  # type: ignore[call-arg]
        if hasattr(message, "error_message"):
            message.error_message = text
        encoded = encode_response(message, version, correlation_id)
        return () if encoded == encode_response(cls(), version, correlation_id) else (encoded,)
    except (TypeError, EncodeError):  # no such field, or not in this version
        return ()
