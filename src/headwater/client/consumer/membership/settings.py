"""The settings of a membership, out of those of its consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.client.config import ConsumerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    group_id: str
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000
    remote_assignor: str | None = None
    exclude_internal_topics: bool = True
    allow_auto_create_topics: bool = True

    @classmethod
    def of(cls, config: ConsumerConfig) -> MembershipSettings:
        assert config.group_id is not None, "a membership needs a group"
        return cls(
            group_id=config.group_id,
            instance_id=config.group_instance_id,
            rack=config.client_rack or None,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            remote_assignor=config.group_remote_assignor,
            exclude_internal_topics=config.exclude_internal_topics,
            allow_auto_create_topics=config.allow_auto_create_topics,
        )
