"""Settings of the export of metrics by OpenTelemetry's protocol (OTLP)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from headwater.config.support import is_loopback
from headwater.config.values import ConfigError, ConfigValue

ENDPOINT = "headwater.otlp.endpoint"
HEADERS = "headwater.otlp.headers"
INTERVAL = "headwater.otlp.interval.ms"
_PATH = "/v1/metrics"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class OtlpSettings(NamedTuple):
    endpoint: str
    headers: dict[str, str]  # may have credentials
    interval_seconds: float


def otlp_settings(value: Callable[[str], ConfigValue]) -> OtlpSettings | None:
    """Returns the settings of the export; None if there is none. Raises ConfigError."""
    text = str(value(ENDPOINT) or "").strip()
    if not text:
        return None
    try:
        at = urlsplit(text)
        is_valid = at.scheme in ("http", "https") and bool(at.hostname) and (at.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or at.username is not None or at.query or at.fragment or not text.isascii():
        raise ConfigError(ENDPOINT, text, "expected a URL such as http://127.0.0.1:4318/v1/metrics")
    headers = _headers(str(value(HEADERS) or ""))
    if headers and at.scheme == "http" and not is_loopback(at.hostname or ""):
        raise ConfigError(
            ENDPOINT, text, f"expected https, as {HEADERS} would be sent for everybody to read"
        )
    interval_ms = value(INTERVAL)
    assert isinstance(interval_ms, int)
    path = "" if at.path.strip("/") else _PATH
    return OtlpSettings(text.rstrip("/") + path if path else text, headers, interval_ms / 1000)


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()) or not value.isprintable():
            raise ConfigError(HEADERS, text, "expected NAME=VALUE,...", secret=True)
        headers[name.strip()] = value.strip()
    return headers
