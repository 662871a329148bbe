"""Checks records that were sent and read for what must hold under any faults.

A sender numbers its records for each partition it sends to, in the order it hands them in; a value
is `sender:number`. The history says which were acknowledged and at which offset, which were
refused for good, and what was read where. The anomalies have the names that Jepsen gives them.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int]  # topic and partition


@dataclass(slots=True)
class History:
    """One run. Values are unique; a value that was neither acknowledged nor refused may be there
    or not."""

    acknowledged: dict[str, tuple[Place, int]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    # Everything from the first offset to the last, read once at the end by somebody new.
    final: dict[Place, list[tuple[int, str]]] = field(default_factory=dict)
    # What each consumer of a group was given, in order, with the epoch of its assignment.
    given: list[tuple[str, int, Place, int, str]] = field(default_factory=list)


def anomalies(history: History) -> dict[str, list[str]]:
    """By kind; empty when all is well."""
    found: dict[str, list[str]] = defaultdict(list)
    at: dict[str, list[tuple[Place, int]]] = defaultdict(list)
    for place, records in history.final.items():
        for offset, value in records:
            at[value].append((place, offset))
    for value, places in at.items():
        if len(places) > 1:
            found["duplicate"].append(f"{value} at {places}")
        if value in history.refused:
            found["refused, yet there"].append(f"{value} at {places}")
    for value, where in history.acknowledged.items():
        if value not in at:
            found["lost-write"].append(f"{value}, acknowledged at {where}")
        elif where not in at[value]:
            found["inconsistent-offsets"].append(f"{value} acknowledged at {where}, is {at[value]}")
    for place, records in history.final.items():
        _check_order(place, records, found)
    _check_given(history, found)
    return dict(found)


def _check_order(place: Place, records: list[tuple[int, str]], found: dict[str, list[str]]) -> None:
    last: dict[str, int] = {}
    for offset, value in records:
        sender, _, number = value.rpartition(":")
        if int(number) <= last.get(sender, -1):
            found["nonmonotonic-send"].append(f"{value} at {place} {offset} after {last[sender]}")
        last[sender] = int(number)


def _check_given(history: History, found: dict[str, list[str]]) -> None:
    """Within one assignment offsets go up and none is skipped; what one consumer saw at an offset
    every other saw too; and in the end somebody was given everything."""
    final = {
        (place, offset): value
        for place, records in history.final.items()
        for offset, value in records
    }
    follows = {
        (place, before): after
        for place, records in history.final.items()
        for (before, _), (after, _) in itertools.pairwise(records)
    }
    last: dict[tuple[str, int, Place], int] = {}
    seen: Counter[tuple[Place, int]] = Counter()
    for consumer, assignment, place, offset, value in history.given:
        if final.get((place, offset)) != value:
            expected = final.get((place, offset))
            found["inconsistent-offsets"].append(
                f"{consumer} was given {value} at {place} {offset}, where {expected} is"
            )
        before = last.get((consumer, assignment, place))
        if before is not None and offset <= before:
            found["nonmonotonic-poll"].append(f"{consumer} at {place}: {offset} after {before}")
        elif before is not None and follows.get((place, before)) != offset:
            found["poll-skip"].append(f"{consumer} at {place}: {offset} after {before}")
        last[consumer, assignment, place] = offset
        seen[place, offset] += 1
    if history.given:
        unseen = [
            f"{value} at {where}" for where, value in sorted(final.items()) if where not in seen
        ]
        if unseen:
            found["unseen"] += unseen
