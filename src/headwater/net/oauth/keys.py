"""The keys that check bearer tokens: a JWKS, read from a file or an address and read again.

Tokens are checked with the keys that are known, at once. A key id that is not among them has the
JWKS read again soon, as after a rotation; a client whose token came too early logs in again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headwater.io import Host
from headwater.io.tls import read_file
from headwater.net.oauth.http import send
from headwater.observability import Log, printable
from headwater.security.bearer import Key, read_jwks
from headwater.security.oauth import shown

_TIMEOUT_MS = 10_000


class JwksSettings(NamedTuple):
    url: str
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_max_ms: int = 10_000


class JwksKeeper:
    """Keeps the keys fresh while `run` runs. If they cannot be read, the last ones stay."""

    def __init__(
        self,
        host: Host,
        settings: JwksSettings,
        lines: Log,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`context` is for an address with https. The address has been checked."""
        self._host = host
        self._settings = settings
        self._lines = lines
        self._context = context
        self._keys: Sequence[Key] = ()
        self._wanted = asyncio.Event()
        self.loaded = asyncio.Event()  # set when the keys have been read once

    def keys(self) -> Sequence[Key]:
        return self._keys

    def want(self, key_id: str | None) -> None:
        """Has the JWKS read again for a key that is not in it, but not more often than
        `retry_max_ms`: anybody can make up key ids."""
        self._wanted.set()

    async def run(self) -> None:
        settings = self._settings
        while True:
            self._wanted.clear()
            await self._refresh()
            await asyncio.sleep(min(settings.retry_max_ms, settings.refresh_ms) / 1000)
            left = max(0, settings.refresh_ms - settings.retry_max_ms) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wanted.wait()

    async def _refresh(self) -> None:
        """Reads the keys; tries again, ever more slowly, until it has them."""
        backoff = self._settings.retry_ms / 1000
        failure = ""
        while True:
            try:
                self._keys = await self._read()
                self.loaded.set()
            except Exception as error:  # whatever it is: no JWKS may stop the node
                text = str(getattr(error, "strerror", None) or error).lower()
                if text != failure:  # one line for each kind of failure, not for each attempt
                    failure = text
                    url = shown(self._settings.url)
                    self._lines.warn(f"the JWKS at {url} cannot be read: {printable(text)}")
            else:
                if failure:
                    self._lines.info(f"the JWKS at {shown(self._settings.url)} was read")
                return
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, self._settings.retry_max_ms / 1000)

    async def _read(self) -> Sequence[Key]:
        at = urlsplit(self._settings.url)
        if at.scheme == "file":
            data = await self._host.workers.run(lambda: read_file(unquote(at.path)))
            return read_jwks(data)
        response = await send(
            self._host,
            self._settings.url,
            context=self._context,
            connect_timeout_ms=_TIMEOUT_MS,
            read_timeout_ms=_TIMEOUT_MS,
        )
        if response.status != 200:
            raise ValueError(f"it answered {response.status}")
        return read_jwks(response.body)
