"""The state of a log's idempotent and transactional producers, in memory and in snapshots.

The last five batches of each producer are remembered, because a producer has at most five requests
in flight: any of them may arrive twice and is then answered with its first offsets. Open
transactions hold back what readers of committed data may see. The state is a function of the log:
a snapshot and the batches after it restore it. There are two exceptions. Verifications are only in
memory: a transaction begins in a log when its coordinator knows that it does. And a snapshot, which
is Kafka's, has only the last batch of each producer: the log is read for those before it once one
of them may have come again (`has_forgotten`, `recall`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.io import Disk, File
from headwater.model import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TopicPartition
from headwater.storage import names
from headwater.storage.segment import Scan, Segment, segment_at, whole_size
from headwater.storage.txn_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from typing_extensions import Buffer


_RETAINED_BATCHES = 5
_SEQUENCE_MAX = 2**31 - 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_NONE = -1
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_MARKER_VERSION = 0
_STRICT_SINCE = 2  # the transaction version in which each transaction has its own epoch
_EPOCH_MAX = 2**15 - 1  # with it Kafka's coordinator may have begun a transaction


class SnapshotCorrupt(ValueError):
    """A producer snapshot that is damaged."""


class SentBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Marker(NamedTuple):
    """The end of a transaction, from its control record."""

    is_abort: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_abort: bool


class Verification:
    """A transaction that is about to begin in this log, while its coordinator is asked (KIP-890).

    The object is the guard of the append that waits for the answer: a marker or another append
    takes it away, so that an answer about an earlier transaction lets nobody write into a later
    one.
    """

    __slots__ = ("bumps_epoch", "epoch", "lowest_sequence", "since_ms")

    def __init__(self, *, epoch: int, sequence: int, bumps_epoch: bool, since_ms: int) -> None:
        self.epoch = epoch
        # No append may overtake a lower sequence that failed and will be tried again.
        self.lowest_sequence = sequence
        self.bumps_epoch = bumps_epoch  # each transaction of this producer has its own epoch
        self.since_ms = since_ms

    def widen(self, *, epoch: int, sequence: int) -> None:
        """Takes another batch that waits for the same answer."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


