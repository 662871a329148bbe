"""The options and columns of the sink, checked before anything is written.

A row becomes a record by its columns: `value` (required), `key`, `topic`, `partition`, `headers`,
`timestamp`, by name and in any order; others are ignored. Option `topic` is for all rows. Values
and keys are binary or string. The names of options are those of Spark's own Kafka sink.

Delivery is at least once by default: a producer is idempotent and writes nothing twice by itself,
but Spark runs a failed task again, and a micro-batch after a crash. With delivery=exactly_once
`sink_transactions` writes instead of `writer`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headwater.client.config import ProducerConfig
from headwater.client.errors import ConfigError
from headwater.spark.errors import OptionError
from headwater.spark.options import read_choice

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import DataType, StructType

_log = logging.getLogger("headwater.spark")

COLUMNS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
# Spark adds options of its own to those of the user.
_KNOWN = (
    "topic",
    "delivery",
    "includeHeaders",
    "checkpointLocation",
    "path",
    "queryName",
    "outputMode",
)
_REFUSED = {
    "key.serializer": "keys are bytes or text; cast the column",
    "value.serializer": "values are bytes or text; cast the column",
    "transactional.id": "with delivery=exactly_once the sink chooses its own",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None
    # The kafka.* ones, without the prefix, in order.
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    exactly_once: bool = False

    def client_config(self) -> ProducerConfig:
        """Returns the settings of the producer. OptionError if one of kafka.* is invalid."""
        try:
            return ProducerConfig.build(self.bootstrap, config=dict(self.settings))
        except ConfigError as error:
            raise OptionError(f"kafka.* settings: {error}") from None

    def transactional(self) -> dict[str, str]:
        """Returns the settings of a producer in a transaction."""
        return {
            # Its batches are shuffled before they are sent.
            "compression.type": "lz4",
            "transaction.timeout.ms": "900000",  # what brokers allow by default
            **dict(self.settings),
        }

    def transactional_config(self, transactional_id: str) -> ProducerConfig:
        settings = {**self.transactional(), "transactional.id": transactional_id}
        try:
            return ProducerConfig.build(self.bootstrap, config=settings)
        except ConfigError as error:
            raise OptionError(f"kafka.* settings: {error}") from None


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceWriter:
    if overwrite:
        raise OptionError(
            'a topic cannot be overwritten: write with mode("append"), or delete its records first'
        )
    checked = parse(options)
    check_columns(schema, checked.topic)
    if checked.exactly_once:
        from headwater.spark.sink_transactions import WholeWriter

        return WholeWriter(checked)
    from headwater.spark.writer import BatchWriter

    return BatchWriter(checked)


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamWriter:
    """Makes the writer of a stream. `overwrite` is output mode complete: each batch has the whole
    result, and all of it is written, as by Spark's own sink."""
    checked = parse(options)
    check_columns(schema, checked.topic)
    if checked.exactly_once:
        from headwater.spark.sink_transactions import ExactlyOnceStreamWriter

        return ExactlyOnceStreamWriter(checked)
    from headwater.spark.writer import StreamWriter

    return StreamWriter(checked)


def parse(options: Mapping[str, str]) -> SinkOptions:
    """Parses the options of a query. OptionError names the invalid one."""
    given = {name.lower(): str(value) for name, value in options.items()}
    settings = {
        name.removeprefix("kafka."): value
        for name, value in given.items()
        if name.startswith("kafka.")
    }
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name not in known and not name.startswith("kafka."):
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            _log.warning("unknown option %s is ignored%s", name, hint)
    delivery = read_choice(
        "delivery", given.get("delivery", "at_least_once"), "at_least_once", "exactly_once"
    )
    for name, advice in _REFUSED.items():
        if name in settings:
            raise OptionError(f"kafka.{name} is not supported: {advice}")
    bootstrap = settings.pop("bootstrap.servers", "").strip()
    if not bootstrap:
        raise OptionError("kafka.bootstrap.servers is missing: set it to host:port[,host:port]")
    settings.setdefault("client.id", "headwater-spark")
    topic = given.get("topic", "").strip() or None
    exactly_once = delivery == "exactly_once"
    parsed = SinkOptions(bootstrap, topic, tuple(sorted(settings.items())), exactly_once)
    parsed.client_config()
    if exactly_once:
        parsed.transactional_config("checked")
    return parsed


def check_columns(schema: StructType, topic: str | None) -> None:
    """Checks that rows can become records. OptionError names the column and the expected type."""
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    where = "" if topic is None else f"topic {topic}: "
    if "value" not in types:
        raise OptionError(
            f"{where}column value is missing: there are {', '.join(types) or 'no columns'}; add "
            'one, for example with to_json(struct("*")).alias("value")'
        )
    if topic is None and "topic" not in types:
        raise OptionError("no topic: set option topic, or add a column topic")
    for name, expected in COLUMNS.items():
        found = types.get(name)
        if found is not None and found.simpleString() not in expected:
            raise OptionError(
                f"{where}column {name} is {found.simpleString()}: expected {' or '.join(expected)}"
            )
