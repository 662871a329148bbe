"""The offsets at which `headwater consume` begins and ends: --from, --to and --until-end."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli.arguments import read_time_ms
from headwater.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from headwater.blocking import Consumer
    from headwater.model import TopicPartition

BEGINNING, END = "beginning", "end"
_WORDS = {BEGINNING: BEGINNING, END: END, "earliest": BEGINNING, "latest": END}

Offsets = dict["TopicPartition", int]


@dataclass(frozen=True, slots=True)
class Offset:
    """This offset in each partition; a negative one counts from the end."""

    number: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The first record of this time or later."""

    timestamp_ms: int
    text: str


Bound = str | Offset | Moment


def read_bound(text: str) -> Bound:
    """A word, an offset, or a time."""
    if text in _WORDS:
        return _WORDS[text]
    if text.removeprefix("-").isdecimal() and text.isascii():
        return Offset(int(text))
    try:
        return Moment(read_time_ms(text), text)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{text}: expected beginning, end, an offset, a time such as 2026-03-01T08:00, or a "
            "duration such as 90m for that long ago"
        ) from None


def seek_to(consumer: Consumer, partitions: Sequence[TopicPartition], start: Bound) -> None:
    """Moves every partition to where reading begins; an offset that is not there is reported."""
    match start:
        case "beginning":
            consumer.seek_to_beginning()
        case "end":
            consumer.seek_to_end()
        case Moment(timestamp_ms, text):
            found = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            if not any(found.values()):
                _note(f"there is no record from {text} on; reading begins at the end")
            consumer.seek_to_time(timestamp_ms)
        case Offset(number):
            for where, offset in _offsets(consumer, partitions, number).items():
                consumer.seek(where, offset)


def _offsets(consumer: Consumer, partitions: Sequence[TopicPartition], number: int) -> Offsets:
    starts, ends = consumer.beginning_offsets(*partitions), consumer.end_offsets(*partitions)
    if number < 0:
        return {where: max(starts[where], ends[where] + number) for where in partitions}
    beyond = [where for where in partitions if number > ends[where]]
    if len(beyond) == len(partitions):
        listed = ", ".join(f"{where} ends at {ends[where]}" for where in beyond[:3])
        raise CommandError(
            f"--from {number} is beyond the end: {listed}{' ...' if beyond[3:] else ''}",
            then="--from end waits for new records, --from -5 shows the last five",
        )
    for where in beyond:
        _note(f"{where} ends at {ends[where]}; it is read from there")
    for where in partitions:
        if 0 < number < starts[where]:
            _note(f"{where} begins at {starts[where]}; it is read from there")
    return {where: min(max(number, starts[where]), ends[where]) for where in partitions}


def _note(text: str) -> None:
    print(f"headwater consume: {text}", file=sys.stderr)


def find_ends(consumer: Consumer, partitions: Sequence[TopicPartition], end: Bound) -> Offsets:
    """Returns the offset at which each partition ends, exclusive."""
    match end:
        case "beginning":
            return consumer.beginning_offsets(*partitions)
        case "end":
            return consumer.end_offsets(*partitions)
        case Offset(number) if number >= 0:
            return dict.fromkeys(partitions, number)
        case Offset(number):
            ends = consumer.end_offsets(*partitions)
            return {where: max(0, last + number) for where, last in ends.items()}
        case Moment(timestamp_ms, text):
            if timestamp_ms > time.time() * 1000:
                raise CommandError(
                    f"--to {text}: this time has not come yet",
                    then="without --to new records are shown until Ctrl-C",
                    code=USAGE,
                )
            ends = consumer.end_offsets(*partitions)
            found = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            return {
                where: ends[where] if first is None else first.offset
                for where, first in found.items()
            }
    raise AssertionError(end)