# The guard of an append that needs no verification, as where it is switched off.
UNGUARDED = Verification(epoch=_NONE, sequence=_NONE, bumps_epoch=False, since_ms=NO_TIMESTAMP)


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_partial",
        "last_timestamp",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.is_partial = False  # from a snapshot: batches before the first one are not known
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[SentBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset = _NONE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_entries", "_ongoing", "_tp", "_unreplicated", "_verifying")

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, in order of offsets
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        self._verifying: dict[int, Verification] = {}  # by producer id

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def active(self) -> list[ProducerEntry]:
        return list(self._entries.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the oldest transaction that is open or whose end is not replicated."""
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        ended = min(self._unreplicated)
        return ended if ongoing is None else min(ended, ongoing)

    def has_open_transaction(self, producer_id: int) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.txn_first_offset != _NONE

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, bumps_epoch: bool, now_ms: int
    ) -> Verification | None:
        """Returns the guard for a transactional batch that waits for the answer of its coordinator;
        None if its transaction is open in this log already."""
        entry = self._entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise self._epoch_error(entry, epoch)
            if entry.txn_first_offset != _NONE and epoch == entry.epoch:
                return None
        guard = self._verifying.get(producer_id)
        if guard is None:
            guard = self._verifying[producer_id] = Verification(
                epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch, since_ms=now_ms
            )
        else:
            guard.widen(epoch=epoch, sequence=sequence)
        return guard

    def check_verified(self, producer_id: int, epoch: int, guard: Verification | None) -> None:
        """Refuses a transactional batch unless its transaction is open in this log, or `guard` says
        that its coordinator knows of it and nothing has ended it since."""
        entry = self._entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise self._epoch_error(entry, epoch)
            if entry.txn_first_offset != _NONE and epoch == entry.epoch:
                return
        if guard is UNGUARDED:
            return
        if guard is None or self._verifying.get(producer_id) is not guard:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._tp}: producer {producer_id} has no transaction here that its coordinator "
                "knows to be open",
            )

    def find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> SentBatch | None:
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def has_forgotten(self, producer_id: int, epoch: int) -> bool:
        """Returns whether the log may have one of the producer's last batches that is not known
        here."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.is_partial
            and entry.epoch == epoch
            and len(entry.batches) < _RETAINED_BATCHES
        )

    def recall(self, found: Iterable[_core.Batch]) -> None:
        """Takes the batches at the end of the log, in their order, for those that the snapshot does
        not have. What is not among them stays forgotten."""
        before: dict[int, list[SentBatch]] = {}
        for batch in found:
            entry = self._entries.get(batch.producer_id)
            if entry is None or not entry.is_partial or batch.is_control:
                continue
            known = entry.batches
            if batch.producer_epoch != entry.epoch or not known:
                continue
            if batch.base_offset < known[0].first_offset:
                before.setdefault(batch.producer_id, []).append(_sent(batch))
        for producer_id, batches in before.items():
            entry = self._entries[producer_id]
            entry.batches = [*batches, *entry.batches][-_RETAINED_BATCHES:]
        for entry in self:
            entry.is_partial = False

    def check(self, batch: _core.Batch, *, sequenced: bool) -> None:
        """Refuses a data batch that its producer may not append now."""
        entry = self._entries.get(batch.producer_id)
        if self._verifying and sequenced:
            self._check_first_sequence(batch, entry)
        if entry is None:
            return
        epoch = batch.producer_epoch
        if epoch < entry.epoch:
            raise self._epoch_error(entry, epoch)
        if sequenced:
            first = batch.base_sequence
            if epoch != entry.epoch:
                if first != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                    raise ApiError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"{self._tp}: producer {entry.producer_id} begins epoch {epoch} with "
                        f"sequence {first}, expected 0 (its last epoch was {entry.epoch})",
                    )
            else:
                last = entry.last_sequence
                if first != last + 1 and not (first == 0 and last == _SEQUENCE_MAX):
                    raise ApiError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"{self._tp}: producer {entry.producer_id} sent sequence {first} after "
                        f"{last}; the sequences in between are missing",
                    )
        if entry.txn_first_offset != _NONE and not batch.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._tp}: producer {entry.producer_id} has an open transaction and sent a "
                "batch outside of it",
            )

    def _check_first_sequence(self, batch: _core.Batch, entry: ProducerEntry | None) -> None:
        """Refuses a batch that would begin a transaction before one that has a lower sequence."""
        guard = self._verifying.get(batch.producer_id)
        if guard is None or (entry is not None and batch.producer_epoch < entry.epoch):
            return
        first, lowest = batch.base_sequence, guard.lowest_sequence
        if guard.bumps_epoch and (entry is None or not entry.batches):
            lowest = 0  # each transaction has a new epoch, whose sequence begins here
        if first > lowest:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self._tp}: producer {batch.producer_id} begins a transaction with sequence "
                f"{first}, expected {lowest}",
            )

    def check_marker(
        self, producer_id: int, epoch: int, marker: Marker, *, transaction_version: int
    ) -> None:
        """Refuses the end of a transaction from a fenced producer or coordinator.

        With version 2 each transaction ends in a later epoch than its records (KIP-1228): a marker
        of the same epoch is an old one that came late, unless there is nothing that it could end.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch or (
            transaction_version >= _STRICT_SINCE
            and epoch == entry.epoch != _EPOCH_MAX
            and entry.txn_first_offset != _NONE
        ):
            raise self._epoch_error(entry, epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self._tp}: a transaction of producer {producer_id} was ended by coordinator "
                f"epoch {marker.coordinator_epoch}, replaced by {entry.coordinator_epoch}",
            )

    def add(
        self,
        producer_id: int,
        epoch: int,
        batch: SentBatch,
        *,
        transactional: bool,
    ) -> None:
        """Takes note of a data batch that was appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        batches = entry.batches
        if entry.epoch != epoch:
            entry.epoch = epoch
            batches.clear()
        if len(batches) == _RETAINED_BATCHES:
            del batches[0]
        batches.append(batch)
        entry.last_timestamp = batch.timestamp
        if transactional:
            if entry.txn_first_offset == _NONE:
                entry.txn_first_offset = batch.first_offset
                self._ongoing[batch.first_offset] = producer_id
            self._verifying.pop(producer_id, None)

    def end_transaction(
        self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """Takes note of a marker that was appended; returns the transaction that it ended, if
        any."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        guard = self._verifying.get(producer_id)
        # If each transaction has its own epoch, a verification in the marker's belongs to the next.
        if guard is not None and not (guard.bumps_epoch and guard.epoch == epoch):
            del self._verifying[producer_id]
        first = entry.txn_first_offset
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = _NONE
        if first == _NONE:
            return None
        return CompletedTransaction(producer_id, first, offset, marker.is_abort)

    def last_stable_after(self, completed: CompletedTransaction) -> int:
        """Returns the last stable offset once this transaction is complete."""
        for first, owner in self._ongoing.items():
            if owner != completed.producer_id:
                return first
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset

    def high_watermark_at(self, high_watermark: int) -> None:
        """Completes the transactions whose marker is below the high watermark."""
        if self._unreplicated:
            done = [first for first, last in self._unreplicated.items() if last < high_watermark]
            for first in done:
                del self._unreplicated[first]

    def start_at(self, log_start: int) -> None:
        """Follows a new start of the log."""
        self.high_watermark_at(log_start)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that have been idle for this long and have no open transaction."""
        gone = [entry.producer_id for entry in self if _expired(entry, now_ms, expiration_ms)]
        for producer_id in gone:
            del self._entries[producer_id]
        self._verifying = {
            producer_id: guard
            for producer_id, guard in self._verifying.items()
            if now_ms - guard.since_ms < expiration_ms
        }

    def clear(self) -> None:
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifying.clear()

    def render(self) -> bytes:
        """Returns the content of a snapshot file."""
        body = bytearray(len(self._entries).to_bytes(4, "big"))
        for entry in self:
            last = entry.batches[-1] if entry.batches else None
            body += _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        head = _SNAPSHOT_VERSION.to_bytes(2, "big") + _core.crc32c(body).to_bytes(4, "big")
        return head + bytes(body)

    def load(self, snapshot: bytes, *, now_ms: int, expiration_ms: int) -> None:
        """Replaces everything by the content of a snapshot."""
        entries = list(read_snapshot(snapshot))
        self.clear()
        for entry in entries:
            if _expired(entry, now_ms, expiration_ms):
                continue
            self._entries[entry.producer_id] = entry
        ongoing = [entry for entry in self if entry.txn_first_offset != _NONE]
        for entry in sorted(ongoing, key=attrgetter("txn_first_offset")):
            self._ongoing[entry.txn_first_offset] = entry.producer_id

    def _epoch_error(self, entry: ProducerEntry, epoch: int) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{self._tp}: producer {entry.producer_id} sent epoch {epoch}, its last one is "
            f"{entry.epoch}",
        )


