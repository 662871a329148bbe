"""Decodes fetched bytes as a consumer may see them, in plain Python: the judge of the core."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference import batches as twin

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[twin.Header, ...], int]


def visible(
    data: bytes, *, from_offset: int = 0, aborted: Sequence[tuple[int, int]] = ()
) -> tuple[list[Row], int]:
    """(offset, timestamp, timestamp type, key, value, headers, leader epoch) of each record that
    a reader of committed records gets, and where it reads on."""
    rows: list[Row] = []
    next_offset = from_offset
    position = 0
    undone: set[int] = set()
    coming = sorted(aborted, key=lambda transaction: transaction[1])
    while position < len(data):
        try:
            batch, own = twin.whole(data, position)
        except twin.Corrupt:  # the last batch of a fetch is often cut
            break
        position += len(own)
        while coming and coming[0][1] <= batch.last_offset:
            undone.add(coming.pop(0)[0])
        is_control = bool(batch.attributes & twin.CONTROL)
        is_transactional = bool(batch.attributes & twin.TRANSACTIONAL)
        if is_control:
            (marker,) = twin.records(batch, own)
            if marker.key == b"\0\0\0\0":
                undone.discard(batch.producer_id)
        elif not (is_transactional and batch.producer_id in undone):
            kind = int(bool(batch.attributes & twin.LOG_APPEND_TIME))
            rows += [
                (r.offset, r.timestamp, kind, r.key, r.value, r.headers, batch.leader_epoch)
                for r in twin.records(batch, own)
                if r.offset >= from_offset
            ]
        next_offset = max(next_offset, batch.last_offset + 1)
    return rows, next_offset
