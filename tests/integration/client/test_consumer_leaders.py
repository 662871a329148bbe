"""Responses to fetches that are rare in practice, from a broker that the tests control."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from headwater import (
    ClientError,
    Consumer,
    GroupForbidden,
    InvalidRecord,
    LogTruncated,
    RequestTimedOut,
    TopicForbidden,
    TopicPartition,
    _core,
)
from headwater.client.consumer import ConsumedRecord
from headwater.errors import ErrorCode
from headwater.model import NO_EPOCH, ZERO_ID
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsResponse
from headwater.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headwater.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headwater.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.support.fake_broker import FakeBroker, one_topic, story

ID = bytes(15) + b"\x01"
TP = TopicPartition("t", 0)
QUICK: Any = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 1,
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 20,
}


class Leader(FakeBroker):
    """A broker with a log of one partition, and sessions as they should be."""

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.topics = [one_topic("t")]
        self.log: list[bytes] = []  # batches of one record
        self.epochs: list[int] = []
        self.fetches: list[FetchRequest] = []
        self.sessions = 0
        self.known: dict[int, tuple[int, int]] = {}  # offset and leader epoch of each session
        self.refuse: Callable[[int], PartitionData | None] = lambda _offset: None
        self.fault = 0  # a code for the request as a whole, once
        self.extra: dict[str, Any] = {}  # fields of the next answers
        self.endpoints: list[NodeEndpoint] = []
        self.answers[ApiKey.FETCH] = self.fetch
        self.answers[ApiKey.LIST_OFFSETS] = self.list_offsets
        self.answers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self.epoch_end

    def write(self, value: bytes, *, epoch: int = 0, **options: Any) -> None:
        record = (options.pop("key", None), value, (), 1)
        batch = _core.encode([record], base_offset=len(self.log), leader_epoch=epoch, **options)
        self.log.append(batch)
        self.epochs.append(epoch)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        self.fetches.append(request)
        if self.fault:
            code, self.fault = self.fault, 0
            return FetchResponse(error_code=code)
        session = request.session_id
        if request.session_epoch == 0:
            self.sessions += 1
            session = self.sessions
        elif request.session_epoch == -1:
            session = 0
        for topic in request.topics:
            for each in topic.partitions:
                self.known[session] = (each.fetch_offset, each.current_leader_epoch)
        if request.forgotten_topics_data:
            self.known.pop(session, None)
        if session not in self.known:
            return FetchResponse(session_id=session)
        offset, epoch = self.known[session]
        data = self.refuse(offset)
        if NO_EPOCH < epoch < self.topics[0].partitions[0].leader_epoch and data is None:
            data = PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH)
        if data is None:
            data = PartitionData(
                high_watermark=len(self.log),
                last_stable_offset=len(self.log),
                log_start_offset=0,
                records=b"".join(self.log[offset:]),
                **self.extra,
            )
        if not data.records and not data.error_code and data.preferred_read_replica < 0:
            await asyncio.sleep(request.max_wait_ms / 1000)
        topic_answer = FetchableTopicResponse(topic="t", topic_id=ID, partitions=[data])
        return FetchResponse(
            session_id=session, responses=[topic_answer], node_endpoints=self.endpoints
        )

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (asked,) = request.topics[0].partitions
        offset = 0 if asked.timestamp == -2 else len(self.log)
        found = ListOffsetsPartitionResponse(offset=offset, leader_epoch=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def epoch_end(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        (asked,) = request.topics[0].partitions
        older = [n for n, epoch in enumerate(self.epochs) if epoch <= asked.leader_epoch]
        found = EpochEndOffset(
            leader_epoch=self.epochs[older[-1]] if older else -1,
            end_offset=older[-1] + 1 if older else -1,
        )
        result = OffsetForLeaderTopicResult(topic="t", partitions=[found])
        return OffsetForLeaderEpochResponse(topics=[result])


async def taken(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    while len(records) < count:
        records += await consumer.poll(10_000)
    return records


async def values(consumer: Consumer, count: int) -> list[bytes]:
    return [record.value for record in await taken(consumer, count)]


# Sessions


@story
async def test_a_session_carries_only_changes() -> None:
    async with Leader() as broker:
        broker.write(b"a")
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 1) == [b"a"]
            await broker.until(lambda: len(broker.fetches) >= 4)
            broker.write(b"b")
            assert await values(consumer, 1) == [b"b"]
        first, second, third, *_ = broker.fetches
        assert (first.session_id, first.session_epoch) == (0, 0)
        assert first.topics[0].topic_id == ID
        assert (second.session_id, second.session_epoch) == (1, 1)
        assert second.topics[0].partitions[0].fetch_offset == 1
        assert (third.session_epoch, third.topics) == (2, [])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
@story
async def test_a_lost_session_is_started_again(code: ErrorCode) -> None:
    async with Leader() as broker:
        broker.write(b"a")
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 1) == [b"a"]
            broker.fault = code
            await broker.until(lambda: not broker.fault)
            broker.write(b"b")
            assert await values(consumer, 1) == [b"b"]
            assert broker.sessions == 2


@story
async def test_a_connection_that_is_cut_in_a_fetch_loses_and_repeats_nothing() -> None:
    async with Leader() as broker, Consumer(broker.bootstrap, **QUICK) as consumer:
        consumer.assign([TP])
        seen = []
        for number in range(5):
            broker.write(b"%d" % number)
            broker.hang_up()
            seen += await values(consumer, 1)
        assert seen == [b"0", b"1", b"2", b"3", b"4"]


# Brokers of all ages


@story
async def test_a_topic_without_an_id_is_fetched_by_name() -> None:
    async with Leader() as broker:
        broker.topics = [one_topic("t", topic_id=ZERO_ID)]
        broker.write(b"a")
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 1) == [b"a"]
        assert (ApiKey.FETCH, 12) in broker.versions_asked
        assert broker.fetches[0].topics[0].topic == "t"


@pytest.mark.parametrize("newest", [4, 6, 7, 11])
@story
async def test_older_brokers_get_requests_in_their_versions(newest: int) -> None:
    async with Leader() as broker:
        answer = broker.versions()
        for each in answer.api_keys:
            if each.api_key == ApiKey.FETCH:
                each.min_version, each.max_version = 4, newest

        def versions(_request: Any) -> ApiVersionsResponse:
            return answer

        broker.answers[ApiKey.API_VERSIONS] = versions
        for number in range(3):
            broker.write(b"%d" % number)
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 3) == [b"0", b"1", b"2"]
        assert (ApiKey.FETCH, newest) in broker.versions_asked


# Leaders


def moved(code: ErrorCode, **more: Any) -> Callable[[int], PartitionData]:
    return lambda _offset: PartitionData(error_code=code, **more)


@pytest.mark.parametrize("hinted", [True, False])
@story
async def test_a_new_leader_is_found(hinted: bool) -> None:
    async with Leader(1) as old, Leader(2) as new:
        for broker in (old, new):
            broker.write(b"a")
        old.neighbours = [new]
        async with Consumer(old.bootstrap, metadata_max_age_ms=60_000, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 1) == [b"a"]
            new.write(b"b")
            if hinted:
                hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
                old.endpoints = [NodeEndpoint(node_id=2, host="127.0.0.1", port=new.address.port)]
                old.refuse = moved(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
                before = old.count(ApiKey.METADATA)
            else:
                old.topics = [one_topic("t", leader=2, epoch=1)]
                old.refuse = moved(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert await values(consumer, 1) == [b"b"]
            if hinted:
                assert old.count(ApiKey.METADATA) == before  # KIP-951: nobody was asked
            assert new.fetches[0].topics[0].partitions[0].current_leader_epoch == 1


@story
async def test_a_position_is_validated_with_a_new_leader() -> None:
    async with Leader() as broker:
        for number in range(3):
            broker.write(b"%d" % number)
        async with Consumer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as consumer:
            consumer.assign([TP])
            await values(consumer, 3)
            broker.topics = [one_topic("t", epoch=1)]
            broker.write(b"3", epoch=1)
            await broker.until(lambda: broker.count(ApiKey.OFFSET_FOR_LEADER_EPOCH) > 0)
            assert await values(consumer, 1) == [b"3"]


@pytest.mark.parametrize("policy", ["earliest", "none"])
@story
async def test_a_log_that_was_truncated_below_the_position_is_detected(policy: str) -> None:
    async with Leader() as broker:
        for number in range(5):
            broker.write(b"old %d" % number)
        settings = QUICK | {"auto_offset_reset": policy, "metadata_max_age_ms": 20}
        async with Consumer(broker.bootstrap, **settings) as consumer:
            consumer.assign([TP])
            consumer.seek(TP, 0)
            await values(consumer, 5)
            # The new leader had only two of them.
            del broker.log[2:], broker.epochs[2:]
            for number in range(2, 6):
                broker.write(b"new %d" % number, epoch=1)
            broker.topics = [one_topic("t", epoch=1)]
            if policy == "none":
                with pytest.raises(LogTruncated, match=r"t-0.*position 5.*offset 2 on") as raised:
                    await values(consumer, 1)
                error = raised.value
                assert (error.topic, error.partition, error.offset) == ("t", 0, 5)
                assert error.divergent_offset == 2
                consumer.seek(TP, error.divergent_offset)
            assert await values(consumer, 4) == [b"new %d" % n for n in range(2, 6)]


@story
async def test_records_taken_back_during_a_validation_are_read_again() -> None:
    async with Leader() as broker:
        for number in range(5):
            broker.write(b"%d" % number)
        async with Consumer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as consumer:
            consumer.assign([TP])
            records = aiter(consumer)
            assert (await anext(records)).offset == 0
            may_answer = asyncio.Event()

            async def late(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
                await may_answer.wait()
                return broker.epoch_end(request)

            broker.answers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = late
            broker.write(b"5", epoch=1)
            broker.topics = [one_topic("t", epoch=1)]
            await broker.until(lambda: broker.count(ApiKey.OFFSET_FOR_LEADER_EPOCH) > 0)
            consumer.pause(TP)
            may_answer.set()
            consumer.resume(TP)
            assert await values(consumer, 5) == [b"%d" % number for number in range(1, 6)]


@story
async def test_offsets_are_looked_up_no_longer_than_the_caller_waits() -> None:
    async with Leader() as broker:
        broker.write(b"0")
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            await consumer.partitions_for("t")
            broker.answers[ApiKey.API_VERSIONS] = lambda _: None  # new connections get no response
            broker.hang_up()
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(RequestTimedOut, match="t-0"):
                await consumer.end_offsets(TP, timeout_ms=200)
            assert loop.time() - began < 5


@story
async def test_records_fetched_before_the_log_was_truncated_are_returned() -> None:
    async with Leader() as broker:
        for number in range(3):
            broker.write(b"%d" % number)
        async with Consumer(
            broker.bootstrap, **QUICK | {"auto_offset_reset": "latest"}
        ) as consumer:
            consumer.assign([TP])
            consumer.seek(TP, 0)
            gone = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            refused = []

            def refuse(offset: int) -> PartitionData | None:
                if offset != 3:
                    return None
                refused.append(offset)
                return gone

            broker.refuse = refuse
            await broker.until(lambda: bool(refused))
            for number in range(3, 6):
                broker.write(b"%d" % number)
            assert await values(consumer, 3) == [b"0", b"1", b"2"]
            await broker.until(lambda: broker.count(ApiKey.LIST_OFFSETS) > 0)
            assert await consumer.position(TP) == 6


@story
async def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    async with Leader() as broker:
        broker.topics = [one_topic("t", epoch=7)]
        for _ in range(5):
            broker.write(b"old")
        async with Consumer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as consumer:
            consumer.assign([TP])
            await values(consumer, 5)
            broker.log.clear()
            broker.write(b"new")

            def refuse(offset: int) -> PartitionData | None:
                if offset <= len(broker.log):
                    return None
                return PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)

            broker.refuse = refuse
            other = bytes(15) + b"\x02"
            broker.topics = [one_topic("t", topic_id=other)]
            real = broker.fetch

            async def with_id(request: FetchRequest) -> FetchResponse:
                answer = await real(request)
                for topic in answer.responses:
                    topic.topic_id = other
                return answer

            broker.answers[ApiKey.FETCH] = with_id
            assert await values(consumer, 1) == [b"new"]


@story
async def test_the_replica_that_the_leader_prefers_is_read() -> None:
    async with Leader(1) as leader, Leader(2) as follower:
        leader.neighbours = [follower]
        for broker in (leader, follower):
            broker.write(b"%d" % broker.node_id)
            broker.write(b"%d" % broker.node_id)
        leader.refuse = lambda _offset: PartitionData(preferred_read_replica=2)
        async with Consumer(leader.bootstrap, client_rack="here", **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 2) == [b"2", b"2"]
            assert leader.fetches[0].rack_id == "here"
            # What the follower does not have yet is asked of the leader again.
            for broker in (leader, follower):
                broker.refuse = lambda _offset: None
            follower.refuse = moved(ErrorCode.OFFSET_OUT_OF_RANGE)
            leader.write(b"1")
            assert await values(consumer, 1) == [b"1"]
            assert await consumer.position(TP) == 3


# Refusals


@story
async def test_a_forbidden_topic_is_an_error_of_poll() -> None:
    async with Leader() as broker:
        broker.refuse = moved(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            consumer.assign([TP])
            with pytest.raises(TopicForbidden, match="t-0"):
                await consumer.poll(10_000)
            broker.refuse = lambda _offset: None
            broker.write(b"a")
            while True:
                try:
                    assert await values(consumer, 1) == [b"a"]
                    break
                except TopicForbidden:
                    continue  # it was refused more than once meanwhile


@story
async def test_corrupt_bytes_are_an_error_and_can_be_skipped() -> None:
    async with Leader() as broker:
        for value in (b"a", b"b", b"c"):
            broker.write(value)
        bad = bytearray(broker.log[1])
        bad[-2] ^= 1
        broker.log[1] = bytes(bad)
        async with Consumer(broker.bootstrap, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, 1) == [b"a"]
            for _ in range(2):
                with pytest.raises(InvalidRecord, match=r"t-0.*offset 1.*crc"):
                    await consumer.poll(10_000)
            consumer.seek(TP, 2)
            assert await values(consumer, 1) == [b"c"]


# Transactions


def marker(broker: Leader, producer_id: int, kind: int) -> None:
    key = struct.pack(">hh", 0, kind)
    broker.write(bytes(6), key=key, producer_id=producer_id, transactional=True, control=True)


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [b"plain", b"kept"]), ("read_uncommitted", [b"gone", b"plain", b"kept"])],
)
@story
async def test_aborted_transactions_are_left_out(isolation: Any, expected: list[bytes]) -> None:
    async with Leader() as broker:
        broker.write(b"gone", producer_id=1, transactional=True)
        broker.write(b"plain")
        broker.write(b"kept", producer_id=2, transactional=True)
        marker(broker, 1, kind=0)
        marker(broker, 2, kind=1)
        aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
        broker.extra = {"aborted_transactions": aborted}
        async with Consumer(broker.bootstrap, isolation_level=isolation, **QUICK) as consumer:
            consumer.assign([TP])
            assert await values(consumer, len(expected)) == expected
            assert await consumer.poll(0) == []
            assert await consumer.position(TP) == 5
        assert broker.fetches[0].isolation_level == int(isolation == "read_committed")


# Offsets


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
@story
async def test_a_commit_is_retried_until_the_coordinator_accepts_it(code: ErrorCode) -> None:
    async with Leader() as broker:
        codes = [code, code, 0]
        stored: list[int] = []

        def coordinator(_request: Any) -> FindCoordinatorResponse:
            found = Coordinator(
                key="g", node_id=1, host=broker.address.host, port=broker.address.port
            )
            return FindCoordinatorResponse(coordinators=[found])

        def commit(request: OffsetCommitRequest) -> OffsetCommitResponse:
            (topic,) = request.topics
            (partition,) = topic.partitions
            stored.append(partition.committed_offset)
            answer = OffsetCommitResponsePartition(partition_index=0, error_code=codes.pop(0))
            return OffsetCommitResponse(
                topics=[OffsetCommitResponseTopic(name="t", topic_id=ID, partitions=[answer])]
            )

        broker.answers[ApiKey.FIND_COORDINATOR] = coordinator
        broker.answers[ApiKey.OFFSET_COMMIT] = commit
        async with Consumer(
            broker.bootstrap, group="g", enable_auto_commit=False, **QUICK
        ) as consumer:
            await consumer.commit({TP: 5})
        assert stored == [5, 5, 5]
        assert codes == []


@story
async def test_a_permanent_error_of_a_commit_names_the_offset() -> None:
    async with Leader() as broker:

        def coordinator(_request: Any) -> FindCoordinatorResponse:
            found = Coordinator(
                key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, node_id=-1
            )
            return FindCoordinatorResponse(coordinators=[found])

        broker.answers[ApiKey.FIND_COORDINATOR] = coordinator
        async with Consumer(
            broker.bootstrap, group="g", enable_auto_commit=False, **QUICK
        ) as consumer:
            with pytest.raises(GroupForbidden, match="group g"):
                await consumer.commit({TP: 5})
            with pytest.raises(ClientError, match="offset -1"):
                await consumer.commit({TP: -1})
