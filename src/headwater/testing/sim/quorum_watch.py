"""Looks into the metadata logs of a simulated quorum: what must hold there, whatever happens.

- an epoch has one leader, which has everything that was committed;
- what one node holds for committed (below its high watermark) every node holds, byte by byte;
- no log is cut below what was committed, and no node falls back to an earlier epoch;
- the image in memory is the one that snapshot and log make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

from headwater import _core
from headwater.broker.metadata_log import MetadataLog
from headwater.metadata import Replay
from headwater.metadata.batches import decode_batches
from headwater.metadata.snapshot import decode_snapshot
from headwater.quorum import Role
from headwater.storage import Log
from headwater.testing.sim.violation import Violation
from headwater.testing.sim.world import World

_READ_BYTES = 1 << 20


@dataclass(slots=True)
class Committed:
    """The committed part of a log: checksum and end of each batch, by its first offset."""

    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    end: int = 0


@dataclass(slots=True)
class Seen:
    """Observations of one replica of a log since its node was started."""

    compared_to: int = -1
    high_watermark: int = 0
    leader_epoch: int = -1  # the last that it led
    leads: int = -1  # the epoch that it leads now
    # The in-sync set of the leader, by its epochs, and the high watermark that may not move under
    # it; None while enough replicas are in sync.
    too_few: tuple[int, int, int] | None = None


def compare(log: Log, seen: Seen, upto: int, committed: Committed) -> str | None:
    """Compares what a log holds for committed with what the others do; says what differs."""
    seen.compared_to = max(seen.compared_to, log.start)
    while seen.compared_to < upto:
        found = log.read(seen.compared_to, bytes_max=_READ_BYTES, upto=upto)
        if found.slice is None:
            return None
        data = found.slice.read()
        batches = _core.scan(data)[0]
        ends = [*(batch.position for batch in batches[1:]), len(data)]
        for batch, position in zip(batches, ends, strict=False):
            if batch.base_offset < seen.compared_to:
                continue
            end = batch.last_offset + 1
            this = (crc32(data[batch.position : position]), end)
            if committed.batches.setdefault(batch.base_offset, this) != this:
                return f"has something else at {batch.base_offset}..{end} than was committed there"
            committed.end = max(committed.end, end)
            seen.compared_to = end
        if not batches:
            return None
    return None


class QuorumWatch:
    def __init__(self, world: World, fail: Callable[[str], Violation]) -> None:
        self._world = world
        self._fail = fail
        self._leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}  # by node, over all its lives
        self.committed = Committed()

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise self._fail(what)

    def forget(self, node_id: int) -> None:
        """The node has lost its disk."""
        self._epochs.pop(node_id, None)

    def look(self, node_id: int, metadata: MetadataLog, seen: Seen) -> None:
        """Checks a node after something may have changed there."""
        raft = metadata.raft
        log: Log = metadata._log
        known = self._epochs.get(node_id, -1)
        self._expect(
            raft.epoch >= known,
            f"node {node_id} is in epoch {raft.epoch} of the quorum, it was in {known}",
        )
        self._epochs[node_id] = raft.epoch
        if raft.role is Role.LEADER and seen.leader_epoch != raft.epoch:
            seen.leader_epoch = raft.epoch
            self._check_leader(node_id, raft.epoch, log.end)
        self._expect(
            log.end >= seen.high_watermark,
            f"node {node_id} cut the metadata log to {log.end}, {seen.high_watermark} is committed",
        )
        seen.high_watermark = max(seen.high_watermark, raft.high_watermark)
        differs = compare(log, seen, min(raft.high_watermark, log.end), self.committed)
        self._expect(differs is None, f"the metadata log of node {node_id} {differs}")

    def _check_leader(self, node_id: int, epoch: int, log_end: int) -> None:
        leader = self._leaders.setdefault(epoch, node_id)
        self._expect(
            leader == node_id, f"nodes {leader} and {node_id} both lead epoch {epoch} of the quorum"
        )
        self._world.note(f"node {node_id} leads epoch {epoch} of the quorum")
        self._world.happened("quorum leader elected")
        self._expect(
            log_end >= self.committed.end,
            f"node {node_id} leads the quorum with a log up to {log_end}, {self.committed.end} is "
            "committed",
        )

    def check_replay(self, node_id: int, metadata: MetadataLog) -> None:
        """The image is the one that snapshot and log make."""
        snapshots = metadata._snapshots
        replay = Replay()
        offset, before = 0, -1
        if snapshots._ids:
            size = snapshots.size(snapshots.latest) or 0
            replay.apply(decode_snapshot(snapshots.read(snapshots.latest, 0, size)).records)
            offset = snapshots.latest.offset
        if offset > metadata.applied or metadata._log.start > offset:
            return
        while before < offset < metadata.applied:
            before = offset
            for batch in decode_batches(metadata.read(offset, bytes_max=_READ_BYTES)):
                if offset <= batch.base_offset and batch.end_offset <= metadata.applied:
                    replay.apply(() if batch.is_control else batch.records)
                    offset = batch.end_offset
        if offset == metadata.applied:
            self._expect(
                replay.image == metadata.image,
                f"node {node_id} has another image in memory than its log makes",
            )
            self._world.happened("metadata replayed")
