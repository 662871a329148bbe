"""Fetches of followers: positions first, then what is new, and nothing for idle partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from headwater.broker.context import Context, Later
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.handlers import fetch
from headwater.broker.partition import Partition
from headwater.errors import ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.model import TopicPartition
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from headwater.storage import Log, Origin
from tests.support.logs import NOW, TOPIC_ID, batch, lead, settings

VERSION = 17
WAIT_MS = 500
TOPIC = "t"


class Leader:
    """Three partitions, led by node 1, and the fetch handler. Followers are 2 and 3."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        disk = MemoryDisk()
        self.partitions: dict[int, Partition] = {}
        for index in range(3):
            tp = TopicPartition(TOPIC, index)
            log = Log.open(
                disk, f"/d/t-{index}", tp, topic_id=TOPIC_ID, config=settings(), now_ms=NOW
            )
            partition = Partition(tp, TOPIC_ID, log, SimpleNamespace(), high_watermark=0)
            lead(partition, epoch=1, isr=isr, replicas=(1, 2, 3))
            self.partitions[index] = partition
        self.now = 0.0
        self.reads: list[int] = []
        self.broker: Any = SimpleNamespace(
            partitions=SimpleNamespace(get=self._get, name_of=lambda _: TOPIC, leader_hint=_none),
            authorizer=None,
            config=SimpleNamespace(fetch_max_bytes=1 << 20),
            clock=SimpleNamespace(monotonic=lambda: self.now),
            fetch_sessions=FetchSessions(10, Random(1)),
        )

    def _get(self, topic: str, index: int) -> Partition:
        self.reads.append(index)
        return self.partitions[index]

    def append(self, index: int, value: bytes = b"x") -> None:
        self.partitions[index].append(batch(value), acks=1, now_ms=NOW, origin=Origin.COORDINATOR)


def _none(*_: object) -> None:
    return None


class Follower:
    def __init__(self, leader: Leader, node_id: int = 2) -> None:
        self.leader = leader
        self.node_id = node_id
        self.session = (0, 0)
        self.broker_epoch = node_id

    def send(
        self, offsets: dict[int, int], *, forget: tuple[int, ...] = (), **more: Any
    ) -> FetchResponse | Later:
        session_id, epoch = self.session
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self.broker_epoch),
            max_wait_ms=more.get("max_wait_ms", WAIT_MS),
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=more.get("leader_epoch", 1),
                            fetch_offset=offset,
                            last_fetched_epoch=more.get("last_epoch", -1),
                            log_start_offset=0,
                            partition_max_bytes=more.get("bytes_max", 1 << 20),
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forget))]
            if forget
            else [],
        )
        stream = SimpleNamespace(put_first=lambda: None)
        connection: Any = SimpleNamespace(on_gone={}, on_next=None, stream=stream)
        self.leader.reads.clear()
        handled: Any = fetch.handle(
            self.leader.broker, Context(connection, VERSION, "test"), request
        )
        if isinstance(handled, FetchResponse) and not handled.error_code:
            self.session = handled.session_id, 1 if not epoch else epoch + 1
        elif not isinstance(handled, FetchResponse):
            self.session = session_id, epoch + 1
        return handled  # type: ignore[no-any-return]

    def now(self, offsets: dict[int, int], **more: Any) -> dict[int, PartitionData]:
        answer = self.send(offsets, **more)
        assert isinstance(answer, FetchResponse), "the answer was to come at once"
        return parts(answer)

    def begin(self) -> None:
        self.now({0: 0, 1: 0, 2: 0}, max_wait_ms=0)


