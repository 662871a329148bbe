"""Compaction in plain Python over a whole log in memory: the judge of the Rust core's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.reference import batches as reference
from tests.reference.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from tests.reference.codecs import compress

ABORT, COMMIT = 0, 1


@dataclass(slots=True)
class Follower:
    """The transactions of a log, read from its start."""

    aborted: Sequence[tuple[int, int, int, int]]
    undone: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    with_batches: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    needed: list[tuple[int, int, int, int]] = field(default_factory=list)
    seen: set[tuple[int, int, int, int]] = field(default_factory=set)

    def can_discard(self, batch: reference.Batch, own: bytes) -> bool:
        for entry in sorted(self.aborted, key=lambda entry: entry[1]):
            if entry[1] <= batch.last_offset and entry not in self.seen:
                self.seen.add(entry)
                self.undone.setdefault(entry[0], entry)
        producer = batch.producer_id
        if batch.attributes & CONTROL:
            found = list(reference.records(batch, own))
            if not found:
                return True
            key = found[0].key
            kind = int.from_bytes(key[2:4], "big") if key is not None else -1
            if kind == ABORT:
                entry = self.undone.pop(producer, (0, 0, 0, 0))
                if producer in self.with_batches:
                    self.with_batches.discard(producer)
                    self.needed.append(entry)
                    return False
                return True
            if kind == COMMIT:
                known = producer in self.committed
                self.committed.discard(producer)
                return not known
            return False
        if not batch.attributes & TRANSACTIONAL:
            return False
        if producer in self.undone:
            self.with_batches.add(producer)
            return True
        self.committed.add(producer)
        return False


def each(data: bytes) -> Iterator[tuple[reference.Batch, bytes]]:
    position = 0
    while position < len(data):
        batch, own = reference.whole(data, position)
        yield batch, own
        position += len(own)


def learn(
    data: bytes, aborted: Sequence[tuple[int, int, int, int]], from_offset: int
) -> dict[bytes, int]:
    keys: dict[bytes, int] = {}
    follower = Follower(aborted)
    for batch, own in each(data):
        if follower.can_discard(batch, own) or batch.attributes & CONTROL:
            continue
        for record in reference.records(batch, own):
            if record.key is not None and record.offset >= from_offset:
                keys[record.key] = record.offset
    return keys


def retain(
    data: bytes,
    keys: Mapping[bytes, int],
    aborted: Sequence[tuple[int, int, int, int]],
    *,
    latest_offset: int,
    now_ms: int,
    delete_retention_ms: int,
    upper_bound: int,
    producers: Mapping[int, tuple[int, int]],
) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """Returns what is left, and the aborted transactions that are still needed."""
    follower = Follower(aborted)
    out = b""
    for batch, own in each(data):
        control = bool(batch.attributes & CONTROL)
        horizon = batch.base_timestamp if batch.attributes & DELETE_HORIZON else None
        passed = horizon is not None and horizon <= now_ms
        can_discard = follower.can_discard(batch, own)
        found = list(reference.records(batch, own))
        kept = []
        if not can_discard or (control and not passed):
            for record in found:
                superseded = record.key is None or keys.get(record.key, -1) > record.offset
                gone = superseded or (record.value is None and passed)
                if control or record.offset > latest_offset or not gone:
                    kept.append(record)
        if not kept:
            last, epoch = producers.get(batch.producer_id, (-2, -2))
            is_last = batch.last_offset == last or (
                last == -1 and control and batch.producer_epoch == epoch
            )
            if is_last or batch.last_offset + 1 == upper_bound:
                attributes = batch.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
                empty = replace(batch, attributes=attributes, base_timestamp=-1, count=0)
                out += reference.sealed(empty, b"")
            continue
        marks = horizon is None and (
            any(record.value is None for record in kept) or (control and can_discard)
        )
        if len(kept) == len(found) and not marks:
            out += own
            continue
        if marks:
            horizon = now_ms + delete_retention_ms
        out += _rewritten(batch, kept, horizon)
    return out, follower.needed


def _rewritten(batch: reference.Batch, kept: list[reference.Decoded], horizon: int | None) -> bytes:
    base = kept[0].timestamp if horizon is None else horizon
    payload = b""
    for record in kept:
        body = b"\x00" + reference.write_varint(record.timestamp - base)
        body += reference.write_varint(record.offset_delta)
        body += reference.write_optional(record.key) + reference.write_optional(record.value)
        body += reference.write_varint(len(record.headers))
        for name, content in record.headers:
            body += reference.write_optional(name.encode()) + reference.write_optional(content)
        payload += reference.write_varint(len(body)) + body
    newest = max(-1, *(record.timestamp for record in kept))
    changed = replace(
        batch,
        attributes=batch.attributes | (DELETE_HORIZON if horizon is not None else 0),
        base_timestamp=base,
        max_timestamp=batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else newest,
        count=len(kept),
    )
    return reference.sealed(changed, compress(batch.codec, payload))
