"""Compaction's last step: a new segment takes the place of some that follow each other.

It is made and synced as `.cleaned`. After each of the three steps (`begin`, `commit`, `end`) the
folder is synced in a worker, so that at every moment a start finds either all of the old (and drops
what is new) or all of the new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.storage import names, retention
from headwater.storage.failures import is_full
from headwater.storage.retention import Reason, RetiredSegment
from headwater.storage.segment import Segment, segment_at

if TYPE_CHECKING:
    from headwater.storage.log import Log


def begin(log: Log, cleaned: Segment, bases: Sequence[int], *, truncations: int) -> bool:
    """`.cleaned` becomes `.swap`: from now on a start would finish the swap. False if the
    segments that it was made of are not there any more as they were."""
    place = segment_at(log.segments, bases[0])
    sources = log.segments[place : place + len(bases)]
    if (
        truncations != log.truncations
        or [segment.base for segment in sources] != list(bases)
        or sources[-1] is log.segments[-1]
    ):
        return False
    assert log.swap is None, f"{log.tp} has a swap under way"
    with log.health.errors():
        try:
            cleaned.resuffix(names.SWAP)
        except OSError:
            # As long as a file is `.cleaned`, a start takes none of the others for whole.
            for suffix in (names.SWAP, names.CLEANED):
                cleaned.suffix = suffix
                cleaned.remove()
            raise
    log.swap = cleaned, sources
    return True


def commit(log: Log) -> list[RetiredSegment] | None:
    """Readers get the new segment, and the old leave, the oldest first: a deletion mark must
    not go before what it deletes. None if the swap was abandoned meanwhile."""
    if log.swap is None:
        return None
    cleaned, sources = log.swap
    log.swap = None
    place = segment_at(log.segments, cleaned.base)
    log.segments[place : place + len(sources)] = [cleaned]
    log.size = sum(segment.size for segment in log.segments)
    log.last_bound = (-1, 0, 0)
    with log.health.errors():
        return [
            retired
            for source in sources
            if (retired := _replace(log, source, snapshot=source.base != cleaned.base))
        ]


def _replace(log: Log, source: Segment, *, snapshot: bool) -> RetiredSegment | None:
    try:
        return retention.take_out(log, source, Reason.COMPACTION, snapshot=snapshot)
    except OSError as error:
        if not is_full(error):
            raise
        # A new name may need room, and an old segment must not be there beside the new one.
        # Readers that have it keep what they have.
        source.remove()
        if snapshot:
            log.snapshots.drop(lambda offset: offset == source.base)
        return None


def end(log: Log) -> None:
    """The new segment gets its name, once the old ones are gone for good."""
    with log.health.errors():
        for segment in log.segments:
            if segment.suffix:
                segment.resuffix("")
                log.unsynced.add_folder(log.path)


def abandon(log: Log) -> None:
    """What is about to be cut must not come back with a swap that a start finishes."""
    if log.swap is not None:
        log.swap[0].remove()
        log.swap = None
        log.unsynced.add_folder(log.path)
