"""A front of TLS and SASL for a broker that has neither: what stands in many companies' clusters.

Its side of every mechanism is written here a second time, from the RFCs, as a judge of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from headwater.errors import ErrorCode
from headwater.protocol import Message, decode
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.frame import encode_response, read_request_header, read_response_header
from headwater.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headwater.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_SIZE = struct.Struct(">i")
_SALT, _ITERATIONS = b"some salt", 4096


class Certificates:
    """An authority, a server's certificate and a client's, as files."""

    KEY_PASSWORD = "key password"

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.server = authority.issue_cert("localhost")
        client = authority.issue_cert("client@example.org")
        self.ca = str(folder / "ca.pem")
        self.client = str(folder / "client.pem")
        self.key = str(folder / "key.pem")
        self.chain = str(folder / "chain.pem")
        self.locked_key = str(folder / "locked-key.pem")
        key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
        lock = serialization.BestAvailableEncryption(self.KEY_PASSWORD.encode())
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        Path(self.locked_key).write_bytes(key.private_bytes(*form, lock))
        authority.cert_pem.write_to_path(self.ca)
        client.private_key_and_cert_chain_pem.write_to_path(self.client)
        client.private_key_pem.write_to_path(self.key)
        for pem in client.cert_chain_pems:
            pem.write_to_path(self.chain, append=True)
        self.authority = authority

    def context(self, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.configure_cert(context)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context


class Refused(Exception):
    """The client is not whom it says, with what it is told."""


@dataclass(slots=True)
class Login:
    """The server's side of one authentication."""

    mechanism: str
    users: dict[str, str]
    step: int = 0
    said: list[str] = field(default_factory=list)
    is_liar: bool = False
    extensions: set[str] = field(default_factory=set)

    def answer(self, token: bytes) -> tuple[bytes, bool]:
        """Returns the answer, and whether it is the last."""
        self.step += 1
        if self.mechanism == "PLAIN":
            _, user, password = token.decode().split("\0")
            if self.users.get(user) != password:
                raise Refused("Authentication failed: Invalid username or password")
            return b"", True
        if self.mechanism == "OAUTHBEARER":
            if self.step == 2:
                raise Refused('{"status":"invalid_token"}')
            start, bearer, *extensions = token.decode().split("\x01")
            assert start == "n,,"
            self.extensions = {each for each in extensions if each}
            good = bearer.removeprefix("auth=Bearer ") in self.users
            return (b"", True) if good else (b'{"status":"invalid_token"}', False)
        return self._scram(token.decode())

    def _scram(self, text: str) -> tuple[bytes, bool]:
        digest = self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        if self.step == 1:
            bare = text.removeprefix("n,,")
            nonce = bare.split("r=")[1].split(",")[0]
            salt = b64encode(_SALT).decode()
            self.said = [bare, f"r={nonce}server,s={salt},i={_ITERATIONS}"]
            return self.said[1].encode(), False
        bare, challenge = self.said
        user = bare[2:].split(",")[0].replace("=2C", ",").replace("=3D", "=")
        final, _, proof = text.rpartition(",p=")
        everything = f"{bare},{challenge},{final}".encode()
        password = self.users.get(user, "").encode()
        salted = hashlib.pbkdf2_hmac(digest, password, _SALT, _ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored = hashlib.new(digest, client_key).digest()
        signature = hmac.digest(stored, everything, digest)
        shown = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        if hashlib.new(digest, shown).digest() != stored or not self.users.get(user):
            raise Refused("invalid credentials")
        server_key = hmac.digest(salted, b"Server Key", digest)
        verifier = hmac.digest(server_key, everything, digest)
        if self.is_liar:
            verifier = bytes(len(verifier))
        return b"v=" + b64encode(verifier), True


@dataclass(slots=True)
class SecureFront:
    """Listens on a port of its own; the broker must advertise that."""

    context: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()
    users: dict[str, str] = field(default_factory=dict)
    lifetime_ms: int = 0
    is_liar: bool = False
    target: str = ""
    logins: int = 0
    expired: int = 0  # connections closed since their session had ended
    extensions: set[str] = field(default_factory=set)  # of the last login with a token
    port: int = 0
    _socket: socket.socket | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _is_up: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[SecureFront]:
        """The port is bound at once; connections are served when `target` is known."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._is_up.wait()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._stop)
            thread.join()

    def _stop(self) -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_up.set()
        server = await asyncio.start_server(self._accepted, sock=self._socket, ssl=self.context)
        with contextlib.suppress(asyncio.CancelledError):
            async with server:
                await server.serve_forever()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            until = await self._log_in(reader, writer, to_reader, to_writer)
            back = asyncio.ensure_future(_pass_on(to_reader, writer))
            try:
                while frame := await _frame(reader):
                    if time.monotonic() > until:
                        self.expired += 1
                        break  # as Kafka does when a session has expired
                    to_writer.write(frame)
                    await to_writer.drain()
            finally:
                back.cancel()
        writer.close()
        to_writer.close()

    async def _log_in(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_reader: asyncio.StreamReader,
        to_writer: asyncio.StreamWriter,
    ) -> float:
        """Until when the client may ask; passes on nothing but ApiVersions before."""
        login: Login | None = None
        until = float("inf")
        while self.mechanisms:
            frame = await _frame(reader)
            header, at = read_request_header(frame, _SIZE.size)
            answer: Message
            is_over = False
            match header.api.key:
                case ApiKey.API_VERSIONS:
                    to_writer.write(frame)
                    answer = _with_sasl(await _frame(to_reader), header.version)
                case ApiKey.SASL_HANDSHAKE:
                    wanted = decode(SaslHandshakeRequest, frame, header.version, at)
                    good = wanted.mechanism in self.mechanisms
                    code = 0 if good else ErrorCode.UNSUPPORTED_SASL_MECHANISM
                    answer = SaslHandshakeResponse(
                        error_code=code, mechanisms=list(self.mechanisms)
                    )
                    login = Login(wanted.mechanism, self.users, is_liar=self.is_liar)
                case ApiKey.SASL_AUTHENTICATE:
                    assert login is not None
                    said = decode(SaslAuthenticateRequest, frame, header.version, at)
                    try:
                        token, is_over = login.answer(said.auth_bytes)
                        answer = SaslAuthenticateResponse(
                            auth_bytes=token,
                            error_message=None,
                            session_lifetime_ms=self.lifetime_ms,
                        )
                    except Refused as error:
                        answer = SaslAuthenticateResponse(
                            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                            error_message=str(error),
                        )
                case _:
                    raise ConnectionResetError("who is that?")
            writer.write(encode_response(answer, header.version, header.correlation_id))
            await writer.drain()
            if is_over:
                assert login is not None
                self.logins += 1
                self.extensions = login.extensions
                if self.lifetime_ms:
                    until = time.monotonic() + self.lifetime_ms / 1000
                break
        return until


def _with_sasl(frame: bytes, version: int) -> ApiVersionsResponse:
    """The broker's answer, with what this front adds."""
    _, at = read_response_header(APIS[ApiKey.API_VERSIONS], version, frame, _SIZE.size)
    answer = decode(ApiVersionsResponse, frame, version, at)
    answer.api_keys += [
        ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=1),
        ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=2),
    ]
    return answer


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(_SIZE.unpack(size)[0])


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
