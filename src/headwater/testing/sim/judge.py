"""The judge of a history: what must hold whatever happens.

For each partition it keeps what is known to be at each offset in the log as it is now, what was
acknowledged, and what of that had to be durable. All records have values of their own, so a value
tells which send it came from. The rules, in the words of Jepsen's Kafka workload where it has one:

- an offset has one value as long as the log's end does not fall below it (inconsistent offsets);
- a value is at one offset (duplicate), and only if its send was not refused (aborted read);
- what was acknowledged is there (lost write); after a power cut, what was acknowledged after an
  fsync is there, and of the rest a prefix;
- what was acknowledged before a fetch was sent is below the high watermark it answers;
- offsets have no holes, batches have a good checksum;
- of a compacted log a record is missing only if its key has a later one, or was deleted by it or a
  later one, and none that has gone comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from headwater.model import TopicPartition
from headwater.testing.sim.violation import Violation
from headwater.testing.sim.world import World


class Outcome(Enum):
    PENDING = "pending"  # sent, or about to be sent again: it may be in the log or not
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # every attempt was answered with a refusal
    UNKNOWN = "unknown"  # given up; it may be in the log or not


@dataclass(slots=True)
class Sent:
    """One batch of one producer, over all its attempts."""

    values: tuple[bytes, ...]
    durable: bool  # whether its acknowledgement means that it was synced
    keys: tuple[bytes | None, ...] = ()  # those of a compacted topic
    marks: frozenset[bytes] = frozenset()  # which of the values stand for deletions
    outcome: Outcome = Outcome.PENDING
    base: int = -1


@dataclass(slots=True, eq=False)
class PartitionModel:
    """The judge's knowledge of one partition's log."""

    tp: TopicPartition
    topic_id: bytes
    trims: bool  # whether retention may move its start
    compacts: bool = False
    known: dict[int, bytes] = field(default_factory=dict)
    durable: set[int] = field(default_factory=set)
    place: dict[bytes, int] = field(default_factory=dict)  # the inverse of `known`
    sends: dict[bytes, Sent] = field(default_factory=dict)  # by each of its values
    lost: set[bytes] = field(default_factory=set)
    acknowledged_end: int = 0
    start: int = 0  # the highest start that was seen
    start_max: int = 0  # how far somebody asked for deletion
    loss_allowed: bool = False  # the power was cut since the log was last looked at
    gone: set[bytes] = field(default_factory=set)  # by compaction
    deletions: dict[bytes, int] = field(default_factory=dict)  # the last one of each key


class Judge:
    def __init__(self, world: World) -> None:
        self._world = world
        self.partitions: dict[TopicPartition, PartitionModel] = {}
        self.judged = 0

    def fail(self, what: str) -> Violation:
        return Violation(what, self._world.seed, list(self._world.events))

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.fail(what)

    # Writes

    def sending(
        self,
        partition: PartitionModel,
        values: tuple[bytes, ...],
        *,
        durable: bool,
        keys: tuple[bytes | None, ...] = (),
        marks: frozenset[bytes] = frozenset(),
    ) -> Sent:
        sent = Sent(values, durable, keys, marks)
        for value in values:
            partition.sends[value] = sent
        return sent

    def acknowledged(self, partition: PartitionModel, sent: Sent, base: int) -> None:
        """The node says that the batch is in the log at `base`."""
        self._expect(base >= 0, f"{partition.tp}: acknowledged at offset {base}")
        sent.outcome = Outcome.ACKNOWLEDGED
        sent.base = base
        for place, value in enumerate(sent.values):
            self._learn(partition, base + place, value, "acknowledged")
            if sent.durable:
                partition.durable.add(base + place)
        partition.acknowledged_end = max(partition.acknowledged_end, base + len(sent.values))

    def _learn(self, partition: PartitionModel, offset: int, value: bytes, how: str) -> None:
        known = partition.known.get(offset)
        if known is not None and known != value:
            raise self.fail(
                f"{partition.tp}: offset {offset} was {_short(known)}, now {how} as {_short(value)}"
            )
        place = partition.place.get(value)
        if place is not None and place != offset:
            raise self.fail(
                f"{partition.tp}: {_short(value)} is at {place} and, {how}, at {offset}"
            )
        partition.known[offset] = value
        partition.place[value] = offset
        sent = partition.sends[value]
        if value in sent.marks:
            key = _key(sent, value)
            partition.deletions[key] = max(offset, partition.deletions.get(key, -1))

    # Reads

    def read(
        self,
        partition: PartitionModel,
        records: Iterable[tuple[int, bytes | None]],
        *,
        from_offset: int,
        high_watermark: int,
        acknowledged_end: int,
    ) -> int:
        """Judges an answer to a fetch; the offset after its last record."""
        tp = partition.tp
        self.judged += 1
        self._expect(
            high_watermark >= acknowledged_end,
            f"{tp}: high watermark {high_watermark}, acknowledged up to {acknowledged_end}",
        )
        offset = from_offset
        for at, value in records:
            in_order = at >= offset if partition.compacts else at == offset
            self._expect(in_order, f"{tp}: offset {at} where {offset} was due")
            self._expect(at < high_watermark, f"{tp}: {at} read past {high_watermark}")
            assert value is not None
            self._check_sent(partition, at, value)
            self._learn(partition, at, value, "read")
            offset = at + 1
        return offset

    def _check_sent(self, partition: PartitionModel, offset: int, value: bytes) -> None:
        sent = partition.sends.get(value)
        if sent is None:
            raise self.fail(f"{partition.tp}: {_short(value)} at {offset} was never sent")
        if sent.outcome is Outcome.REFUSED:
            raise self.fail(f"{partition.tp}: {_short(value)} at {offset} was refused")
        if value in partition.lost:
            raise self.fail(f"{partition.tp}: {_short(value)} at {offset} was lost and is back")
        if value in partition.gone:
            raise self.fail(f"{partition.tp}: {_short(value)} at {offset} had gone and is back")

    def log_start(self, partition: PartitionModel, start: int) -> None:
        """The start of the log moves only if somebody asked for it."""
        if not partition.trims:
            self._expect(
                start <= partition.start_max,
                f"{partition.tp}: log starts at {start}, deletion was asked to "
                f"{partition.start_max}",
            )
        partition.start = max(partition.start, start)

    # Crashes

    def power_cut(self) -> None:
        for partition in self.partitions.values():
            partition.loss_allowed = True

    def recovered(
        self, partition: PartitionModel, start: int, end: int, records: dict[int, bytes]
    ) -> None:
        """The whole log as it was found after a start, before anybody wrote to it."""
        tp = partition.tp
        self.log_start(partition, start)
        for offset, value in records.items():
            self._check_sent(partition, offset, value)
        if partition.compacts:
            self._compacted(partition, start, end, records)
        for offset in sorted(partition.known):
            value = partition.known[offset]
            if offset < start:
                continue
            if offset < end:
                found = records.get(offset)
                if found is None and value in partition.gone:
                    continue
                if found != value:
                    raise self.fail(
                        f"{tp}: offset {offset} was {_short(value)}, after the start it is "
                        f"{_short(found)}"
                    )
            else:
                self._lose(partition, offset, value, end)
        partition.known = dict(records)
        partition.place = {value: offset for offset, value in records.items()}
        self._expect(len(partition.place) == len(partition.known), f"{tp}: a record is there twice")
        partition.durable = {offset for offset in partition.durable if offset < end}
        partition.acknowledged_end = min(partition.acknowledged_end, end)
        partition.loss_allowed = False

    def _compacted(
        self, partition: PartitionModel, start: int, end: int, records: dict[int, bytes]
    ) -> None:
        """Checks that records missing in a compacted log were superseded or deleted."""
        partition.deletions = {
            key: offset for key, offset in partition.deletions.items() if offset < end
        }
        newest: dict[bytes, int] = {}
        for offset, value in records.items():
            newest[_key(partition.sends[value], value)] = offset
        last = {
            key: max(partition.deletions.get(key, -1), newest.get(key, -1))
            for key in (*partition.deletions, *newest)
        }
        for key, offset in partition.deletions.items():
            older = newest.get(key, offset)
            self._expect(
                older >= offset or offset in records or offset < start,
                f"{partition.tp}: the deletion of {key.decode()} at {offset} is gone, {older} not",
            )
        for offset, value in partition.known.items():
            if not start <= offset < end or offset in records:
                continue
            sent = partition.sends[value]
            key = _key(sent, value)
            is_last = last.get(key, -1) <= offset
            if is_last and value not in sent.marks:
                raise self.fail(
                    f"{partition.tp}: {_short(value)} at {offset} is gone though it is the last "
                    f"of {key.decode()}"
                )
            partition.gone.add(value)
            self._world.happened("deletion mark gone" if is_last else "record compacted")

    def _lose(self, partition: PartitionModel, offset: int, value: bytes, end: int) -> None:
        what = f"{partition.tp}: {_short(value)} at {offset} is lost, the log ends at {end}"
        self._expect(partition.loss_allowed, what + " though the power was not cut")
        self._expect(offset not in partition.durable, what + " though it was synced")
        self._world.happened("unsynced tail lost")
        sent = partition.sends[value]
        if sent.outcome is Outcome.ACKNOWLEDGED:
            # A batch that may still be sent again may come back; this one may not.
            partition.lost.add(value)


def _key(sent: Sent, value: bytes) -> bytes:
    key = sent.keys[sent.values.index(value)]
    assert key is not None
    return key


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else value[:24].decode("latin-1")
