"""Bugs on purpose, to see whether the simulation sees them. Each is a patch for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast
from unittest.mock import patch

from headwater import _core
from headwater.broker.cleaning import Cleaning
from headwater.broker.partition import Partition
from headwater.storage import Appended, Log, RetiredSegment, TruncationJob, recovery
from headwater.storage.cleaner import CleaningJob
from headwater.storage.epochs import EpochCache
from headwater.storage.flush import FlushJob
from headwater.storage.offset_index import OffsetIndex
from headwater.storage.producer_state import ProducerStates
from headwater.storage.segment import Scan, Segment
from headwater.storage.time_index import TimeIndex

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def no_checksum_in_recovery() -> Iterator[None]:
    """Torn batches are taken for good ones as long as their length fits."""
    original = Segment.scan

    def scan(self: Segment, *args: Any, **kwargs: Any) -> Scan:
        kwargs["check_crc"] = False
        return original(self, *args, **kwargs)

    with patch.object(Segment, "scan", scan):
        yield


@contextmanager
def index_trusted_after_a_crash() -> Iterator[None]:
    """Recovery takes the index files as they are and adds to them what is behind their end."""
    original = Segment.start_reindexing
    append, append_time = OffsetIndex.append, TimeIndex.append

    def start_reindexing(self: Segment) -> None:
        original(self)
        for index in (self.index, self.time_index):
            index.unload()
            index.load()

    def lenient(self: OffsetIndex, offset: int, position: int) -> None:
        if not len(self) or offset > self.entry(len(self) - 1)[0]:
            append(self, offset, position)

    def lenient_time(self: TimeIndex, timestamp: int, offset: int) -> None:
        if not len(self) or offset > self.entry(len(self) - 1)[1]:
            append_time(self, timestamp, offset)

    with (
        patch.object(Segment, "start_reindexing", start_reindexing),
        patch.object(OffsetIndex, "append", lenient),
        patch.object(TimeIndex, "append", lenient_time),
    ):
        yield


@contextmanager
def acknowledgement_before_the_append() -> Iterator[None]:
    """The producer hears of an offset that its batch has not got yet."""
    import asyncio

    original = Partition.append

    def append(self: Partition, data: Any, **kwargs: Any) -> Appended:
        count = _core.scan(data)[0][0].last_offset_delta
        base = self.log.end
        asyncio.get_running_loop().call_later(
            0.001, lambda: original(self, bytearray(data), **kwargs)
        )
        return Appended(base, base + count, -1, self.log.start, False, len(data))

    with patch.object(Partition, "append", append):
        yield


@contextmanager
def acknowledgement_before_the_sync() -> Iterator[None]:
    """`flush.messages=1` is not heeded."""
    with patch.object(Partition, "needs_flush", lambda self: False):
        yield


@contextmanager
def names_are_not_synced() -> Iterator[None]:
    """Files are synced, the directories they are in are not."""
    original = FlushJob.run

    def run(self: FlushJob) -> None:
        object.__setattr__(self, "folders", ())
        original(self)

    with patch.object(FlushJob, "run", run):
        yield


@contextmanager
def duplicates_are_stored_again() -> Iterator[None]:
    """A batch that was stored already is not recognised."""
    with (
        patch.object(ProducerStates, "find_duplicate", lambda *args: None),
        patch.object(ProducerStates, "check", lambda *args, **kwargs: None),
    ):
        yield


@contextmanager
def a_gap_between_segments_is_not_seen() -> Iterator[None]:
    """A loss at the end of a segment goes unnoticed if there is a next segment."""
    original = recovery.load

    def load(*args: Any, **kwargs: Any) -> recovery.Loaded:
        kwargs["gaps_to"] = 2**63 - 1
        return original(*args, **kwargs)

    with patch.object(recovery, "load", load):
        yield


@contextmanager
def compaction_drops_the_newest() -> Iterator[None]:
    """The last batch of what compaction should keep goes, too."""

    class Careless:
        def __init__(self, retainer: Any) -> None:
            self._retainer = retainer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._retainer, name)

        def retain(self, *args: Any) -> tuple[int, bytes, list[tuple[int, int, int, int]]]:
            used, kept, points = self._retainer.retain(*args)
            batches = _core.scan(kept)[0]
            return used, kept[: batches[-1].position] if batches else kept, points[:-1]

    original = CleaningJob.__init__

    def init(self: CleaningJob, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._retainer = cast("_core.Retainer", Careless(self._retainer))

    with patch.object(CleaningJob, "__init__", init):
        yield


@contextmanager
def compacted_segments_are_not_synced() -> Iterator[None]:
    """The old segments go, and the new one is only in memory."""
    with patch.object(Segment, "sync", lambda self: None):
        yield


@contextmanager
def compaction_before_the_flush() -> Iterator[None]:
    """A record goes for a later one that a crash may take."""

    async def make_durable(self: Cleaning, partition: Partition) -> int:
        return partition.last_stable_offset

    with patch.object(Cleaning, "_make_durable", make_durable):
        yield


@contextmanager
def truncated_epochs_come_back() -> Iterator[None]:
    """Truncation leaves the epoch file alone, and recovery looks for larger epochs only."""

    def correct(self: EpochCache, epoch: int, *, base_offset: int, last_offset: int) -> int:
        if epoch > self.latest:
            self.assign(epoch, base_offset)
        return 0

    with (
        patch.object(TruncationJob, "_write_epochs", lambda self: None),
        patch.object(EpochCache, "correct", correct),
    ):
        yield


@contextmanager
def truncation_is_not_durable() -> Iterator[None]:
    """Truncated records may come back behind those appended later."""

    def finish(self: Log, job: TruncationJob | None) -> list[RetiredSegment]:
        if job is None:
            return []
        job.replay.run()
        job.file.release()
        self.cut_ended(job)
        return job.retired

    with patch.object(Log, "_finish_cut", finish):
        yield


# Seeds one of which catches it; where many would be needed, from not far before that one on. The
# first three bugs are the ones that every change must face.
MUTANTS: dict[str, tuple[Mutant, range]] = {
    "no checksum in recovery": (no_checksum_in_recovery, range(40)),
    "index trusted after a crash": (index_trusted_after_a_crash, range(50, 100)),
    "acknowledgement before the append": (acknowledgement_before_the_append, range(5)),
    "acknowledgement before the sync": (acknowledgement_before_the_sync, range(20)),
    "names are not synced": (names_are_not_synced, range(40)),
    "duplicates are stored again": (duplicates_are_stored_again, range(10)),
    "a gap between segments is not seen": (a_gap_between_segments_is_not_seen, range(20, 60)),
    "compaction drops the newest": (compaction_drops_the_newest, range(10)),
    "compacted segments are not synced": (compacted_segments_are_not_synced, range(20)),
    "compaction before the flush": (compaction_before_the_flush, range(180, 240)),
}

# Bugs that a log alone shows, quicker.
LOG_MUTANTS: dict[str, tuple[Mutant, range]] = {
    "truncated epochs come back": (truncated_epochs_come_back, range(300)),
    "truncation is not durable": (truncation_is_not_durable, range(300)),
}
