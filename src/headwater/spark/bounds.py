"""Where a query begins and ends: what the options say, made into offsets by asking the brokers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headwater.model import TopicPartition
from headwater.spark.brokers import Brokers
from headwater.spark.errors import DataLost, OptionError
from headwater.spark.offsets import Offsets
from headwater.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    ByOffset,
    ByTime,
    Place,
    SourceOptions,
)

_log = logging.getLogger("headwater.spark")


def resolve(
    brokers: Brokers,
    bound: Bound,
    partitions: Sequence[TopicPartition],
    options: SourceOptions,
    *,
    option: str,
) -> Offsets:
    """An offset for each partition."""
    match bound:
        case Place.EARLIEST:
            return brokers.earliest(partitions)
        case Place.LATEST:
            return brokers.latest(partitions)
        case ByOffset(offsets):
            return _by_offset(brokers, offsets, partitions, options, option=option)
        case ByTime():
            return _by_time(brokers, bound, partitions)
    raise AssertionError(bound)


def _by_offset(
    brokers: Brokers,
    offsets: Mapping[TopicPartition, int],
    partitions: Sequence[TopicPartition],
    options: SourceOptions,
    *,
    option: str,
) -> Offsets:
    _check_names_all(option, offsets, partitions)
    earliest, latest = brokers.earliest(partitions), brokers.latest(partitions)
    found = {}
    for tp in partitions:
        offset = offsets[tp]
        if offset in (EARLIEST, LATEST):
            found[tp] = earliest[tp] if offset == EARLIEST else latest[tp]
            continue
        found[tp] = min(max(offset, earliest[tp]), latest[tp])
        if found[tp] != offset:
            said = (
                f"{tp}: {option} has offset {offset}, which is not in the log; it has "
                f"{earliest[tp]} up to {latest[tp]}"
            )
            if options.fail_on_data_loss:
                raise DataLost(f"{said}; failOnDataLoss=false takes the nearest instead")
            _log.warning("%s; taking %d", said, found[tp])
    return found


def _by_time(brokers: Brokers, bound: ByTime, partitions: Sequence[TopicPartition]) -> Offsets:
    if bound.each_ms:
        _check_names_all(bound.option, bound.each_ms, partitions)
        times = {tp: bound.each_ms[tp] for tp in partitions}
    else:
        moment = bound.everywhere_ms
        if moment is None:
            assert bound.ago_ms is not None
            moment = max(0, brokers.host.clock.wall_ms() - bound.ago_ms)
        times = dict.fromkeys(partitions, moment)
    found = {tp: offset for tp, (offset, _) in brokers.at(times).items()}
    missing = [tp for tp in partitions if found[tp] < 0]
    if missing and not bound.latest_if_none:
        raise OptionError(
            f"{missing[0]}: {bound.option} is {times[missing[0]]} and no record has that time or a "
            "later one; startingOffsetsByTimestampStrategy=latest starts at the end then"
        )
    return found | dict(brokers.latest(missing)) if missing else found


def _check_names_all(
    option: str, named: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
) -> None:
    missing = [str(tp) for tp in partitions if tp not in named]
    if missing:
        raise OptionError(
            f"{option} does not name {', '.join(missing[:5])}: it must name every partition that "
            "is read; -1 is the latest offset, -2 the earliest"
        )
    strangers = [str(tp) for tp in sorted(named) if tp not in set(partitions)]
    if strangers:
        raise OptionError(f"{option} names {', '.join(strangers[:5])}, which is not read")
