"""A member of a group without the rest of a consumer: it joins, and notes what it is told."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, cast

from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.membership import Membership, make_membership
from headwater.client.consumer.metrics import GroupMetrics
from headwater.client.errors import CommitFailed
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.testing import EmbeddedBroker
from tests.conftest import AnotherBroker

PATIENCE_MS = 30_000
# Short sessions and heartbeats to match, so that who dies is missed soon. Members of classic groups
# bring their own; MORTAL is for those that are to die.
QUICK_BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
QUICK_CLASSIC: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}
MORTAL: dict[str, Any] = {"session_timeout_ms": 1000}


@contextmanager
def quick_broker() -> Iterator[EmbeddedBroker]:
    """A broker with those settings; that of HEADWATER_TEST_BOOTSTRAP must have been given them."""
    elsewhere = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if elsewhere:
        yield cast(EmbeddedBroker, AnotherBroker(elsewhere))
    else:
        with EmbeddedBroker(QUICK_BROKER) as made:
            yield made


@dataclass(slots=True)
class Wanted:
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    regex: str | None = None


@dataclass(slots=True)
class Notes:
    """The calls of the callbacks, in order."""

    told: list[tuple[str, list[TopicPartition]]] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    on_revoked: Callable[[], Any] | None = None

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))
        if self.on_revoked is not None:
            self.on_revoked()

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))

    async def lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("lost", partitions))

    def wake(self) -> None:
        self.woken.set()

    def all_of(self, kind: str) -> list[TopicPartition]:
        return [each for what, partitions in self.told if what == kind for each in partitions]


class Member:
    """`async with Member(bootstrap, group, ["topic"]) as member`. Ends without leaving."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        regex: str | None = None,
        **config: Any,
    ) -> None:
        if config.get("group_protocol") != "consumer":
            config = QUICK_CLASSIC | config
        self.config = ConsumerConfig.build(bootstrap, group_id=group, **config)
        self.wanted = Wanted(
            frozenset(topics), None if pattern is None else re.compile(pattern), regex
        )
        self.notes = Notes()
        host = Host.system()
        self.cluster = Cluster(self.config, host)
        self.membership: Membership = make_membership(
            self.config, self.cluster, self.wanted, self.notes, GroupMetrics()
        )

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def die(self) -> None:
        """Without a word to the group, as if the process had been killed."""
        await self.membership.abandon()
        await self.cluster.close()

    async def leave(self, reason: str = "the test wants it", **options: Any) -> None:
        deadline = self.cluster.deadline(PATIENCE_MS)
        await self.membership.leave(deadline, reason=reason, **options)

    async def poll(self, timeout_ms: float = PATIENCE_MS) -> None:
        await self.membership.poll(self.cluster.deadline(timeout_ms))

    async def expired(self) -> None:
        """Until it is no member any more, since nobody polls it."""
        while not self._is_out():
            self.notes.woken.clear()
            await asyncio.wait_for(self.notes.woken.wait(), PATIENCE_MS / 1000)

    def _is_out(self) -> bool:
        try:
            _ = self.membership.identity
        except CommitFailed:
            return True
        return False

    @property
    def owned(self) -> list[TopicPartition]:
        return sorted(self.membership.assignment)


async def until(condition: Callable[[], bool], *members: Member) -> None:
    """Polls the members, as their users would, until the condition holds."""
    deadline = members[0].cluster.deadline(PATIENCE_MS)
    while not condition():
        told = [each.notes.told[-6:] for each in members]
        assert members[0].cluster.now() < deadline, f"it never came to be; {told}"
        for each in members:
            each.notes.woken.clear()
        await asyncio.gather(*(each.poll(50) for each in members))
        if not condition() and not any(each.membership.needs_poll for each in members):
            waits = [asyncio.ensure_future(each.notes.woken.wait()) for each in members]
            await asyncio.wait(waits, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()


def settled(total: int, *members: Member) -> Callable[[], bool]:
    """All partitions have one owner each, as evenly as can be, and nothing is under way."""

    def holds() -> bool:
        if any(each.membership.needs_poll or each.membership.rebalancing for each in members):
            return False
        parts = [each.owned for each in members]
        owned = [partition for part in parts for partition in part]
        sizes = [len(part) for part in parts]
        return len(owned) == len(set(owned)) == total and max(sizes) - min(sizes) <= 1

    return holds
