"""What the shard asks of a group whose members are assigned by the coordinator (KIP-848).

The shard keeps groups by id and knows two kinds: `ClassicGroup`, and what fits here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from headwater.errors import ErrorCode
from headwater.groups.decision import ClientInfo, Decision, Record, Token, TopicsView
from headwater.protocol.messages.consumer_group_describe import DescribedGroup
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest
from headwater.protocol.messages.leave_group import LeaveGroupRequest
from headwater.protocol.messages.sync_group import SyncGroupRequest

Describable: TypeAlias = Callable[[frozenset[str]], Iterable[str]]


class Session(NamedTuple):
    """A member's session, which every heartbeat puts off."""

    deadline: float
    timeout_ms: int
    is_awaited: bool  # it has not come up to the target yet


class ModernGroup(Protocol):
    """A consumer group. Refusals are answers; `apply` alone changes what must survive."""

    @property
    def is_empty(self) -> bool:
        """No members."""

    @property
    def state_name(self) -> str:
        """Kafka's word for the state, as ListGroups shows it."""

    def heartbeat(
        self,
        token: Token,
        request: ConsumerGroupHeartbeatRequest,
        *,
        client: ClientInfo,
        version: int,
        now: float,
        now_ms: int,
        describable: Describable | None = None,
    ) -> Decision:
        """`describable` keeps, of the topics a pattern matches, those the client may know of."""

    # A classic member of a group that has been upgraded.
    def classic_join(
        self,
        token: Token,
        request: JoinGroupRequest,
        *,
        client: ClientInfo,
        version: int,
        now: float,
        now_ms: int,
    ) -> Decision: ...

    def classic_sync(self, token: Token, request: SyncGroupRequest, *, now: float) -> Decision: ...

    def classic_heartbeat(
        self, token: Token, request: HeartbeatRequest, *, now: float
    ) -> Decision: ...

    def classic_leave(
        self, token: Token, request: LeaveGroupRequest, *, version: int, now: float, now_ms: int
    ) -> Decision: ...

    # Offsets.
    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        version: int,
        transactional: bool,
        partitions: Iterable[tuple[bytes, str, int]],
    ) -> ErrorCode:
        """Whether this member may commit offsets of these partitions (topic id, name, index)."""

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode: ...

    def is_subscribed(self, topic: str) -> bool: ...

    # Life.
    def apply(self, record: Record) -> None: ...

    @property
    def is_gone(self) -> bool:
        """Its tombstone has been applied."""

    def durable_state(self) -> object: ...

    def tombstones(self) -> list[Record]:
        """What deletes the group, when it is empty."""

    def describe(self) -> DescribedGroup: ...

    def sessions(self) -> Mapping[str, Session]:
        """By member id."""

    def on_loaded(self, now: float) -> Decision: ...

    def on_unloaded(self) -> Decision: ...

    def next_deadline(self) -> float: ...

    def on_tick(self, now: float, now_ms: int) -> Decision: ...

    def on_metadata(self, topics: TopicsView, now: float) -> Decision: ...

    def on_config(self, overrides: Mapping[str, str]) -> None:
        """The settings of this group, over those of the node."""
