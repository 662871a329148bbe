"""The options of the source: those of Spark's own Kafka connector under its names, and ours.

Names are case-insensitive, as everywhere in Spark. Errors are raised when the query is planned,
before any broker is asked. Unknown options are logged and ignored, as by Spark's connector.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import Enum
from typing import Any

from headwater.client.config import ConsumerConfig
from headwater.client.errors import ConfigError
from headwater.model import TopicPartition
from headwater.spark.errors import OptionError
from headwater.spark.fields import FieldsError, field_names

_log = logging.getLogger("headwater.spark")

LATEST, EARLIEST = -1, -2  # in offsets of users, as in Kafka's protocol

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
# A batch after an outage of hours must not take all memory. Compressed bytes count.
_BYTES_PER_TRIGGER = "2g"

_KNOWN = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    # Ours.
    "startingTime",
    "endingTime",
    "maxBytesPerTrigger",
    "isolation",
    "group",
    "columns",
    "valueFormat",
    "valueSchema",
    "valueMode",
    "retentionAlarm",
    "read.from",
    "tasks",
    "latestOffset.waitMs",
    "stopOffsets",
    "pushFilters",
)
# The source must decide these itself; Spark's connector refuses them, too.
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are bytes; cast the column",
    "value.deserializer": "values are bytes; cast the column, or use valueFormat",
    "enable.auto.commit": "use group, which commits finished batches",
    "interceptor.classes": "interceptors are Java classes",
}


class Place(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ByOffset:
    """An offset for each partition; -1 is the latest, -2 the earliest."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ByTime:
    """The first offset at or after a time in ms, for all partitions or for each."""

    everywhere_ms: int | None = None
    each_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    ago_ms: int | None = None  # instead: this long before the query starts
    latest_if_none: bool = False
    option: str = "startingTimestamp"


Bound = Place | ByOffset | ByTime


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics or partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def wants(self, tp: TopicPartition) -> bool:
        if self.assigned:
            return tp in self.assigned
        if self.pattern is not None:
            return re.fullmatch(self.pattern, tp.topic) is not None
        return tp.topic in self.topics

    def __str__(self) -> str:
        if self.assigned:
            return f"assign={', '.join(map(str, self.assigned))}"
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        return f"subscribe={','.join(self.topics)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    bootstrap: str
    subscription: Subscription
    starting: Bound
    ending: Bound
    # The kafka.* ones, without the prefix. They may have passwords, like all fields of this kind.
    settings: Mapping[str, str] = field(repr=False)
    fail_on_data_loss: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_ms: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    tasks: int | None
    read_committed: bool
    group: str | None
    columns: tuple[str, ...]
    value_format: str
    value_schema: str | None
    value_fails: bool
    retention_alarm: float
    from_files: bool
    wait_ms: int
    stop: Mapping[TopicPartition, int] | None  # where Trigger.AvailableNow ends at the latest
    push_filters: bool


