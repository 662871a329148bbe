"""Exports a node's metrics to an OpenTelemetry collector: OTLP over HTTP, in JSON.

Every so often all metrics are posted, in a few requests, one after the other. What could not be
delivered is not repeated: the next export has newer values of the same counts.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from headwater.config.otlp import OtlpSettings
from headwater.io import Host
from headwater.net.oauth.http import HttpFailed, send
from headwater.observability import Log, printable
from headwater.observability.otlp import Times, bodies
from headwater.observability.registry import Registry

_CONNECT_TIMEOUT_MS = 5_000
_READ_TIMEOUT_MS = 10_000


class OtlpExport:
    def __init__(
        self,
        host: Host,
        registry: Registry,
        settings: OtlpSettings,
        lines: Log,
        *,
        resource: Mapping[str, str],
    ) -> None:
        self._host = host
        self._registry = registry
        self._settings = settings
        self._lines = lines
        self._resource = resource
        self._start_ns = host.clock.wall_ms() * 1_000_000
        self._headers = {"Content-Type": "application/json", **settings.headers}
        self._context = _tls_of(settings.endpoint)
        self._has_failed = False

    async def run(self) -> None:
        """Exports until it is cancelled."""
        while True:
            await asyncio.sleep(self._settings.interval_seconds)
            await self._export()

    async def _export(self) -> None:
        times = Times(start_ns=self._start_ns, now_ns=self._host.clock.wall_ms() * 1_000_000)
        for body in bodies(self._registry, self._resource, times):
            if body is None:
                await asyncio.sleep(0)
            elif (problem := await self._post(body)) is not None:
                if not self._has_failed:  # said once, until it works again
                    self._lines.warn(f"metrics cannot be exported: {problem}")
                self._has_failed = True
                return
        if self._has_failed:
            self._lines.info(f"metrics are exported again to {self._settings.endpoint}")
        self._has_failed = False

    async def _post(self, body: bytes) -> str | None:
        """Returns why the collector does not have it."""
        try:
            response = await send(
                self._host,
                self._settings.endpoint,
                body=body,
                headers=self._headers,
                context=self._context,
                connect_timeout_ms=_CONNECT_TIMEOUT_MS,
                read_timeout_ms=_READ_TIMEOUT_MS,
            )
        except HttpFailed as failure:
            return str(failure)
        if response.status != 200:
            said = printable(response.body[:200].decode(errors="replace"))
            return f"{self._settings.endpoint} answered {response.status} {said}".rstrip()
        return None


def _tls_of(url: str) -> ssl.SSLContext | None:
    if urlsplit(url).scheme != "https":
        return None
    from headwater.io.tls import Trust, client_context

    return client_context(Trust())
