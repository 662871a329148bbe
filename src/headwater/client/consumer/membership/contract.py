"""What the consumer and its membership in a group promise each other.

The consumer reads `needs_poll` at every poll, and before each slice of records it hands out. When
it is true it awaits `poll`, the only place where partitions come and go and callbacks are called.
All that needs no callback (heartbeats, a join under way) goes on in the background meanwhile.
"""

from __future__ import annotations

import re
from typing import Protocol

from headwater.client.requests.offset_commit import CommitIdentity
from headwater.model import TopicPartition


class Subscription(Protocol):
    """What the user wants now. The consumer owns it; membership reads it when told it changed.

    One of the three is given. Nothing given means that the consumer is not in the group.
    """

    @property
    def topics(self) -> frozenset[str]:
        """Topics by name."""

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """Topics whose whole name matches, looked up by this client."""

    @property
    def regex(self) -> str | None:
        """Topics that match on the broker (RE2); only for group.protocol=consumer."""


class Callbacks(Protocol):
    """What the consumer does when partitions come and go. Called inside `poll` and `leave` only.

    An exception goes out through `poll` or `leave`; the partitions have come or gone all the same.
    """

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        """These are given back. Until this returns they are still ours: positions can be committed
        with `identity`. Never empty."""

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        """These are new. Called at the end of every rebalance, so the list may be empty."""

    async def lost(self, partitions: list[TopicPartition]) -> None:
        """These belong to somebody else by now: nothing can be committed for them. Never empty."""

    def wake(self) -> None:
        """`needs_poll` has become true: a poll that waits for records should look. Any time."""


class Membership(Protocol):
    """A place in a group, from `make_membership`; it does nothing before the first `poll`."""

    @property
    def needs_poll(self) -> bool:
        """Whether `poll` has something to do or to raise now. Cheap."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member owns; changes only inside `poll` and `leave`."""

    @property
    def identity(self) -> CommitIdentity:
        """For OffsetCommit, read afresh for each attempt; CommitFailed when not a member, and
        FencedInstance when it can be none again."""

    @property
    def rebalancing(self) -> bool:
        """Whether a join is under way or partitions are being taken over."""

    async def poll(self, deadline: float) -> None:
        """Joins, rejoins, takes over and gives back partitions until all of it is done or the
        deadline is reached; a deadline that has passed means: do what is due, wait for nothing.
        A join goes on in the background after the deadline. Raises what the group answered when it
        cannot be helped (GroupForbidden, FencedInstance, UnsupportedVersion ...)."""

    def polled(self, now: float) -> None:
        """The user is alive: max.poll.interval.ms starts again. To be said again, and again, while
        the user waits for records; `poll` says it by itself."""

    def subscription_changed(self) -> None:
        """Look at the subscription again; the group hears of it at the next `poll`."""

    def commit_refused(self, code: int, identity: CommitIdentity) -> None:
        """OffsetCommit with this identity was answered with a code that tells of the membership
        (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
        STALE_MEMBER_EPOCH). Other codes are ignored, and news about an old identity, too."""

    def rejoin(self, reason: str) -> None:
        """Has the group rebalance at the next `poll` (Kafka's enforceRebalance)."""

    async def leave(self, deadline: float, *, reason: str, remain: bool | None = None) -> None:
        """Calls `revoked` (or `lost`) for all partitions, then leaves; a later `poll` joins again.

        A static member stays in the group's books, as in Kafka, so that it may come back without a
        rebalance; `remain` False makes it leave, True makes any member stay until its session ends.
        """

    async def abandon(self) -> None:
        """Ends the background work at once, without a callback or a word to the group."""