def parse(options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Parses the options of a query. OptionError names the invalid one. `streaming` is None while
    the kind of the query is unknown: then only rules for both kinds are checked."""
    given = _Given(options)
    if streaming is not None:
        given.warn_of_unknown()
    settings = given.settings()
    if "bootstrap.servers" not in settings:
        raise OptionError("kafka.bootstrap.servers is missing: set it to host:port[,host:port]")
    bootstrap = settings.pop("bootstrap.servers")
    isolation = settings.pop("isolation.level", "read_uncommitted")
    result = SourceOptions(
        bootstrap=bootstrap,
        subscription=_subscription(given),
        starting=_starting(given, streaming=streaming),
        ending=_ending(given, streaming=streaming),
        settings=settings,
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        poll_timeout_ms=given.integer("kafkaConsumer.pollTimeoutMs", 120_000, at_least=1),
        offset_retries=given.integer("fetchOffset.numRetries", 3, at_least=0),
        offset_retry_ms=given.integer("fetchOffset.retryIntervalMs", 10, at_least=0),
        max_offsets_per_trigger=given.maybe_integer("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.maybe_integer("minOffsetsPerTrigger"),
        max_bytes_per_trigger=_bytes_per_trigger(given),
        max_trigger_delay_ms=read_span_ms(
            "maxTriggerDelay", given.text("maxTriggerDelay") or "15m"
        ),
        min_partitions=given.maybe_integer("minPartitions"),
        max_records_per_partition=given.maybe_integer("maxRecordsPerPartition"),
        tasks=given.maybe_integer("tasks"),
        read_committed=read_choice(
            "isolation",
            given.text("isolation") or isolation,
            "read_committed",
            "read_uncommitted",
        )
        == "read_committed",
        group=given.text("group"),
        columns=_columns(given),
        value_format=read_choice(
            "valueFormat", given.text("valueFormat") or "bytes", "bytes", "string", "json"
        ),
        value_schema=given.text("valueSchema"),
        value_fails=read_choice(
            "valueMode", given.text("valueMode") or "PERMISSIVE", "PERMISSIVE", "FAILFAST"
        )
        == "FAILFAST",
        retention_alarm=read_fraction("retentionAlarm", given.text("retentionAlarm") or "0.1"),
        from_files=read_choice("read.from", given.text("read.from") or "broker", "broker", "files")
        == "files",
        wait_ms=given.integer("latestOffset.waitMs", 100, at_least=0),
        stop=None if (stop := given.text("stopOffsets")) is None else _stops(stop),
        push_filters=given.boolean("pushFilters", False),
    )
    _check(result, streaming=streaming)
    return result


def client_config(options: SourceOptions) -> ConsumerConfig:
    """Returns the settings of the connections. OptionError if one of kafka.* is invalid."""
    settings = dict(options.settings)
    # The source joins no group. Spark's connector accepts this setting.
    settings.pop("group.id", None)
    settings.setdefault("client.id", "headwater-spark")
    try:
        return ConsumerConfig.build(options.bootstrap, config=settings)
    except ConfigError as error:
        raise OptionError(f"kafka.* settings: {error}") from None


class _Given:
    """Options by lower-case name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else read_boolean(name, text)

    def integer(self, name: str, default: int, *, at_least: int) -> int:
        text = self.text(name)
        return default if text is None else read_integer(name, text, at_least=at_least)

    def maybe_integer(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else read_integer(name, text, at_least=1)

    def named(self, *names: str) -> list[str]:
        return [name for name in names if name.lower() in self._options]

    def settings(self) -> dict[str, str]:
        settings = {
            name.removeprefix("kafka."): value
            for name, value in self._options.items()
            if name.startswith("kafka.")
        }
        for name, advice in _REFUSED.items():
            if name in settings:
                raise OptionError(f"kafka.{name} is not supported: {advice}")
        return settings

    def warn_of_unknown(self) -> None:
        known = {name.lower(): name for name in _KNOWN}
        for name in self._options:
            if name in known or name.startswith("kafka.") or name == "path":
                continue
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            _log.warning("unknown option %s is ignored%s", name, hint)


def _subscription(given: _Given) -> Subscription:
    named = given.named("assign", "subscribe", "subscribePattern")
    if len(named) != 1:
        what = " and ".join(named) + " are set" if named else "none is set"
        raise OptionError(
            f"exactly one of subscribe, subscribePattern and assign is required: {what}"
        )
    name, text = named[0], given.text(named[0]) or ""
    if name == "assign":
        return Subscription(assigned=read_partitions(name, text))
    if name == "subscribe":
        return Subscription(topics=read_names(name, text))
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(
            f"subscribePattern={text!r} is not a regular expression: {error}"
        ) from None
    if not text.strip():
        raise OptionError("subscribePattern is empty")
    return Subscription(pattern=text)


def _starting(given: _Given, *, streaming: bool | None) -> Bound:
    strategy = given.text("startingOffsetsByTimestampStrategy")
    latest = None
    if strategy is not None:
        latest = (
            read_choice("startingOffsetsByTimestampStrategy", strategy, "error", "latest")
            == "latest"
        )
    bound = _bound(given, "starting", latest_if_none=latest)
    if bound is None:
        return Place.LATEST if streaming else Place.EARLIEST
    if streaming is False:
        if bound is Place.LATEST:
            raise OptionError("startingOffsets=latest: a batch read that starts there is empty")
        if isinstance(bound, ByOffset) and LATEST in bound.offsets.values():
            raise OptionError("startingOffsets has -1 (latest): a batch read cannot start there")
    return bound


def _ending(given: _Given, *, streaming: bool | None) -> Bound:
    names = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "endingTime")
    if streaming:
        for name in given.named(*names):
            raise OptionError(f"{name} is for batch reads; a stream has no end")
        return Place.LATEST
    bound = _bound(given, "ending", latest_if_none=True)
    if bound is None:
        return Place.LATEST
    if bound is Place.EARLIEST:
        raise OptionError("endingOffsets=earliest: a batch read that ends there is empty")
    if isinstance(bound, ByOffset) and EARLIEST in bound.offsets.values():
        raise OptionError("endingOffsets has -2 (earliest): a batch read cannot end there")
    return bound


def _stops(text: str) -> Mapping[TopicPartition, int]:
    found = read_by_partition("stopOffsets", text)
    for tp, offset in found.items():
        if offset < 0:
            raise OptionError(f"stopOffsets: {tp} has {offset}; expected an offset from 0 on")
    return found


def _bound(given: _Given, side: str, *, latest_if_none: bool | None) -> Bound | None:
    """Returns the bound of one side by the option of the highest precedence; None if none is
    set."""
    timestamp, each, time, offsets = (
        f"{side}Timestamp",
        f"{side}OffsetsByTimestamp",
        f"{side}Time",
        f"{side}Offsets",
    )
    if (text := given.text(timestamp)) is not None:
        moment = read_integer(timestamp, text, at_least=0)
        return ByTime(moment, latest_if_none=bool(latest_if_none), option=timestamp)
    if (text := given.text(each)) is not None:
        times = read_by_partition(each, text)
        return ByTime(each_ms=times, latest_if_none=bool(latest_if_none), option=each)
    if (text := given.text(time)) is not None:
        # "Since two hours ago" is not meant to fail if nothing has arrived since.
        latest = latest_if_none is not False
        if text.strip().startswith("-"):
            ago = -read_time_ms(time, text, 0)
            return ByTime(ago_ms=ago, latest_if_none=latest, option=time)
        return ByTime(read_time_ms(time, text, 0), latest_if_none=latest, option=time)
    if (text := given.text(offsets)) is not None:
        word = text.strip().lower()
        if word in ("earliest", "latest"):
            return Place(word)
        found = read_by_partition(offsets, text)
        for tp, offset in found.items():
            if offset < EARLIEST:
                raise OptionError(f"{offsets} has {offset} for {tp}: expected 0 or more, -1 or -2")
        return ByOffset(found)
    return None


def _bytes_per_trigger(given: _Given) -> int | None:
    text = given.text("maxBytesPerTrigger")
    if text is None:
        # A batch that is limited by offsets needs no other limit.
        text = "none" if given.text("maxOffsetsPerTrigger") else _BYTES_PER_TRIGGER
    return read_size("maxBytesPerTrigger", text)


def _columns(given: _Given) -> tuple[str, ...]:
    text = given.text("columns")
    if text is None:
        with_headers = given.boolean("includeHeaders", False)
        return COLUMNS if with_headers else COLUMNS[:-1]
    known = {name.lower(): name for name in COLUMNS}
    chosen = []
    for name in read_names("columns", text):
        if name.lower() not in known:
            raise OptionError(f"columns has {name!r}: expected some of {', '.join(COLUMNS)}")
        chosen.append(known[name.lower()])
    return tuple(chosen)


def _check(options: SourceOptions, *, streaming: bool | None) -> None:
    client_config(options)
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
    if (options.value_format == "json") != (options.value_schema is not None):
        raise OptionError(
            "valueFormat=json and valueSchema go together: give the fields of the value, such as "
            '"id bigint, amount double"'
        )
    if options.value_schema is not None:
        try:
            field_names(options.value_schema)
        except FieldsError as error:
            raise OptionError(f"valueSchema={options.value_schema!r}: {error}") from None
    if options.value_format != "bytes" and "value" not in options.columns:
        raise OptionError(f"valueFormat={options.value_format}: columns has no value")
    if streaming and options.from_files:
        raise OptionError("read.from=files is for batch reads; streams read from the brokers")
    if options.group is not None and streaming is False:
        _log.warning("option group has no effect in a batch read")


# Values of options. Each reader takes the name of the option for its errors.

_SIZE = re.compile(r"(\d+)\s*(k|m|g|t)?(i?b)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SPAN = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_SPAN_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_OFF = ("none", "off", "unlimited")


def read_boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError(f"{name}={text!r}: expected true or false")
    return lowered == "true"


def read_integer(name: str, text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"{name}={text!r}: expected a whole number") from None
    if value < at_least:
        raise OptionError(f"{name}={value}: expected {at_least} or more")
    return value


def read_fraction(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise OptionError(f"{name}={text!r}: expected a number from 0 to below 1")
    return value


def read_choice(name: str, text: str, *allowed: str) -> str:
    for value in allowed:
        if text.strip().lower() == value.lower():
            return value
    raise OptionError(f"{name}={text!r}: expected {' or '.join(allowed)}")


def read_size(name: str, text: str) -> int | None:
    """Reads a number of bytes: 1048576, 512m, 1g, 64MiB. None for none, off, unlimited or 0."""
    if text.strip().lower() in _OFF:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{name}={text!r}: expected a size such as 64m or 1g, or none")
    return int(found[1]) * _SIZE_UNITS[(found[2] or "").lower()] or None


def read_span_ms(name: str, text: str) -> int:
    """Reads a duration as Spark writes it: 15m, 30s, 100ms; a bare number is milliseconds."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{name}={text!r}: expected a duration such as 30s, 15m or 1h")
    return int(found[1]) * _SPAN_UNITS_US[(found[2] or "").lower()] // 1000


def read_time_ms(name: str, text: str, now_ms: int) -> int:
    """Reads a time: ISO 8601 (UTC by default), or a duration before now: -2h."""
    stripped = text.strip()
    if stripped.startswith("-"):
        return now_ms - read_span_ms(name, stripped[1:])
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise OptionError(
            f"{name}={text!r}: expected a time such as 2026-08-22T10:00:00Z, or -2h for two "
            "hours ago"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def read_names(name: str, text: str) -> tuple[str, ...]:
    """Reads names separated by commas; each counts once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError(f"{name}={text!r}: expected at least one name")
    return found


def read_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Reads {"orders": [0, 1]}."""
    parsed = _json_object(name, text, '{"orders": [0, 1]}')
    found = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise OptionError(f"{name}={text!r}: the partitions of {topic} must be a list")
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise OptionError(f"{name}={text!r}: names no partition")
    return tuple(sorted(set(found)))


def read_by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    """Reads {"orders": {"0": 23, "1": -2}}."""
    example = '{"orders": {"0": 23, "1": 45}}'
    parsed = _json_object(name, text, example)
    found = {}
    for topic, numbers in parsed.items():
        if not isinstance(numbers, Mapping):
            raise OptionError(f"{name}={text!r}: expected JSON such as {example}")
        for partition, number in numbers.items():
            if not partition.isdigit() or isinstance(number, bool) or not isinstance(number, int):
                raise OptionError(
                    f"{name}={text!r}: {topic} has {partition!r}: {number!r}, expected JSON such "
                    f"as {example}"
                )
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise OptionError(f"{name}={text!r}: names no partition")
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name}={text!r}: expected JSON such as {example}")
    return parsed
