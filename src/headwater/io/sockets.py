"""TCP sockets on an asyncio loop. Slices of files are sent by `sendfile`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater import _core
from headwater.io.attention import Lookout, WatchfulLoop, WatchfulSelector
from headwater.io.disk import FileSlice, SystemFile, close_slices
from headwater.io.network import (
    NO_RECEIVER,
    SYSTEM_SOCKETS,
    Address,
    Receiver,
    SocketOptions,
    Stream,
    without_frames,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io.tls import Tls

_SENDFILE_BYTES_MAX = 1024 * 1024  # per turn, so that one reader cannot block the loop
_GATHERED_MAX = 16  # parts of a response that are passed to the kernel at once
_COPIED_BYTES_MAX = 128 * 1024  # of larger responses the peer may as well begin to read a part
_SMALL_BYTES_MAX = 4096  # larger requests are not those of a peer that waits for each response
_MAPPED = "::ffff:"  # begins an IPv4 address in IPv6
_NEXT_ADDRESS_SECONDS = 0.25  # as RFC 8305 has it


class SocketStream:
    """A TCP connection on the running loop."""

    __slots__ = (
        "_attention",
        "_closing",
        "_error",
        "_fd",
        "_first_at",
        "_gone",
        "_lookout",
        "_loop",
        "_queue",
        "_queued",
        "_reading",
        "_receiver",
        "_socket",
        "_told",
        "local",
        "peer",
    )

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._attention = loop.attention if isinstance(loop, WatchfulLoop) else None
        self._first_at: WatchfulSelector | None = None  # where it is served before others
        self._lookout: Lookout | None = None
        self._queue: deque[memoryview | FileSlice] = deque()
        self._queued = 0
        self._reading = False
        self._closing = False
        self._gone = False
        self._told = False
        self._error: OSError | None = None
        self._receiver: Receiver = NO_RECEIVER
        self.local = _address(sock.getsockname())
        self.peer = _address(sock.getpeername())

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume()

    # Reading

    def _on_readable(self) -> None:
        receiver = self._receiver
        try:
            count = self._socket.recv_into(receiver.buffer())
        except (BlockingIOError, InterruptedError):
            receiver.received(0)
            return
        except OSError as error:
            self._end(error)
            return
        if count:
            if self._lookout is not None:
                self._lookout.came()
            receiver.received(count)
            if self._attention is not None and count <= _SMALL_BYTES_MAX:
                self._attention.expect(self._fd)
        else:
            self.pause()
            receiver.ended()

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if not self._reading and not self._gone:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def expect(self) -> None:
        if self._attention is None:  # the loop of a node polls by itself
            if self._lookout is None:
                self._lookout = Lookout(self._loop)
            self._lookout.expect()

    def put_first(self) -> None:
        if self._attention is not None and not self._gone:
            self._first_at, self._attention = self._attention, None
            self._first_at.put_first(self._fd)

    # Writing

    def send(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if self._gone:
            close_slices(parts)
            return
        if not self._queue and len(parts) <= _GATHERED_MAX:
            views = [memoryview(part) for part in parts if not isinstance(part, FileSlice)]
            if len(views) == len(parts):
                self._send_views(views)
                return
        idle = not self._queue
        for part in parts:
            item = part if isinstance(part, FileSlice) else memoryview(part)
            if len(item):
                self._queue.append(item)
                self._queued += len(item)
        if idle and self._queue and not self._flush():
            self._loop.add_writer(self._fd, self._on_writable)

    def _send_views(self, views: list[memoryview]) -> None:
        """Sends what is in memory, in one system call; queues what the kernel does not take."""
        try:
            sent = self._socket.send(views[0]) if len(views) == 1 else self._socket.sendmsg(views)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._end(error)
            return
        for view in views:
            if sent >= len(view):
                sent -= len(view)
                continue
            self._queue.append(view[sent:])
            self._queued += len(view) - sent
            sent = 0
        if self._queue:
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        if self._flush():
            self._loop.remove_writer(self._fd)
            self._receiver.drained()
            if self._closing and not self._queue:
                self._end(None)

    def _flush(self) -> bool:
        """Passes queued data to the kernel; returns whether everything was taken."""
        if len(self._queue) > 2 and self._queued <= _COPIED_BYTES_MAX:
            # `sendfile` sends what it has at once: with several slices the peer would be woken for
            # the first of them and find an incomplete frame. Copying a few small ones is cheaper
            # than the system calls that send them one by one.
            try:
                self._join_queue()
            except OSError as error:
                self._end(error)
                return True
        return self._pass_on()

    def _join_queue(self) -> None:
        """Makes one buffer of what is queued."""
        joined = memoryview(_core.unfilled(self._queued))
        end = 0
        for item in self._queue:
            begin, end = end, end + len(item)
            if isinstance(item, FileSlice):
                read = os.preadv(_fileno(item), [joined[begin:end]], item.position)
                if read < len(item):
                    raise _ends_before(item, item.position + read)
                item.close()
            else:
                joined[begin:end] = item
        self._queue.clear()
        self._queue.append(joined)

    def _pass_on(self) -> bool:
        queue = self._queue
        budget = _SENDFILE_BYTES_MAX
        try:
            while queue:
                head = queue[0]
                if isinstance(head, FileSlice):
                    if budget <= 0:
                        return False
                    sent = self._send_file(head, min(budget, head.count))
                    budget -= sent
                    head.position += sent
                    head.count -= sent
                    if head.count == 0:
                        queue.popleft()
                        head.close()
                else:
                    # More data follows: let the kernel put header and data into one segment.
                    flags = socket.MSG_MORE if len(queue) > 1 else 0
                    sent = self._socket.send(head, flags)
                    if sent == len(head):
                        queue.popleft()
                    else:
                        queue[0] = head[sent:]
                self._queued -= sent
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._end(error)
            return True
        return True

    def _send_file(self, part: FileSlice, count: int) -> int:
        sent = os.sendfile(self._fd, _fileno(part), part.position, count)
        if sent == 0:
            raise _ends_before(part, part.position)
        return sent

    def queued_bytes(self) -> int:
        return self._queued

    def turn(self, seconds: float) -> bool:
        if not self._gone:
            events = (select.POLLIN if self._reading else 0) | (
                select.POLLOUT if self._queue else 0
            )
            poll = select.poll()
            poll.register(self._fd, events)
            for _, happened in poll.poll(max(0.0, seconds) * 1000):
                if happened & select.POLLOUT:
                    self._on_writable()
                if happened & ~select.POLLOUT and self._reading:
                    self._on_readable()
                break
            else:
                return False
        if self._gone:
            if self._told:
                return False
            self._tell_closed()
        return True

    # Ending

    def close(self) -> None:
        if not self._queue:
            self._end(None)
        else:
            self._closing = True
            self.pause()

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: OSError | None) -> None:
        if self._gone:
            return
        self._gone = True
        if self._first_at is not None:
            self._first_at.forget(self._fd)
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        close_slices(self._queue)
        self._queue.clear()
        self._queued = 0
        _hang_up(self._socket)
        self._error = None if error is None else without_frames(error)
        self._loop.call_soon(self._tell_closed)

    def _tell_closed(self) -> None:
        if not self._told:
            self._told = True
            # The receiver refers to its stream. Breaking the cycle frees both as soon as nothing
            # else refers to them; the garbage collector may not run for hours.
            receiver, self._receiver = self._receiver, NO_RECEIVER
            error, self._error = self._error, None
            receiver.closed(error)


def _fileno(part: FileSlice) -> int:
    assert isinstance(part.file, SystemFile)
    return part.file.fileno()


def _ends_before(part: FileSlice, position: int) -> OSError:
    """The file was truncated under a pending response. The announced length cannot be delivered, so
    the connection must be closed."""
    return OSError(errno.EIO, f"{part.file.path} ends before byte {position}")


class SocketListener:
    __slots__ = (
        "_accept",
        "_backlog",
        "_is_paused",
        "_loop",
        "_send_buffer_bytes",
        "_socket",
        "address",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions,
    ) -> None:
        self._backlog = options.backlog
        self._is_paused = False
        self._send_buffer_bytes = options.send_buffer_bytes
        self._socket = sock
        self._loop = loop
        self._accept = accept
        self.address = Address(*sock.getsockname()[:2])

    def start(self) -> None:
        try:
            self._socket.listen(self._backlog)
        except OSError as error:  # another process was first
            raise OSError(error.errno, error.strerror, str(self.address)) from error
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(16):
            if self._is_paused:
                return
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # Out of descriptors: wait until some are free instead of spinning.
                    self.pause(0.1)
                    return
                raise
            _tune(sock)
            if self._send_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            with contextlib.suppress(OSError):  # the peer may have closed it already
                stream = SocketStream(sock, self._loop)
                stream.start(self._accept(stream))

    def pause(self, seconds: float) -> None:
        if not self._is_paused and self._socket.fileno() >= 0:
            self._is_paused = True
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(seconds, self._listen_again)

    def _listen_again(self) -> None:
        self._is_paused = False
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            _hang_up(self._socket)


def _hang_up(sock: socket.socket) -> None:
    """Shuts the socket down before closing it. Closing alone has no effect while a forked child
    holds the socket as well: the peer would wait, and the port could not be bound again."""
    with contextlib.suppress(OSError):  # the peer may have reset it already
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _tune(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel detects half-open connections (a peer that lost power).
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class SocketNetwork:
    """The network of this host."""

    __slots__ = ()

    def host_name(self) -> str:
        name = socket.getfqdn()
        # /etc/hosts often lists the name of the host as an alias of localhost.
        return socket.gethostname() if name.startswith("localhost") else name

    def bind(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions = SYSTEM_SOCKETS,
    ) -> SocketListener:
        loop = asyncio.get_running_loop()
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(Address(host, port))) from error
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and not host:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if options.receive_buffer_bytes is not None:
                # On the listener, since the window is negotiated in the TCP handshake.
                size = options.receive_buffer_bytes
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            sock.setblocking(False)
            sock.bind(address)
        except OSError as error:
            sock.close()
            # The kernel does not say which address it refused.
            raise OSError(error.errno, error.strerror, str(Address(host, port))) from error
        return SocketListener(sock, loop, accept, options)

    async def connect(
        self, host: str, port: int, receiver: Callable[[Stream], Receiver], tls: Tls | None = None
    ) -> Stream:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except RuntimeError as error:
            raise _no_thread(error) from None
        if len(found) == 1:
            sock = await _connected(loop, found[0])
        else:
            sock = await _first_connected(loop, found)
        try:
            stream = SocketStream(sock, loop)
        except OSError:
            sock.close()
            raise
        if tls is None:
            stream.start(receiver(stream))
            return stream
        from headwater.io.tls import TlsStream

        secret = TlsStream(stream, tls)
        stream.start(secret)
        secret.start(receiver(secret))
        await secret.secured()
        return secret


def _no_thread(error: RuntimeError) -> OSError:
    """Returns what to raise where names cannot be looked up, as no thread can be started."""
    if threading.main_thread().is_alive():
        return OSError(errno.EAGAIN, str(error))
    return OSError(errno.ESHUTDOWN, "the program has ended without closing the client")


def _address(name: tuple[Any, ...]) -> Address:
    """Returns the address of one end. A listener for both families shows IPv4 as a part of IPv6,
    which no rule or limit for that address would match."""
    host, port = name[:2]
    return Address(host.removeprefix(_MAPPED) if "." in host else host, port)


_Found = tuple[int, int, int, str, Any]  # as getaddrinfo has it


async def _connected(loop: asyncio.AbstractEventLoop, found: _Found) -> socket.socket:
    family, kind, protocol, _, address = found
    sock = socket.socket(family, kind, protocol)
    try:
        _tune(sock)
        await loop.sock_connect(sock, address)
    except OSError as error:
        sock.close()
        # The text of the loop has the address, which the caller knows, but not the reason.
        raise OSError(error.errno, os.strerror(error.errno or 0)) from None
    except BaseException:
        sock.close()
        raise
    return sock


async def _first_connected(
    loop: asyncio.AbstractEventLoop, found: Sequence[_Found]
) -> socket.socket:
    """Tries the addresses of a name, each as soon as the one before has failed or has not answered
    for a moment; returns the first connection."""
    trying: list[asyncio.Task[socket.socket]] = []
    reason: tuple[Any, ...] = ()
    try:
        for place in [*found, None]:
            if place is not None:
                trying.append(loop.create_task(_connected(loop, place)))
            while trying:
                done, _ = await asyncio.wait(
                    trying,
                    timeout=_NEXT_ADDRESS_SECONDS if place is not None else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    trying.remove(task)
                    failure = task.exception()
                    if failure is None:
                        return task.result()
                    if not isinstance(failure, OSError):
                        raise failure
                    reason = failure.args
                if place is not None:
                    break
    finally:
        for task in trying:
            task.add_done_callback(_close_late)
            task.cancel()
    raise OSError(
        *reason
    )  # a new one: an exception must not be a local of the frame that raises it


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    """Closes a connection that was made after another one had been chosen."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
