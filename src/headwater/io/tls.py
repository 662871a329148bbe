"""TLS over a stream, which is itself a `Stream`.

The `ssl` module works on memory, so sockets stay in `sockets`. Incoming data is decrypted directly
into the receiver's buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import ssl
import stat
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.io.buffers import BufferPool
from headwater.io.disk import FileSlice, close_slices
from headwater.io.network import NO_RECEIVER, without_frames

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io.network import Receiver, Stream

_HUNG_UP = "it closed the connection in the TLS handshake; is it a PLAINTEXT listener?"
_BUFFERS = BufferPool(128 * 1024, kept_max=4)  # for encrypted data
# Encrypted at a time. OpenSSL's buffers grow to it and stay as large, for each connection.
_PIECE_BYTES = 64 * 1024
_DECRYPTED_BYTES = 32 * 1024  # passed to OpenSSL at a time, for the same reason
_UNREAD_BYTES_MAX = 16 * 1024 * 1024  # that the peer has not read; receivers stop far below it
_AHEAD_BYTES = 1024 * 1024  # may wait for the kernel before more is encrypted
_FILE_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a connection. Without a server name, any certificate name is accepted."""

    context: ssl.SSLContext
    server_name: str | None = None
    is_server: bool = False


class TlsStream:
    """The receiver of an encrypted stream, and a stream for the receiver of the decrypted data."""

    def __init__(
        self,
        inner: Stream,
        tls: Tls,
        on_handshake: Callable[[OSError | None], None] | None = None,
    ) -> None:
        """`on_handshake` is called once, when the handshake is complete or has failed, before
        anything is passed to the receiver."""
        self._on_handshake = on_handshake
        self.has_received = False
        self.local = inner.local
        self.peer = inner.peer
        self._inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=tls.is_server,
            server_hostname=tls.server_name,
        )
        self._buffer: memoryview | None = None  # borrowed for one read
        self._queue: deque[memoryview | FileSlice] = deque()
        self._queued = 0
        self._receiver: Receiver = NO_RECEIVER
        self._is_secured = False
        self._is_paused = False
        self._must_read = False  # data may be there that came before a pause
        self._is_closing = False
        self._is_gone = False
        self._error: OSError | None = None
        self._shaken: asyncio.Future[None] | None = None

    def start(self, receiver: Receiver) -> None:
        """Begins the handshake. `inner` must already have this stream as its receiver."""
        self._receiver = receiver
        self._shake()

    async def secured(self) -> None:
        """Waits for the end of the handshake; raises the `OSError` of a failed one."""
        if self._is_secured:
            return
        shaken = self._shaken = asyncio.get_running_loop().create_future()
        try:
            await shaken
        except BaseException:
            self.abort()
            raise
        finally:
            # A raised exception keeps this frame, so the frame must not keep the exception.
            self._shaken = None
            del shaken

    # The handshake

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._is_secured = True
        self._flush()
        if self._shaken is not None and not self._shaken.done():
            self._shaken.set_result(None)
        self._tell_handshake(None)
        if not self._is_gone:
            self._pump()
            self._read()

    def _tell_handshake(self, error: OSError | None) -> None:
        tell, self._on_handshake = self._on_handshake, None
        if tell is not None:
            tell(error)

    def peer_certificate(self) -> bytes | None:
        """Returns the verified certificate of the peer in DER form, if it has shown one."""
        return self._tls.getpeercert(binary_form=True)

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._inner.send((data,))

    def _fail(self, error: OSError) -> None:
        """Sends the TLS alert, if any, and closes."""
        self._error = without_frames(error)
        self._flush()
        self._inner.close()

    # Incoming data

    def buffer(self) -> memoryview:
        if self._buffer is None:
            self._buffer = _BUFFERS.take()
        return self._buffer

    def _release_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            _BUFFERS.give_back(buffer)

    def received(self, count: int) -> None:
        buffer = self._buffer
        if not count:
            self._release_buffer()
            return
        assert buffer is not None
        self._buffer = None
        self.has_received = True
        for start in range(0, count, _DECRYPTED_BYTES):
            self._incoming.write(buffer[start : min(count, start + _DECRYPTED_BYTES)])
            if self._is_gone:
                break
            if self._is_secured:
                self._read()
            else:
                self._shake()
        _BUFFERS.give_back(buffer)

    def _read(self) -> None:
        receiver = self._receiver
        self._must_read = False
        while not (self._is_paused or self._is_gone):
            into = receiver.buffer()
            if not into:  # it pauses the stream when it has served what it can
                break
            try:
                # With a buffer it returns a count, contrary to its stub.
                count: int = self._tls.read(len(into), into)  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                receiver.received(0)
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                count = 0
            except ssl.SSLError as error:
                self._fail(error)
                return
            if not count:
                self._is_paused = True
                receiver.ended()
                return
            receiver.received(count)
        if not self._is_gone:
            self._flush()  # TLS has messages of its own
            if self._inner.queued_bytes() > _UNREAD_BYTES_MAX:
                # A peer may ask for new keys as often as it likes, and read none of the answers.
                self.abort()

    def drained(self) -> None:
        if self._is_secured:
            self._pump()
            if not self.queued_bytes():
                self._receiver.drained()

    def ended(self) -> None:
        self._release_buffer()
        self._incoming.write_eof()
        if self._is_secured:
            self._read()
        else:
            self._fail(ConnectionResetError(_HUNG_UP))

    def closed(self, error: OSError | None) -> None:
        self._is_gone = True
        self._release_buffer()
        close_slices(self._queue)
        self._queue.clear()
        error, self._error = (
            self._error or error,
            None,
        )  # when raised, it refers to frames with this stream
        receiver, self._receiver = self._receiver, NO_RECEIVER  # as in SocketStream
        if not self._is_secured:
            self._tell_handshake(error or ConnectionResetError("it closed the connection"))
        if self._shaken is not None and not self._shaken.done():
            self._shaken.set_exception(error or ConnectionResetError("the connection was closed"))
        else:
            receiver.closed(error)

    # Outgoing data

    def send(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if self._is_gone:
            close_slices(parts)
            return
        for part in parts:
            item = part if isinstance(part, FileSlice) else memoryview(part)
            if len(item):
                self._queue.append(item)
                self._queued += len(item)
        if self._is_secured:
            self._pump()

    def _pump(self) -> None:
        """Encrypts queued data as long as the inner stream accepts more."""
        while self._queue and not self._is_gone and self._inner.queued_bytes() < _AHEAD_BYTES:
            try:
                self._tls.write(self._piece())
            except OSError as error:  # of TLS, or of the file
                self._fail(error)
                return
            self._flush()
        if self._is_closing and not self._queue:
            self._say_goodbye()

    def _piece(self) -> bytes | memoryview:
        """Returns the next piece of the queue; small parts are joined into one TLS record."""
        queue = self._queue
        taken: list[bytes | memoryview] = []
        size = 0
        while queue and size < _PIECE_BYTES:
            head = queue[0]
            count = min(len(head), _PIECE_BYTES - size)
            if isinstance(head, FileSlice):
                data = head.file.pread(count, head.position)
                if len(data) < count:
                    # As without TLS: the length that was announced cannot be delivered.
                    raise OSError(errno.EIO, f"{head.file.path} ends before its slice does")
                taken.append(data)
                head.position += count
                head.count -= count
            else:
                taken.append(head[:count])
                queue[0] = head[count:]
            size += count
            if not len(queue[0]):
                queue.popleft()
                if isinstance(head, FileSlice):
                    head.close()
        self._queued -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def expect(self) -> None:
        self._inner.expect()

    def put_first(self) -> None:
        self._inner.put_first()

    def queued_bytes(self) -> int:
        return self._queued + self._inner.queued_bytes()

    def turn(self, seconds: float) -> bool:
        if self._must_read:
            self._read_on()
            return True
        return self._inner.turn(seconds)

    # Reading and ending

    def pause(self) -> None:
        self._is_paused = True
        self._inner.pause()

    def resume(self) -> None:
        """Goes on reading, in the next turn of the loop: the receiver may be in the middle of
        serving what it has, with a buffer that is still full."""
        self._is_paused = False
        if self._is_secured and not self._must_read:
            self._must_read = True
            asyncio.get_running_loop().call_soon(self._read_on)
        self._inner.resume()

    def _read_on(self) -> None:
        """Reads what came before a pause."""
        if self._must_read:
            self._read()

    def close(self) -> None:
        self._is_closing = True
        if not self._queue:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        with contextlib.suppress(
            ssl.SSLError, ValueError
        ):  # does not wait for the peer's close_notify
            self._tls.unwrap()
        self._flush()
        self._inner.close()

    def abort(self) -> None:
        self._is_gone = True
        self._inner.abort()


@dataclass(frozen=True, slots=True)
class Trust:
    """Trusted certificates and the own certificate of a client, as paths or PEM text. By default
    the certificates of the system are trusted and no client certificate is used."""

    ca_path: str | None = None
    ca_pem: str | None = None
    chain_path: str | None = None
    key_path: str | None = None
    chain_pem: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_name: bool = True
    versions: tuple[str, ...] = ()
    ciphers: str | None = None


_NEWEST = ssl.TLSVersion.TLSv1_3
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": _NEWEST}


def client_context(trust: Trust) -> ssl.SSLContext:
    """Returns the TLS context of a client. Raises OSError (such as SSLError) or ValueError for
    settings that cannot be read or used."""
    context = ssl.create_default_context()
    if trust.ca_path is not None or trust.ca_pem is not None:
        # Given certificates replace those of the system.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(trust.ca_path, cadata=trust.ca_pem)
    context.check_hostname = trust.check_name
    _restrict(context, trust)
    _load_own(context, trust)
    return context


def _load_own(context: ssl.SSLContext, trust: Trust) -> None:
    if trust.chain_path is not None:
        context.load_cert_chain(trust.chain_path, trust.key_path, lambda: trust.key_password or "")
    elif trust.chain_pem is not None:
        # OpenSSL loads a certificate chain only from files; this one is never on a disk.
        with open(os.memfd_create("own.pem"), "w") as file:
            file.write(f"{trust.key_pem or ''}\n{trust.chain_pem}")
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            context.load_cert_chain(path, None, lambda: trust.key_password or "")


_VERIFY = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(trust: Trust, client_auth: str) -> ssl.SSLContext:
    """Returns the TLS context of a listener. `client_auth` is none, requested or required. Raises
    OSError (such as SSLError) or ValueError for settings that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if trust.ca_pem is not None:
        context.load_verify_locations(cadata=trust.ca_pem)
    context.verify_mode = _VERIFY[client_auth]
    _restrict(context, trust)
    _load_own(context, trust)
    return context


_ROUNDS_MAX = 10  # a handshake takes two or three


def handshake_failure(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLError | None:
    """Returns why a client and a server with these settings refuse each other, None if they do not.
    Nothing leaves this process."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_ROUNDS_MAX):
        for end in tuple(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
            waiting.remove(end)
        if not waiting:
            return None
    return ssl.SSLError("the handshake does not end")


def read_file(path: str) -> bytes:
    """Returns the content of a file with keys, certificates or a token. Raises OSError, also for
    what is not a file or cannot be one of these: a pipe might never end."""
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {_FILE_BYTES_MAX} bytes", path)
    return data


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe would wait for a writer


def file_stamp(path: str) -> tuple[int, int, int]:
    """Returns what changes whenever a file is written or replaced. Raises OSError."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


_TLS_13_SUITES = {
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
}


def _restrict(context: ssl.SSLContext, trust: Trust) -> None:
    """Applies the versions and cipher suites."""
    wanted = [_VERSIONS[each] for each in trust.versions]
    if trust.ciphers is not None:
        suites = trust.ciphers.split(":")
        newest = _TLS_13_SUITES.intersection(suites)
        older = [_openssl_name(each) for each in suites if each not in newest]
        # Python cannot choose among the suites of TLS 1.3: all, or another version.
        if newest and newest != _TLS_13_SUITES:
            missing = ", ".join(sorted(_TLS_13_SUITES - newest))
            raise ValueError(f"TLS 1.3 suites cannot be enabled one by one; add {missing}")
        usable = [v for v in wanted or _VERSIONS.values() if (newest if v is _NEWEST else older)]
        if not usable:
            raise ValueError("no cipher suite fits the enabled protocols")
        wanted = usable
        if older:
            context.set_ciphers(":".join(older))
    if wanted:
        context.minimum_version, context.maximum_version = min(wanted), max(wanted)


def _openssl_name(suite: str) -> str:
    """Returns OpenSSL's name of a cipher suite that has its name from IANA, as Java's have."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    if cipher.startswith("CHACHA20"):
        return f"{prefix}CHACHA20-POLY1305"
    cipher = cipher.replace("AES_", "AES").replace("_CBC_", "_")
    return prefix + cipher.replace("_", "-")


def is_pem(path: str) -> bool:
    """Returns whether a file contains PEM data. Raises OSError if it cannot be read."""
    return b"-----BEGIN " in read_file(path)
