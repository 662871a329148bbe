"""How long a request may take, as its sender says."""

from __future__ import annotations

from headwater.errors import ApiError, ErrorCode


def check_timeout(timeout_ms: int) -> None:
    """A request that leaves no time is refused before anything is done, as Kafka does."""
    if timeout_ms <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