def _expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    return entry.txn_first_offset == _NONE and now_ms - entry.last_timestamp >= expiration_ms


def read_snapshot(data: bytes) -> Iterator[ProducerEntry]:
    """Yields the producers in a snapshot file. Raises SnapshotCorrupt."""
    if len(data) < _HEAD.size:
        raise SnapshotCorrupt(f"snapshot has {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise SnapshotCorrupt(f"snapshot has version {version}")
    if crc != _core.crc32c(memoryview(data)[6:]):
        raise SnapshotCorrupt("snapshot has a wrong checksum")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise SnapshotCorrupt(f"snapshot of {count} producers has {len(data)} bytes")
    for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = row
        entry = ProducerEntry(producer_id)
        entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = first if first >= 0 else _NONE
        entry.is_partial = True
        if offset >= 0:
            first_sequence = decrement_sequence(sequence, delta)
            entry.batches.append(
                SentBatch(first_sequence, sequence, offset - delta, offset, timestamp)
            )
        yield entry


def decrement_sequence(sequence: int, by: int) -> int:
    """Subtracts from a sequence number, which wraps from 0 to the largest 32-bit number."""
    return sequence - by if sequence >= by else _SEQUENCE_MAX - (by - sequence) + 1


def increment_sequence(sequence: int, by: int) -> int:
    if sequence > _SEQUENCE_MAX - by:
        return by - (_SEQUENCE_MAX - sequence) - 1
    return sequence + by


def read_marker(data: Buffer, position: int = 0) -> tuple[Marker, int] | None:
    """Returns the transaction marker in a control batch and its timestamp, None if it has none."""
    view = memoryview(data)[position:]
    record = next(iter(_core.decode(view[: whole_size(view, 0)], check_crc=False)), None)
    if record is None or record.key is None or len(record.key) < _MARKER_KEY.size:
        return None
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT) or record.value is None:
        return None
    if len(record.value) < _MARKER_VALUE.size:
        return None
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return Marker(kind == _ABORT, coordinator_epoch), record.timestamp