def parts(answer: FetchResponse) -> dict[int, PartitionData]:
    assert not answer.error_code
    return {data.partition_index: data for topic in answer.responses for data in topic.partitions}


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_positions_move_the_high_watermark_before_the_answer() -> None:
    async def story() -> None:
        leader = Leader()
        two, three = Follower(leader, 2), Follower(leader, 3)
        two.begin()
        three.begin()
        leader.append(0)
        assert len(two.now({})[0].records or b"")
        assert len(three.now({})[0].records or b"")
        done: list[object] = []
        leader.partitions[0].when_replicated(1, done.append)
        waiting = two.send({0: 1})
        assert not done
        assert not isinstance(waiting, FetchResponse)
        answered = three.now({0: 1}, max_wait_ms=0)
        assert done == [None]
        assert answered[0].high_watermark == 1

    run(story)


def test_a_fetch_looks_only_at_what_is_named_or_has_news() -> None:
    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        leader.append(1)
        assert list(follower.now({})) == [1]
        assert set(leader.reads) == {1}

    run(story)


def test_a_parked_fetch_wakes_once_for_all_appends_of_a_turn() -> None:
    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        waiting = follower.send({})
        assert not isinstance(waiting, FetchResponse)
        leader.append(0)
        leader.append(2)
        leader.append(2)
        await turns()
        assert sorted(parts(waiting.result())) == [0, 2]

    run(story)


def test_the_high_watermark_alone_wakes_nobody_and_goes_with_the_next_answer() -> None:
    async def story() -> None:
        leader = Leader()
        two, three = Follower(leader, 2), Follower(leader, 3)
        two.begin()
        three.begin()
        leader.append(0)
        two.now({})
        three.now({})
        waiting = two.send({0: 1}, max_wait_ms=20)
        assert not isinstance(waiting, FetchResponse)
        three.send({0: 1})
        await turns()
        assert leader.partitions[0].high_watermark == 1
        assert not waiting.is_answered
        answer = parts(await waiting)
        assert (answer[0].high_watermark, len(answer[0].records or b"")) == (1, 0)

    run(story)


def test_a_position_that_diverges_does_not_count() -> None:
    async def story() -> None:
        leader = Leader(isr=(1, 2))
        leader.append(0)
        leader.append(0)
        follower = Follower(leader)
        answer = follower.now({0: 2}, last_epoch=0)
        diverging = answer[0].diverging_epoch
        assert diverging is not None
        assert diverging.end_offset == 0
        assert leader.partitions[0].high_watermark == 0

    run(story)


def test_a_partition_that_the_follower_forgets_is_not_read_again() -> None:
    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        follower.now({}, forget=(1,), max_wait_ms=0)
        assert not leader.partitions[1].subscribers
        leader.append(1)
        assert not follower.now({}, max_wait_ms=0)

    run(story)


def test_a_new_session_replaces_the_subscriptions_of_the_old_one() -> None:
    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        old = follower.session
        follower.session = 0, 0
        follower.begin()
        leader.append(0)
        assert list(follower.now({})) == [0]
        leader.broker.fetch_sessions.remove(old[0])
        assert list(leader.partitions[0].subscribers) == [2]

    run(story)


def test_what_was_sent_and_not_named_again_is_sent_again() -> None:
    """The follower may have got only a part of a batch."""

    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        leader.append(0)
        assert len(follower.now({})[0].records or b"")
        assert len(follower.now({})[0].records or b"")
        assert not follower.now({0: 1}, max_wait_ms=0)

    run(story)


def test_fetches_of_an_earlier_life_and_of_strangers_are_refused() -> None:
    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        follower.broker_epoch = 1
        assert follower.now({0: 0})[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        stranger = Follower(leader, 4)
        assert stranger.now({0: 0})[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        follower = Follower(leader, 3)
        fenced = follower.now({0: 0}, leader_epoch=0)
        assert fenced[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

    run(story)


def test_losing_the_leadership_wakes_the_follower() -> None:
    async def story() -> None:
        leader = Leader()
        follower = Follower(leader)
        follower.begin()
        waiting = follower.send({})
        assert not isinstance(waiting, FetchResponse)
        leader.partitions[0].close()
        await turns()
        answer = parts(waiting.result())
        assert answer[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story)
