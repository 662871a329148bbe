"""Everything that a peer may send before, during and after an authentication, in any order.

A state machine (Hypothesis) sends each API in each of its versions, with bodies that are right,
cut off or spoiled, and compares what is served with a plain model of the rules: nothing but
ApiVersions, SaslHandshake and SaslAuthenticate before the peer has proved who it is, each in its
place, and nothing at all after a refusal.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.broker.authentication import Authentication, SaslSettings
from headwater.io.clock import SystemClock
from headwater.net.connection import Answer, Connection, PendingResponse
from headwater.net.server import ListenerCounts
from headwater.observability import Log
from headwater.protocol import encode
from headwater.protocol.apis import APIS, ApiKey, request_class
from headwater.protocol.frame import encode_request, encode_response, request_prefix
from headwater.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.protocol.schema import empty
from headwater.security.principal import ANONYMOUS, Principal
from headwater.security.sasl.scram import ScramClient, salted_password, scram_keys
from headwater.security.sasl.scram_server import ScramSecret, ScramServer
from headwater.security.sasl.server import PlainServer, PlainUsers
from tests.support.pipes import FakeServer, Pipe

ALICE = Principal("User", "alice")
KEY = b"k" * 32
USERS = {"alice": "wonder", "bob": "land"}
LOGINS = [*USERS.items(), ("alice", "land"), ("nobody", "wonder"), ("alice", "")]
SCRAM = "SCRAM-SHA-256"
MECHANISMS = ("PLAIN", SCRAM)
_KEYS = scram_keys(SCRAM, salted_password(SCRAM, "wonder", b"salt", 4096))
_SECRET = ScramSecret(b"salt", _KEYS.stored, _KEYS.server, 4096, ALICE)
_OTHERS = [
    key
    for key, api in APIS.items()
    if api.versions is not None
    and key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
]


class Gatekeeper(FakeServer):
    """The part of a server that an authentication uses as well."""

    def __init__(self) -> None:
        super().__init__()
        self.unproven: dict[Connection, float] = {}
        self.ends: list[Any] = []
        self.counts = ListenerCounts()

    def counts_of(self, listener: str) -> ListenerCounts:
        return self.counts

    def later(self, seconds: float, callback: Any) -> None:
        self.ends.append(callback)


def everything(reauthentication_ms: int, lines: list[str]) -> SaslSettings:
    users = PlainUsers(USERS, KEY)

    def find(name: str, is_token: bool) -> ScramSecret | None:
        return _SECRET if name == "alice" and not is_token else None

    return SaslSettings(
        {
            "PLAIN": lambda: PlainServer(users.check),
            SCRAM: lambda: ScramServer(SCRAM, find, "nonce", KEY),
        },
        {"PLAIN": reauthentication_ms, SCRAM: reauthentication_ms},
        64 * 1024,
        0.0,
        SystemClock(),
        Log(SystemClock(), lines.append),
    )


class States(RuleBasedStateMachine):
    lines: list[str]

    @initialize(expires=st.booleans())
    def connect(self, expires: bool) -> None:
        self.lines = []
        self.served: list[int] = []  # what came to the handlers, by API key
        self.state = "connected"
        self.mechanism = ""
        self.client: ScramClient | None = None
        self.principal = ANONYMOUS
        self.is_in = False
        self.has_renewed = False  # a login that expires, or is about to
        self.before = ""  # the mechanism of the login that is renewed
        self.too_new = 0  # requests for ApiVersions in a version that does not exist
        self.login = "", ""
        self.reply = b""
        self.server, self.pipe = Gatekeeper(), Pipe()
        self.connection = Connection(self.pipe, "SASL", self.server, self._serve)  # type: ignore[arg-type]
        sasl = everything(3_600_000 if expires else 0, self.lines)
        self.expires = expires
        self.server.unproven[self.connection] = 0.0
        Authentication(lambda: sasl, self.connection.dispatch).begin(self.connection)

    def _serve(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
        self.served.append(key)
        if key == ApiKey.API_VERSIONS:
            known = min(version, 4)
            answer = ApiVersionsResponse(error_code=0 if version == known else 35)
            return (encode_response(answer, known if version == known else 0, 1),)
        return (b"\0\0\0\4\0\0\0\1",)

    def send(self, frame: bytes) -> None:
        """One frame, as if from the network."""
        data = len(frame).to_bytes(4) + frame
        while data and not self.pipe.ended and not self.pipe.paused:
            space = self.connection.buffer()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)

    def is_over(self) -> bool:
        return self.pipe.ended or self.pipe.paused

    def ask(self, message: Any, version: int) -> bytes:
        """Sends a request; returns what came back."""
        before = len(self.pipe.sent)
        self.send(bytes(encode_request(message, version, 1, "x"))[4:])
        return b"".join(self.pipe.sent[before:])

    def refused(self) -> None:
        assert self.is_over(), self.state
        self.state = "over"

    # What a peer may do

    @precondition(lambda self: self.state != "over")
    @rule(key=st.sampled_from(_OTHERS), version=st.integers(0, 20), seed=st.integers(0, 2**16))
    def other_api(self, key: int, version: int, seed: int) -> None:
        versions = APIS[key].versions
        assert versions is not None
        version = versions[0] + version % (versions[1] - versions[0] + 1)
        frame = bytes(request_prefix(APIS[key], version, 7, "x"))[4:]
        random = Random(seed)
        if random.random() < 0.5:
            frame += random.randbytes(random.randrange(40))
        else:
            frame += bytes(encode(empty(request_class(key)), version))
        before = len(self.served)
        self.send(frame)
        if self.is_in:
            assert self.served[before:] == [key]
        else:
            assert self.served[before:] == []
            self.refused()

    @precondition(lambda self: self.state != "over")
    @rule(version=st.sampled_from([0, 3, 4, 9]))
    def api_versions(self, version: int) -> None:
        # Version 9 does not exist yet; a client that asks in it asks again in another.
        before = len(self.served)
        self.send(bytes(request_prefix(APIS[ApiKey.API_VERSIONS], 4, 1, "x"))[4:6]
                  + version.to_bytes(2) + b"\0\0\0\1\xff\xff\0")  # fmt: skip
        if self.is_in or (self.state == "connected" and self.too_new < 3):
            assert self.served[before:] == [ApiKey.API_VERSIONS]
            self.too_new += version == 9
            if not self.is_in and version != 9:
                self.state = "versions known"
        else:
            assert self.served[before:] == []
            self.refused()

    @precondition(lambda self: self.state != "over")
    @rule(mechanism=st.sampled_from([*MECHANISMS, "GSSAPI", ""]), version=st.sampled_from([0, 1]))
    def handshake(self, mechanism: str, version: int) -> None:
        if self.is_in and version == 0:
            return  # bare tokens are for the first login of old clients
        before = len(self.served)
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        if self.is_in and (not self.expires or self.has_renewed):
            # A request like any other; a login is renewed not more often than once a second.
            assert self.served[before:] == [ApiKey.SASL_HANDSHAKE]
            return
        assert self.served[before:] == []
        if self.state in ("chosen", "raw") or mechanism not in MECHANISMS:
            self.refused()
            return
        assert answer
        self.has_renewed = self.is_in
        self.before = self.mechanism
        self.mechanism = mechanism
        self.client = None
        self.is_in = False
        self.state = "raw" if version == 0 else "chosen"

    @precondition(lambda self: self.state in ("chosen", "raw"))
    @rule(login=st.sampled_from(LOGINS))
    def token(self, login: tuple[str, str]) -> None:
        if self.mechanism == "PLAIN":
            self.login = login
            said = "\0".join(("", *login)).encode()
        elif self.client is None:
            self.login = login
            self.client = ScramClient(SCRAM, *login, "mine")
            said = self.client.first()
        else:
            said = self.reply
        before = len(self.pipe.sent)
        self.say(said)
        if self.has_renewed and self.mechanism != self.before:
            self.refused()
        elif said.startswith(b"n,,"):
            answer = b"".join(self.pipe.sent[before:])
            at = answer.index(b"r=mine")
            assert self.client is not None
            reply = self.client.answer(answer[at : answer.index(b"i=4096") + 6])
            assert reply is not None
            self.reply = reply
        elif self.is_right():
            assert not self.is_over()
            self.principal = Principal("User", self.login[0])
            self.is_in, self.state = True, "in"
        else:
            self.refused()

    @precondition(lambda self: self.state in ("connected", "versions known", "in"))
    @rule(mechanism=st.sampled_from(MECHANISMS), login=st.sampled_from(LOGINS))
    def whole_login(self, mechanism: str, login: tuple[str, str]) -> None:
        """Most sequences end early; this one gets where the others begin."""
        self.handshake(mechanism, 1)
        while self.state == "chosen":
            self.token(login)

    @precondition(lambda self: self.state in ("connected", "versions known", "in"))
    @rule(mechanism=st.sampled_from(MECHANISMS))
    def good_handshake(self, mechanism: str) -> None:
        self.handshake(mechanism, 1)

    def say(self, token: bytes) -> None:
        if self.state == "raw":
            self.send(token)
        else:
            self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)

    def is_right(self) -> bool:
        """Returns whether the login is that of a user, and of the same one if there was one."""
        user, password = self.login
        if USERS.get(user) != password or (self.mechanism == SCRAM and user != "alice"):
            return False
        return not self.has_renewed or self.principal.name == user

    @precondition(lambda self: self.state in ("chosen", "raw"))
    @rule(data=st.binary(max_size=60))
    def nonsense(self, data: bytes) -> None:
        self.say(b"?" + data)
        self.refused()

    @precondition(lambda self: self.state in ("connected", "versions known"))
    @rule()
    def token_too_early(self) -> None:
        self.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), 2)
        self.refused()

    @precondition(lambda self: self.state != "over")
    @rule(size=st.sampled_from([64 * 1024 + 1, 2**31 - 1, -1]))
    def impossible_size(self, size: int) -> None:
        if self.is_in:
            return
        head = size.to_bytes(4, signed=True)
        space = self.connection.buffer()
        space[:4] = head
        self.connection.received(4)
        self.refused()

    @precondition(lambda self: self.state == "over")
    @rule(expires=st.booleans())
    def another_try(self, expires: bool) -> None:
        before = len(self.served)
        self.send(bytes(encode_request(ApiVersionsRequest(), 0, 1, "x"))[4:])
        assert len(self.served) == before
        self.connect(expires)

    # What is true at any time

    @invariant()
    def nobody_is_somebody_without_a_proof(self) -> None:
        if self.state == "over":
            return
        assert self.connection.principal == self.principal
        assert (self.connection in self.server.unproven) == (not self.is_in)
        if not self.is_in and not self.has_renewed:
            assert set(self.served) <= {ApiKey.API_VERSIONS}

    @invariant()
    def no_line_has_the_password(self) -> None:
        assert not any(password in line for password in USERS.values() for line in self.lines)


TestStates = States.TestCase
TestStates.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