def render_marker(
    producer_id: int,
    epoch: int,
    marker: Marker,
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    log_append_time: bool,
) -> bytes:
    """Returns the control batch that ends a transaction, as it is stored."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, _ABORT if marker.is_abort else _COMMIT)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch)
    return _core.encode(
        [(key, value, (), now_ms)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
        log_append_time=now_ms if log_append_time else None,
    )


def _sent(batch: _core.Batch) -> SentBatch:
    """Returns what is remembered of a data batch in the log."""
    first = batch.base_sequence
    last = increment_sequence(first, batch.last_offset_delta)
    return SentBatch(first, last, batch.base_offset, batch.last_offset, batch.max_timestamp)


def note_batch(
    producers: ProducerStates, batch: _core.Batch, data: Buffer, txn_index: TransactionIndex | None
) -> None:
    """Takes note of a producer's batch in the log. With `txn_index`, aborted transactions are added
    to it; without it, they are already there."""
    if not batch.is_control:
        producers.add(
            batch.producer_id,
            batch.producer_epoch,
            _sent(batch),
            transactional=batch.is_transactional,
        )
        return
    found = read_marker(data, batch.position)
    if found is None:
        return
    marker, timestamp = found
    completed = producers.end_transaction(
        batch.producer_id, batch.producer_epoch, marker, batch.base_offset, timestamp
    )
    if completed is None:
        return
    if completed.is_abort and txn_index is not None:
        stable = producers.last_stable_after(completed)
        txn_index.append(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, stable
            )
        )
    producers.complete(completed)


class Replay:
    """Brings producer states to an offset by the batches before it. `run` may take long, for a
    whole segment may have to be read: it touches only files, which it holds, and the states."""

    __slots__ = ("_from_offset", "_ranges", "_to_offset", "producers")

    def __init__(
        self,
        producers: ProducerStates,
        segments: Sequence[Segment],
        from_offset: int,
        to_offset: int,
    ) -> None:
        self.producers = producers
        self._from_offset = from_offset
        self._to_offset = to_offset
        self._ranges: list[tuple[File, int, int]] = []
        if from_offset >= to_offset:
            return
        for segment in segments[segment_at(segments, from_offset) :]:
            if segment.base >= to_offset:
                break
            if segment.size:
                begin = segment.index.lookup(from_offset) if from_offset > segment.base else 0
                segment.file.hold()
                self._ranges.append((segment.file, begin, segment.size))

    def run(self) -> None:
        try:
            for file, begin, end in self._ranges:
                for _, batch, chunk in Scan(file, begin, end, check_crc=False):
                    if batch.base_offset >= self._to_offset:
                        break
                    # The log may start within a batch, which then still counts.
                    if batch.last_offset >= self._from_offset and batch.producer_id >= 0:
                        note_batch(self.producers, batch, chunk, None)
        finally:
            for file, _, _ in self._ranges:
                file.release()
            self._ranges.clear()


class Snapshots:
    """The producer snapshot files of a log, named by the offset they reach to (exclusive)."""

    __slots__ = ("_disk", "_folder", "_saved_to", "offsets")

    def __init__(self, disk: Disk, folder: str, offsets: list[int]) -> None:
        self._disk = disk
        self._folder = folder
        self._saved_to = 0  # of the newest snapshot, or the log's start
        self.offsets = offsets  # sorted

    def path(self, offset: int) -> str:
        return f"{self._folder}/{names.offset_name(offset, names.SNAPSHOT)}"

    def move_to(self, folder: str) -> None:
        """Follows the directory of the log to its new name."""
        self._folder = folder

    def save(self, producers: ProducerStates, offset: int) -> str | None:
        """Writes a snapshot of the states at this offset, unless there is one; not yet durable.
        Returns the path of the file."""
        if offset <= self._saved_to:
            return None
        file = self._disk.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            file.append(producers.render())
        finally:
            file.close()
        self._saved_to = offset
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
        return self.path(offset)

    def restore(
        self,
        producers: ProducerStates,
        segments: Sequence[Segment],
        *,
        start: int,
        end: int,
        now_ms: int,
        expiration_ms: int,
    ) -> Replay:
        """Loads the newest good snapshot at or below `end`; returns what brings the states from
        there to `end`. A damaged snapshot is removed."""
        producers.clear()
        self._saved_to = start
        for offset in reversed(self.offsets.copy()):
            if not start <= offset <= end:
                continue
            try:
                data = self._disk.read(self.path(offset))
                producers.load(data, now_ms=now_ms, expiration_ms=expiration_ms)
                self._saved_to = offset
                break
            except SnapshotCorrupt:
                self.drop(lambda other, bad=offset: other == bad)  # type: ignore[misc]
        return Replay(producers, segments, self._saved_to, end)

    def restart_at(self, offset: int) -> None:
        """Removes all snapshots, for a log that begins anew at this offset."""
        self.drop(lambda _: True)
        self._saved_to = offset

    def drop(self, goes: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.offsets if goes(offset)]:
            self._disk.remove(self.path(offset))
            self.offsets.remove(offset)

    def rename(self, offset: int, suffix: str) -> list[str]:
        """Renames a snapshot, if there is one; returns its new path."""
        if offset not in self.offsets:
            return []
        path = self.path(offset)
        self._disk.rename(path, path + suffix)
        self.offsets.remove(offset)
        return [path + suffix]
