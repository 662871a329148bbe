"""Looks into the logs and coordinators of a simulated cluster: what transactions must leave there.

- the last stable offset is never above the high watermark, nor above the start of a transaction
  that is open in what is committed;
- epochs of a producer never go back along a log;
- in the end no transaction is open, each replica's index has the aborted ones and no others, and
  what a coordinator has in memory is what its log makes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from headwater import _core
from headwater.broker.coordinators.driver import CoordinatorDriver, State
from headwater.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from headwater.broker.partition import Partition
from headwater.model import TopicPartition
from headwater.storage.producer_state import read_marker
from headwater.testing.sim.fleet import Fleet, Member
from headwater.testing.sim.fleet_watch import OFFSETS_TOPIC, FleetWatch
from headwater.testing.sim.violation import Violation

_TICK_SECONDS = 0.25
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class _Model:
    """The transactions of a partition, by its committed batches alone."""

    upto: int = 0
    open: dict[int, int] = field(default_factory=dict)  # first offsets, by producer
    aborted: set[tuple[int, int, int]] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)


class TransactionWatch:
    def __init__(self, fleet: Fleet, watch: FleetWatch) -> None:
        self._fleet = fleet
        self._watch = watch
        self.violation: Violation | None = None
        self._models: dict[TopicPartition, _Model] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._ticker = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while self.violation is None:
            try:
                self._look_at_all()
            except Violation as violation:
                self.violation = violation
            await asyncio.sleep(_TICK_SECONDS)

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise self._fleet.fail(what)

    def _partitions(self) -> list[tuple[Member, Partition]]:
        found = []
        for member in self._fleet.brokers:
            partitions = getattr(member.node, "_partitions", None)
            if member.is_serving and not member.broken and partitions is not None:
                found += [(member, each) for each in partitions.all()]
        return [(m, p) for m, p in found if p.tp not in self._watch.may_lose]

    def _look_at_all(self) -> None:
        partitions = self._partitions()
        for member, partition in partitions:
            model = self._models.setdefault(partition.tp, _Model())
            if partition.leader is not None:
                with member.machine.disk.without_faults():
                    self._read(partition, model, partition.high_watermark)
        for member, partition in partitions:
            self._look(member, partition)

    def _look(self, member: Member, partition: Partition) -> None:
        what = f"{partition.tp} on node {member.id}"
        high_watermark = partition.high_watermark
        model = self._models[partition.tp]
        stable = partition.last_stable_offset
        self._expect(
            stable <= high_watermark, f"{what}: last stable offset {stable} of {high_watermark}"
        )
        if high_watermark > model.upto:
            return  # what was open may have ended since
        first = min(model.open.values(), default=stable)
        self._expect(
            stable <= first,
            f"{what}: last stable offset {stable}, a transaction is open since {first}",
        )

    def _read(self, partition: Partition, model: _Model, upto: int) -> None:
        log = partition.log
        while model.upto < upto:
            found = log.read(model.upto, bytes_max=_READ_BYTES, upto=upto)
            if found.slice is None:
                return
            data = found.slice.read()
            batches = [b for b in _core.scan(data)[0] if b.base_offset >= model.upto]
            if not batches:
                return
            for batch in batches:
                model.upto = batch.last_offset + 1
                if batch.producer_id >= 0:
                    self._learn(partition.tp, model, batch, data)

    def _learn(self, tp: TopicPartition, model: _Model, batch: _core.Batch, data: bytes) -> None:
        producer, epoch = batch.producer_id, batch.producer_epoch
        before = model.epochs.get(producer, -1)
        self._expect(
            epoch >= before,
            f"{tp}: producer {producer} has epoch {epoch} at {batch.base_offset} after {before}",
        )
        model.epochs[producer] = epoch
        if not batch.is_control:
            if batch.is_transactional:
                model.open.setdefault(producer, batch.base_offset)
            return
        found = read_marker(data, batch.position)
        first = model.open.pop(producer, None)
        if found is not None and found[0].is_abort and first is not None:
            model.aborted.add((producer, first, batch.base_offset))

    # The end

    def check_all(self, *, excused: bool) -> None:
        """Checks what holds when nothing happens any more."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self.violation is not None:
            raise self.violation
        self._look_at_all()
        if excused:
            return
        for member, partition in self._partitions():
            model = self._models[partition.tp]
            if partition.tp.topic not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
                self._expect(
                    not model.open, f"{partition.tp}: transactions hang since {model.open}"
                )
            with member.machine.disk.without_faults():
                self._check_index(member, partition, model)
        for member in self._fleet.brokers:
            node: Any = member.node
            if member.is_serving:
                for coordinator in (node._transactions, node._groups):
                    for driver in coordinator.shards.drivers.values():
                        self._check_replay(member, driver)

    def _check_index(self, member: Member, partition: Partition, model: _Model) -> None:
        log = partition.log
        if model.upto != log.end:
            return  # it is still written to, or read by a follower
        index = {tuple(entry[:3]) for entry in log.aborted(0, log.end)}
        self._expect(
            index == model.aborted,
            f"{partition.tp} on node {member.id}: the index of aborted transactions has "
            f"{sorted(index ^ model.aborted)[:3]} too many or too few",
        )
        if index:
            self._fleet.world.happened("index of aborted transactions compared")

    def _check_replay(self, member: Member, driver: CoordinatorDriver[Any]) -> None:
        if driver.state is not State.ACTIVE:
            return
        log = driver._partition.log
        machine = driver._make()
        offset = log.start
        with member.machine.disk.without_faults():
            while offset < log.end:
                found = log.read(offset, bytes_max=_READ_BYTES, upto=log.end)
                if found.slice is None:
                    return
                data = found.slice.read()
                batches = _core.scan(data)[0]
                driver._replay(machine, data, batches, offset)
                offset = batches[-1].last_offset + 1
        self._expect(
            machine.durable_state() == driver.machine.durable_state(),
            f"{driver._partition.tp} on node {member.id}: memory is not what the log makes",
        )
        self._fleet.world.happened("coordinator replayed")
