"""The driver of the coordinators on a real log in memory: loading, and surviving failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

import pytest

from headwater import _core
from headwater.broker.coordinators.driver import CoordinatorDriver, State
from headwater.broker.coordinators.records import GroupCodec
from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.coordination import Decision, Record, Token
from headwater.errors import ApiError, ErrorCode
from headwater.groups.clients import ClientInfo
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.io.clock import SystemClock
from headwater.io.memory import MemoryDisk
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headwater.protocol.records.group_offsets import OffsetCommitKey, OffsetCommitValue
from headwater.storage import UNGUARDED, Log, Origin, Verification
from tests.support.logs import NOW, TOPIC_ID, lead, marker, open_log, settings

T = TypeVar("T")
TP = TopicPartition("__consumer_offsets", 0)
GROUP, TOPIC = "billing", "orders"
NO_PRODUCER = -1
COMMIT_MS = 20


class InlineWorkers:
    """Does the work at once."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    def close(self) -> None: ...


class Desk:
    """One partition of the offsets topic, which this broker leads, and its driver."""

    def __init__(self, log: Log | None = None) -> None:
        self.log = log or open_log(MemoryDisk(), settings(cleanup_policy="compact"))
        self.partition = Partition(TP, TOPIC_ID, self.log, InlineWorkers(), 0)
        lead(self.partition, epoch=0, isr=(1,), replicas=(1, 2))
        self.lines: list[str] = []
        self.codec = GroupCodec()
        self.clock = SystemClock()
        self.effects: list[object] = []
        self.driver = self.new_driver()

    def new_driver(self) -> CoordinatorDriver[GroupShard]:
        return CoordinatorDriver(
            self.partition,
            lambda: GroupShard(GroupSettings(), Random(1)),
            lambda machine: None,
            self.codec,
            self.clock,
            InlineWorkers(),
            Lines(self.clock, self.lines.append),
            commit_timeout_ms=COMMIT_MS,
            on_effects=self.effects.extend,
        )

    async def load(self) -> GroupShard:
        await self.driver.load()
        return self.driver.machine

    def offset(self, partition: int, offset: int | None, *, producer_id: int = NO_PRODUCER) -> None:
        """An offset in the log, as a coordinator that has gone wrote it."""
        key = OffsetCommitKey(group=GROUP, topic=TOPIC, partition=partition)
        value = None
        if offset is not None:
            value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW)
        written, content = self.codec.encode(Record(key, value))
        batch = _core.encode(
            [(written, content, (), NOW)],
            producer_id=producer_id,
            producer_epoch=NO_PRODUCER if producer_id == NO_PRODUCER else 0,
            transactional=producer_id != NO_PRODUCER,
        )
        self.append(bytearray(batch))

    def end(self, producer_id: int, *, commits: bool) -> None:
        self.append(marker(producer_id, abort=not commits))

    def append(self, batch: bytearray) -> None:
        self.partition.append(
            batch, acks=ALL_IN_SYNC, now_ms=NOW, origin=Origin.COORDINATOR, guard=UNGUARDED
        )

    def join(self, group: str) -> Message | Awaitable[Message]:
        """A member that is refused, for whom a group is created all the same."""
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=10_000, member_id="", protocol_type=""
        )
        client = ClientInfo("client", "/127.0.0.1")
        return self.driver.ask(
            lambda shard, token: shard.decide_join(
                token, request, client=client, version=9, now=0.0, now_ms=NOW
            )
        )

    def beat(self, group: str) -> Message | Awaitable[Message]:
        """A member that joins a consumer group."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        client = ClientInfo("client", "/127.0.0.1")
        return self.driver.ask(
            lambda shard, token: shard.decide_consumer_heartbeat(
                token, request, client=client, version=1, now=0.0, now_ms=NOW
            )
        )

    def commit(
        self, offset: int, *, group: str = GROUP, metadata: str = ""
    ) -> Message | Awaitable[Message]:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        return self.driver.ask(
            lambda shard, token: shard.decide_commit(token, request, version=9, now=0.0, now_ms=NOW)
        )

    def verified(self) -> Verification | None:
        """The guard of producer 7, as if its coordinator had said yes."""
        return self.partition.begin_verification(
            7, epoch=3, sequence=-1, bumps_epoch=False, now_ms=NOW
        )

    def commit_in_transaction(
        self, offset: int, *, guard: Verification | None, metadata: str = ""
    ) -> Message | Awaitable[Message]:
        """A commit of producer 7 in its epoch 3."""
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=GROUP,
            producer_id=7,
            producer_epoch=3,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        return self.driver.ask_in_transaction(
            lambda shard, token: shard.decide_commit_in_transaction(
                token, request, version=5, now=0.0, now_ms=NOW
            ),
            producer_id=7,
            producer_epoch=3,
            guard=guard,
        )

    def write_marker(self, *, commits: bool, epoch: int = 3) -> Awaitable[None] | None:
        return self.driver.write_marker(
            7, epoch, commits=commits, coordinator_epoch=0, transaction_version=1
        )


def fetched(machine: GroupShard, *partitions: int, stable: bool = False) -> dict[int, object]:
    """By partition, the committed offset, or the error that stands in its place."""
    request = OffsetFetchRequestGroup(
        group_id=GROUP,
        topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))],
    )
    (topic,) = machine.fetch_offsets(request, require_stable=stable).topics
    return {
        found.partition_index: (
            ErrorCode(found.error_code) if found.error_code else found.committed_offset
        )
        for found in topic.partitions
    }


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


# Transactions in the log


def test_offsets_of_an_aborted_transaction_are_not_loaded() -> None:
    async def test() -> None:
        desk = Desk()
        desk.offset(0, 10)
        desk.offset(0, 99, producer_id=7)
        desk.offset(1, 99, producer_id=7)
        desk.end(7, commits=False)
        machine = await desk.load()
        assert fetched(machine, 0, 1, stable=True) == {0: 10, 1: -1}

    run(test)


def test_offsets_of_a_committed_transaction_count_from_its_marker_on() -> None:
    async def test() -> None:
        desk = Desk()
        desk.offset(0, 10)
        desk.offset(0, 20, producer_id=7)
        desk.end(7, commits=True)
        assert fetched(await desk.load(), 0, stable=True) == {0: 20}

    run(test)


def test_offsets_of_an_open_transaction_are_loaded_as_pending() -> None:
    async def test() -> None:
        desk = Desk()
        desk.offset(0, 10)
        desk.offset(0, 20, producer_id=7)
        desk.offset(1, 30, producer_id=8)
        desk.end(8, commits=True)
        machine = await desk.load()
        assert fetched(machine, 0, 1) == {0: 10, 1: 30}
        unstable = {0: ErrorCode.UNSTABLE_OFFSET_COMMIT, 1: 30}
        assert fetched(machine, 0, 1, stable=True) == unstable
        machine.apply_marker(7, commits=True)
        assert fetched(machine, 0, 1, stable=True) == {0: 20, 1: 30}

    run(test)


def test_a_marker_ends_only_its_own_producers_transaction() -> None:
    async def test() -> None:
        desk = Desk()
        desk.offset(0, 20, producer_id=7)
        desk.offset(1, 30, producer_id=8)
        desk.end(7, commits=False)
        machine = await desk.load()
        unstable = {0: -1, 1: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        assert fetched(machine, 0, 1, stable=True) == unstable

    run(test)


def test_a_tombstone_drops_what_is_pending() -> None:
    async def test() -> None:
        desk = Desk()
        desk.offset(0, 20, producer_id=7)
        desk.offset(0, None)
        desk.end(7, commits=True)
        assert fetched(await desk.load(), 0, stable=True) == {0: -1}

    run(test)


def test_a_transactional_commit_is_written_as_part_of_its_transaction() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        desk.commit(5)
        desk.commit_in_transaction(6, guard=desk.verified())
        live = desk.driver.machine
        assert fetched(live, 0, stable=True) == {0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        desk.driver = desk.new_driver()
        assert (await desk.load()).durable_state() == live.durable_state()
        desk.append(marker(7, abort=False, epoch=3))
        desk.driver = desk.new_driver()
        assert fetched(await desk.load(), 0, stable=True) == {0: 6}

    run(test)


def test_a_commit_in_a_transaction_that_its_coordinator_does_not_know_changes_nothing() -> None:
    async def test() -> None:
        desk = Desk()
        machine = await desk.load()
        for guard in (None, desk.verified()):
            desk.write_marker(commits=False)  # ends what was verified
            with pytest.raises(ApiError) as raised:
                desk.commit_in_transaction(6, guard=guard)
            assert raised.value.code == ErrorCode.INVALID_TXN_STATE
        assert desk.driver.machine is machine, "a refusal must not have the shard loaded again"
        assert desk.driver.state is State.ACTIVE
        assert fetched(machine, 0, stable=True) == {0: -1}

    run(test)


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_is_applied_as_it_would_be_loaded(commits: bool) -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        desk.commit(5)
        desk.commit_in_transaction(6, guard=desk.verified())
        assert desk.write_marker(commits=commits) is None
        live = desk.driver.machine
        assert fetched(live, 0, stable=True) == {0: 6 if commits else 5}
        desk.driver = desk.new_driver()
        assert (await desk.load()).durable_state() == live.durable_state()

    run(test)


def test_a_marker_counts_when_it_is_replicated() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        desk.commit_in_transaction(6, guard=desk.verified())
        lead(desk.partition, epoch=0, isr=(1, 2), replicas=(1, 2))
        written = desk.write_marker(commits=True)
        assert isinstance(written, Awaitable)
        lead(desk.partition, epoch=0, isr=(1,), replicas=(1, 2))
        await written

    run(test)


def test_a_marker_that_is_fenced_changes_nothing() -> None:
    async def test() -> None:
        desk = Desk()
        machine = await desk.load()
        desk.commit_in_transaction(6, guard=desk.verified())
        before = machine.durable_state()
        with pytest.raises(ApiError) as raised:
            desk.write_marker(commits=True, epoch=2)
        assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (desk.driver.machine, machine.durable_state()) == (machine, before)

    run(test)


def test_markers_wait_for_a_shard_that_is_being_loaded() -> None:
    async def test() -> None:
        desk = Desk()
        with pytest.raises(ApiError) as raised:
            desk.write_marker(commits=True)
        assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert desk.log.end == 0

    run(test)


# Replication


def test_what_is_not_committed_yet_is_not_shown() -> None:
    """Otherwise a committed offset could go back after a change of leader."""

    async def test() -> None:
        desk = Desk()
        await desk.load()
        assert isinstance(desk.commit(5), OffsetCommitResponse)
        lead(desk.partition, epoch=0, isr=(1, 2), replicas=(1, 2))
        replied = desk.commit(6)
        shown = desk.driver.read(lambda machine: fetched(machine, 0))
        assert isinstance(replied, Awaitable)
        assert isinstance(shown, Awaitable)
        waiting = asyncio.gather(replied, shown)
        done, _ = await asyncio.wait([waiting], timeout=0)
        assert not done
        lead(desk.partition, epoch=0, isr=(1,), replicas=(1, 2))
        assert (await waiting)[1] == {0: 6}
        assert desk.driver.read(lambda machine: fetched(machine, 0)) == {0: 6}

    run(test)


def test_what_is_not_replicated_in_time_is_not_available() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        lead(desk.partition, epoch=0, isr=(1, 2), replicas=(1, 2))
        replied = desk.commit(6)
        shown = desk.driver.read(lambda machine: fetched(machine, 0))
        assert isinstance(replied, Awaitable)
        assert isinstance(shown, Awaitable)
        for waiting in (replied, shown):
            with pytest.raises(ApiError) as refusal:
                await waiting
            assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_below_min_isr_requests_are_refused_and_the_machine_stays() -> None:
    """To load the shard again for each request would stop all groups of the broker."""

    async def test() -> None:
        desk = Desk()
        machine = await desk.load()
        desk.commit(5)
        desk.partition.configure(settings(cleanup_policy="compact", min_insync_replicas=2))
        with pytest.raises(ApiError) as refusal:
            desk.commit(6)
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert desk.driver.machine is machine
        assert desk.driver.state is State.ACTIVE
        desk.partition.configure(settings(cleanup_policy="compact"))
        assert isinstance(desk.commit(7), OffsetCommitResponse)

    run(test)


# Effects


def noted(offset: int, *effects: str) -> Decision:
    """A decision with a record and these effects."""
    key = OffsetCommitKey(group=GROUP, topic=TOPIC, partition=0)
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW)
    return Decision((Record(key, value),), effects=effects)


def test_effects_are_carried_out_in_order_before_the_reply() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        desk.driver.run(lambda machine: noted(1, "first", "second"))
        answer = OffsetCommitResponse()

        def decide(machine: GroupShard, token: Token) -> Decision:
            return Decision((), ((token, answer),), effects=("third",))

        assert desk.driver.ask(decide) is answer
        assert desk.effects == ["first", "second", "third"]

    run(test)


def test_effects_wait_for_the_commit_longer_than_replies_do() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        lead(desk.partition, epoch=0, isr=(1, 2), replicas=(1, 2))
        answer = OffsetCommitResponse()

        def decide(machine: GroupShard, token: Token) -> Decision:
            first = noted(1, "first")
            return Decision(first.records, ((token, answer),), effects=first.effects)

        replied = desk.driver.ask(decide)
        desk.driver.run(lambda machine: Decision(effects=("second",)))
        assert isinstance(replied, Awaitable)
        with pytest.raises(ApiError) as refusal:
            await replied
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert desk.effects == []
        lead(desk.partition, epoch=0, isr=(1,), replicas=(1, 2))
        assert desk.effects == ["first", "second"]

    run(test)


def test_effects_of_a_closed_driver_are_dropped() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        lead(desk.partition, epoch=0, isr=(1, 2), replicas=(1, 2))
        desk.driver.run(lambda machine: noted(1, "first"))
        desk.driver.close()
        lead(desk.partition, epoch=0, isr=(1,), replicas=(1, 2))
        assert desk.effects == []

    run(test)


def test_effects_of_a_machine_that_was_loaded_again_are_dropped() -> None:
    """The new machine decides them anew when it is loaded."""

    async def test() -> None:
        desk = Desk()
        await desk.load()
        lead(desk.partition, epoch=0, isr=(1, 2), replicas=(1, 2))
        desk.driver.run(lambda machine: noted(1, "of the machine before"))

        def breaks(machine: GroupShard) -> Decision:
            raise AssertionError("an invariant does not hold")

        desk.driver.run(breaks)
        await all_tasks_done()
        desk.driver.run(lambda machine: noted(2, "of the machine after"))
        lead(desk.partition, epoch=0, isr=(1,), replicas=(1, 2))
        assert desk.effects == ["of the machine after"]

    run(test)


# Failures


def test_a_log_that_cannot_be_loaded_leaves_the_partition_without_a_coordinator() -> None:
    async def test() -> None:
        desk = Desk()
        cut_short = b"\x00\x03\x00"  # the key of a consumer group's record, and half an id
        desk.append(bytearray(_core.encode([(cut_short, b"", (), NOW)])))
        desk.driver.start()
        await all_tasks_done()
        assert desk.driver.state is State.FAILED
        assert any("cannot be loaded" in line for line in desk.lines)
        with pytest.raises(ApiError) as refusal:
            desk.commit(5)
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR

    run(test)


def test_an_append_that_fails_outside_of_a_request_is_logged_and_the_machine_loaded_again() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        assert isinstance(desk.commit(5), OffsetCommitResponse)
        key = OffsetCommitKey(group=GROUP, topic=TOPIC, partition=0)
        too_large = OffsetCommitValue(offset=6, metadata="m" * 30_000, commit_timestamp=NOW)
        desk.log.configure(settings(cleanup_policy="compact", max_message_bytes=1000))
        desk.driver.run(lambda machine: Decision((Record(key, too_large),)))
        assert desk.driver.state is State.LOADING
        assert any("append" in line for line in desk.lines)
        await all_tasks_done()
        assert fetched(desk.driver.machine, 0) == {0: 5}

    run(test)


def test_a_commit_too_large_for_a_batch_is_refused_and_the_machine_stays() -> None:
    async def test() -> None:
        desk = Desk()
        machine = await desk.load()
        desk.commit(5)
        guard = desk.verified()
        desk.log.configure(settings(cleanup_policy="compact", max_message_bytes=1000))
        with pytest.raises(ApiError) as refusal:
            desk.commit(6, metadata="m" * 1000)
        with pytest.raises(ApiError) as refusal_in_transaction:
            desk.commit_in_transaction(6, guard=guard, metadata="m" * 1000)
        codes = refusal.value.code, refusal_in_transaction.value.code
        assert codes == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert desk.driver.state is State.ACTIVE
        assert desk.driver.machine is machine
        assert fetched(machine, 0, stable=True) == {0: 5}
        assert desk.lines == []

    run(test)


def test_more_offsets_than_fit_into_a_batch_are_deleted_in_several() -> None:
    async def test() -> None:
        desk = Desk()
        for partition in range(60):
            desk.offset(partition, 5)
        machine = await desk.load()
        desk.log.configure(settings(cleanup_policy="compact", max_message_bytes=1000))
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(60)]
        request = OffsetDeleteRequest(
            group_id=GROUP, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)]
        )
        desk.driver.ask(lambda shard, token: shard.decide_delete_offsets(token, request, now=0.0))
        assert desk.driver.machine is machine
        assert set(fetched(machine, *range(60)).values()) == {-1}

    run(test)


@pytest.mark.parametrize("commits", [False, True])
def test_what_expires_at_once_fits_into_a_batch_however_long_its_names(commits: bool) -> None:
    async def test() -> None:
        desk = Desk()
        machine = await desk.load()
        for number in range(60):
            group = f"{number}" + "g" * 30_000
            if commits:
                desk.commit(5, group=group)
            else:
                desk.join(group)
        now = machine.next_deadline()
        later_ms = NOW + 1000 * 24 * 3600 * 1000
        while machine.list_groups((), ()):
            desk.driver.run(partial(GroupShard.on_tick, now=now, now_ms=later_ms))
            assert desk.driver.machine is machine, desk.lines
            assert desk.driver.state is State.ACTIVE, desk.lines
            now = max(now, machine.next_deadline())

    run(test)


def test_a_machine_that_breaks_outside_of_a_request_is_logged_and_loaded_again() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        desk.commit(5)

        def breaks(machine: GroupShard) -> Decision:
            raise AssertionError("an invariant does not hold")

        desk.driver.run(breaks)
        assert any("an invariant does not hold" in line for line in desk.lines)
        await all_tasks_done()
        assert fetched(desk.driver.machine, 0) == {0: 5}

    run(test)


def test_a_machine_that_breaks_in_a_request_fails_that_request_and_is_loaded_again() -> None:
    async def test() -> None:
        desk = Desk()
        await desk.load()
        desk.commit(5)

        def breaks(machine: GroupShard, token: Token) -> Decision:
            raise AssertionError("an invariant does not hold")

        with pytest.raises(AssertionError):
            desk.driver.ask(breaks)
        with pytest.raises(ApiError) as refusal:
            desk.commit(6)
        assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await all_tasks_done()
        assert isinstance(desk.commit(7), OffsetCommitResponse)
        assert fetched(desk.driver.machine, 0) == {0: 7}

    run(test)


@pytest.mark.parametrize(
    ("groups", "id_length", "batch_bytes"), [(300, 8, 20_000), (40, 30_000, 1_000_000)]
)
def test_members_of_many_groups_that_are_gone_at_once_are_removed(
    groups: int, id_length: int, batch_bytes: int
) -> None:
    """As after a restart of everything: the sessions of all members of the shard begin when it is
    loaded, and end together."""

    async def test() -> None:
        desk = Desk()
        await desk.load()
        for number in range(groups):
            desk.beat(f"{number}".rjust(id_length, "g"))
        machine = await desk.load()
        desk.log.configure(settings(cleanup_policy="compact", max_message_bytes=batch_bytes))
        now = machine.next_deadline()
        while machine.list_groups(("Stable",), ()):
            desk.driver.run(partial(GroupShard.on_tick, now=now, now_ms=NOW))
            assert desk.driver.machine is machine, desk.lines
            assert desk.driver.state is State.ACTIVE, desk.lines
            now = max(now, machine.next_deadline())

    run(test)


async def all_tasks_done() -> None:
    """Waits for whatever the driver has started."""
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
