"""Metrics and health by HTTP: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from headwater.io import Address, Host
from headwater.net.http import HttpAnswer, HttpLimits, HttpRequest, HttpServer
from headwater.observability import printable
from headwater.observability.exposition import OPENMETRICS, accepted, render
from headwater.observability.naming import NAMINGS
from headwater.observability.registry import Registry

_INDEX = """\
/metrics  for Prometheus; OpenMetrics if that is asked for; ?names=confluent for its dashboards
/healthz  200 while the process is well
/readyz   200 while it can serve
"""


def _nothing() -> None:
    return None


class MetricsServer:
    """Serves a registry at one address."""

    def __init__(
        self,
        host: Host,
        registry: Registry,
        *,
        why_not_ready: Callable[[], str | None] = _nothing,
        has_failed: Callable[[], bool] = lambda: False,
        limits: HttpLimits | None = None,
    ) -> None:
        """`why_not_ready` returns why the process cannot serve now; None if it can."""
        self._registry = registry
        self._why_not_ready = why_not_ready
        self._has_failed = has_failed
        self._server = HttpServer(host, self._answer, limits)

    def start(self, host: str, port: int) -> Address:
        """Listens; returns the address. Raises OSError, with the address, if that fails."""
        return self._server.start(host, port)

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends everything at once; returns the tasks that are still ending."""
        return self._server.stop()

    def _answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/metrics":
                kind = accepted(request.headers.get("accept", ""))
                asked = parse_qs(request.query).get("names")
                names = asked[-1] if asked else None
                if names is not None and names not in NAMINGS:
                    text = f"names={printable(names)}: expected {', '.join(NAMINGS)}\n"
                    return HttpAnswer(text, HTTPStatus.BAD_REQUEST)
                body = render(self._registry, openmetrics=kind == OPENMETRICS, names=names)
                return HttpAnswer(body, content_type=kind)
            case "/healthz":
                return _health("failed" if self._has_failed() else None)
            case "/readyz":
                return _health(self._why_not_ready())
            case "/":
                return HttpAnswer(_INDEX)
        return HttpAnswer(_INDEX, HTTPStatus.NOT_FOUND)


def _health(why_not: str | None) -> HttpAnswer:
    if why_not is None:
        return HttpAnswer("ok\n")
    return HttpAnswer(f"{why_not}\n", HTTPStatus.SERVICE_UNAVAILABLE)
