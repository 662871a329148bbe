"""The interface between the machines of both group protocols and their driver.

`ClassicMember` and `ConsumerMember` decide; `driver` carries out their steps inside `poll` and
sends their heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headwater.client.requests.offset_commit import GroupMetadata
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.client.config import ConsumerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """The settings of a consumer that its membership needs."""

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


# Steps: what a poll has to do next, in order, until nothing is due.


@dataclass(frozen=True, slots=True)
class Lose:
    """Call `lost` for these partitions, then `on_given_up`."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Call `revoked` for these partitions while they are still owned, then `on_given_up`."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assign:
    """Call `take_over`, then `assigned` for these partitions, which are new."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Join:
    """Start to join the group."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the group's response."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is due."""


Step: TypeAlias = Lose | Revoke | Assign | Join | Wait | Done

JOIN, WAIT, DONE = Join(), Wait(), Done()


class Member(Protocol):
    """A member of a group as a machine; the driver needs no more of it than this."""

    failure: Exception | None  # the next poll raises it

    @property
    def owned(self) -> frozenset[TopicPartition]: ...
    @property
    def needs_poll(self) -> bool: ...
    @property
    def subscribed(self) -> bool: ...
    @property
    def keeps_alive(self) -> bool:
        """Returns whether heartbeats are sent."""

    @property
    def poll_deadline(self) -> float: ...
    @property
    def heartbeat_failures(self) -> int: ...
    @property
    def identity(self) -> GroupMetadata: ...
    def next_step(self) -> Step: ...
    def on_given_up(self, partitions: Iterable[TopicPartition]) -> None: ...
    def take_over(self) -> None: ...
    def take_failure(self) -> Exception | None: ...
    def polled(self, now: float) -> None: ...
    def heartbeat_at(self, backoff: float) -> float: ...
    def on_heartbeat_failed(self, now: float) -> None: ...
    def on_commit_refused(self, code: int, identity: GroupMetadata) -> None: ...
    def request_rejoin(self, reason: str) -> None: ...
