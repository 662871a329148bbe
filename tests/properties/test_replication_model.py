"""Random histories of three replicas, each step chosen: what is committed stays.

Real partitions with real logs in memory, and the real controller. Metadata, fetches, responses and
proposals are messages that arrive when a step says so, or never. This reaches orders of events that
the simulator's network finds seldom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.errors import ApiError, ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.metadata import Delta, Image
from headwater.model import OffsetAndEpoch, TopicPartition
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from headwater.replication.follower import FollowerState
from headwater.replication.leader import FetchClock, IsrProposal
from headwater.storage import Log, Origin
from tests.support.logs import NOW, batch
from tests.support.logs import settings as topic_settings
from tests.support.replicas import RecordedController, batches

TOPIC = "t"
NODES = (1, 2, 3)
STEPS_MAX = 250


class Node:
    def __init__(self, model: Model, node_id: int) -> None:
        self.model = model
        self.id = node_id
        self.life = 0
        self.disk = MemoryDisk()
        self.log: Log | None = None
        self.high_watermark = 0  # of the checkpoint
        self.begin()

    def begin(self) -> None:
        """A new life: registered, and nothing known of the metadata yet."""
        self.life += 1
        self.image, self.applied = Image(), 0
        self.partition: Partition | None = None
        self.clock = FetchClock()
        self.fetch: tuple[FollowerState, int, int, int, int] | None = None  # on its way
        self.answer: tuple[FollowerState, Any] | None = None
        self.proposals: list[IsrProposal] = []
        self.verdicts: list[tuple[IsrProposal, Any]] = []
        controller = self.model.controller
        request = controller.registration(self.id, life=self.life)
        self.epoch = controller.do(controller.machine.decide_register_broker(request, 0.0))
        controller.unfence(self.id)

    # Metadata

    def follow(self, count: int) -> None:
        records = self.model.controller.log[self.applied : self.applied + count]
        if not records:
            return
        for record in records:
            self.image.apply(record, Delta())
        self.applied += len(records)
        state = self.image.partition(TOPIC, 0)
        if state is None:
            return
        if self.partition is None:
            topic_id = self.image.topics[TOPIC].id
            tp = TopicPartition(TOPIC, 0)
            if self.log is None:
                self.log = Log.open(
                    self.disk,
                    "/d/t-0",
                    tp,
                    topic_id=topic_id,
                    config=topic_settings(min_insync_replicas=2),
                    now_ms=NOW,
                )
            workers: Any = None
            self.partition = Partition(tp, topic_id, self.log, workers, self.high_watermark)
            self.partition.on_proposal = lambda _, proposal: self.proposals.append(proposal)
        if state.leader == self.id:
            self.partition.become_leader(
                state,
                node_id=self.id,
                lag_seconds_max=10.0,
                active_epoch=self.active_epoch,
                now=self.model.now,
            )
        else:
            self.partition.become_follower(state)
        for broker in NODES:
            if self.active_epoch(broker) is not None:
                self.partition.try_to_join(broker)

    def active_epoch(self, broker: int) -> int | None:
        found = self.image.brokers.get(broker)
        return found.epoch if found is not None and found.is_active else None

    # Following

    def send_fetch(self) -> None:
        partition = self.partition
        if partition is None or partition.follower is None or partition.follower.leader_id < 0:
            return
        if self.fetch is not None and self.fetch[0] is partition.follower:
            return  # one request is in flight
        log = partition.log
        self.fetch = partition.follower, log.end, log.latest_epoch, log.start, self.epoch
        self.answer = None

    def serve(self, node: Node) -> None:
        """Answers the fetch of another node, if it was sent here."""
        fetch, partition = node.fetch, self.partition
        if fetch is None or fetch[0].leader_id != self.id or node.answer is not None:
            return
        state, offset, last_epoch, start, broker_epoch = fetch
        if partition is None:
            node.fetch = None
            return
        try:
            leader = partition.lead(state.epoch)
            leader.check_fetch(node.id, broker_epoch=broker_epoch, knows_epoch=True)
        except ApiError:
            node.fetch = None
            return
        log = partition.log
        if last_epoch >= 0:
            end = log.epoch_end(last_epoch)
            if end.epoch < last_epoch or end.offset < offset:
                node.answer = state, end
                return
        if not log.start <= offset <= log.end:
            node.answer = state, (log.start, log.end)
            return
        partition.on_follower_fetch(
            node.id,
            offset=offset,
            log_start=start,
            broker_epoch=broker_epoch,
            clock=node.clock,
            now=self.model.now,
        )
        read = log.read(offset, bytes_max=300, upto=log.end)
        data = b"" if read.slice is None else read.slice.read()
        node.answer = state, (data, leader.high_watermark, log.start)

    def take_answer(self) -> None:
        answer, self.answer, self.fetch = self.answer, None, None
        partition = self.partition
        if answer is None or partition is None or partition.follower is not answer[0]:
            return
        state, content = answer
        log = partition.log
        if isinstance(content, OffsetAndEpoch):
            cut = state.decide_divergence(content, log_end=log.end, own=log.epoch_end)
        elif len(content) == 2:
            decided = state.decide_out_of_range(
                log_end=log.end, leader_start=content[0], leader_end=content[1]
            )
            if decided is None:
                return
            cut = decided
        else:
            data, high_watermark, start = content
            partition.append_as_follower(
                data, high_watermark=high_watermark, leader_start=start, now_ms=NOW
            )
            return
        job = partition.begin_cut(cut)
        if job is not None:
            job.run()
            partition.cut_ended(job)

    # Leading

    def propose(self) -> None:
        """Lets the controller see the oldest proposal; its answer is on its way back."""
        if not self.proposals:
            return
        proposal = self.proposals.pop(0)
        controller = self.model.controller
        request = AlterPartitionRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            topics=[
                AlterPartitionRequestTopicData(
                    topic_id=controller.machine.image.topics[TOPIC].id,
                    partitions=[
                        AlterPartitionRequestPartitionData(
                            partition_index=0,
                            leader_epoch=proposal.leader_epoch,
                            new_isr_with_epochs=[
                                BrokerState(broker_id=broker, broker_epoch=epoch)
                                for broker, epoch in zip(
                                    proposal.isr, proposal.broker_epochs, strict=True
                                )
                            ],
                            partition_epoch=proposal.partition_epoch,
                        )
                    ],
                )
            ],
        )
        try:
            (topic,) = controller.do(controller.machine.decide_alter_partition(request))
            self.verdicts.append((proposal, topic.partitions[0]))
        except ApiError:
            self.proposals.append(proposal)

    def hear(self) -> None:
        if not self.verdicts or self.partition is None:
            return
        proposal, verdict = self.verdicts.pop(0)
        if not verdict.error_code:
            self.partition.on_altered(
                proposal,
                leader_epoch=verdict.leader_epoch,
                isr=tuple(verdict.isr),
                partition_epoch=verdict.partition_epoch,
            )
        elif verdict.error_code == ErrorCode.INELIGIBLE_REPLICA:
            self.partition.on_refused(proposal)

    @property
    def leads(self) -> bool:
        return self.partition is not None and self.partition.leader is not None

    def append(self) -> None:
        partition = self.partition
        assert partition is not None
        self.model.values += 1
        value = b"%d" % self.model.values
        try:
            appended = partition.append(
                batch(value), acks=ALL_IN_SYNC, now_ms=NOW, origin=Origin.COORDINATOR
            )
        except ApiError:
            return
        end = appended.last_offset + 1

        def done(failure: ApiError | None) -> None:
            if failure is None:
                self.model.acked[appended.base_offset] = value

        if partition.high_watermark >= end:
            done(None)
        else:
            partition.when_replicated(end, done)

    def crash(self, lost: int) -> None:
        """Loses some of the last records, if the others have them, and starts again."""
        partition = self.partition
        controller = self.model.controller
        if partition is not None:
            self.high_watermark = partition.high_watermark
            partition.close()
            log = partition.log
            if len(controller.partition(TOPIC).isr) == len(NODES) and lost:
                log.truncate_to(max(log.start, log.end - lost))
            self.high_watermark = min(self.high_watermark, log.end)
        controller.fence(self.id)
        self.begin()


class Model:
    def __init__(self) -> None:
        self.now = 0.0
        self.values = 0
        self.acked: dict[int, bytes] = {}
        self.committed: dict[int, bytes] = {}
        self.controller = RecordedController({})
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}
        made = self.controller.create(
            TOPIC,
            -1,
            -1,
            assignments=[(0, list(NODES))],
            configs={"min.insync.replicas": "2"},
        )
        assert not made.error_code
        for node in self.nodes.values():
            node.follow(1000)

    def step(self, choice: int) -> None:
        choice, node_id = divmod(choice, len(NODES))
        choice, other_id = divmod(choice, len(NODES))
        node, other = self.nodes[NODES[node_id]], self.nodes[NODES[other_id]]
        actions: list[tuple[int, Callable[[], None]]] = [
            (14, lambda: self.append(node)),
            (4, lambda: node.follow(1)),
            (4, lambda: node.follow(100)),
            (4, node.send_fetch),
            (6, lambda: node.serve(other)),
            (4, node.take_answer),
            (12, lambda: self.exchange(node)),
            (6, node.propose),
            (6, node.hear),
            (2, lambda: self.tick(node)),
            (8, self.calm),
            (1, lambda: self.controller.fence(node.id)),
            (4, lambda: self.controller.unfence(node.id)),
            (1, lambda: node.crash(0)),
            (1, lambda: node.crash(2)),
        ]
        choice %= sum(weight for weight, _ in actions)
        for weight, action in actions:
            if choice < weight:
                action()
                return
            choice -= weight

    def append(self, node: Node) -> None:
        """Appends at a node that believes that it leads, if possible at this one."""
        leads = [each for each in (node, *self.nodes.values()) if each.leads]
        if leads:
            leads[0].append()

    def calm(self) -> None:
        """Lets everything that is on its way arrive."""
        for node in self.nodes.values():
            node.follow(1000)
            self.exchange(node)
            node.propose()
            node.hear()

    def exchange(self, node: Node) -> None:
        """A whole round trip of one follower."""
        node.send_fetch()
        if node.fetch is not None and node.fetch[0].leader_id in self.nodes:
            self.nodes[node.fetch[0].leader_id].serve(node)
        node.take_answer()

    def tick(self, node: Node) -> None:
        self.now += 4.0
        if node.partition is not None:
            node.partition.shrink(self.now)

    def check(self) -> None:
        for node in self.nodes.values():
            if node.partition is None:
                continue
            end = node.partition.high_watermark
            assert end <= node.partition.log.end, f"{node.id} lacks committed records"
            for offset, data in batches(node.partition, end):
                known = self.committed.setdefault(offset, data)
                assert known == data, f"offset {offset} of {node.id} has changed"
        for offset, value in self.acked.items():
            assert offset in self.committed, f"{value!r} at {offset} is acknowledged and unknown"

    def settle(self) -> None:
        """Lets everything arrive; all replicas must have everything in the end."""
        for node_id in NODES:
            self.controller.unfence(node_id)
        for _ in range(60):
            self.calm()
            self.check()
        contents = []
        for node in self.nodes.values():
            assert node.partition is not None
            assert node.partition.high_watermark == node.partition.log.end
            contents.append(dict(batches(node.partition, node.partition.log.end)))
        assert contents[0] == contents[1] == contents[2]
        for offset in self.acked:
            assert contents[0][offset] == self.committed[offset], f"offset {offset} is lost"
        assert set(self.controller.partition(TOPIC).isr) == set(NODES)


def play(choices: list[int]) -> Model:
    async def main() -> Model:
        model = Model()
        for choice in choices:
            model.step(choice)
            model.check()
        model.settle()
        model.check()
        return model

    return asyncio.run(main())


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.integers(0, 9 * 77 - 1), min_size=20, max_size=STEPS_MAX))
def test_what_is_committed_stays(choices: list[int]) -> None:
    play(choices)
