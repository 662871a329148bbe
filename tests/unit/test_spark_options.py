"""The options of the Spark source: names, precedence and defaults of Spark's own, and ours."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headwater.cli.connection import Cluster
from headwater.model import TopicPartition
from headwater.spark.errors import OptionError
from headwater.spark.options import (
    ByOffset,
    ByTime,
    Place,
    SourceOptions,
    parse,
    read_size,
    read_span_ms,
    read_time_ms,
)
from headwater.spark.pipeline_query import Setting
from headwater.spark.sink import parse as parse_sink
from headwater.streams.running import TopicEnvironment

GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def options(*, streaming: bool = True, **given: Any) -> SourceOptions:
    return parse(GIVEN | given, streaming=streaming)


def refusal(given: dict[str, str], *, streaming: bool = True) -> str:
    with pytest.raises(OptionError) as refused:
        parse(GIVEN | given, streaming=streaming)
    return str(refused.value)


def test_a_stream_may_stop_at_offsets() -> None:
    assert options().stop is None
    given = '{"orders": {"0": 42}, "payments": {}}'
    assert options(stopOffsets=given).stop == {TopicPartition("orders", 0): 42}


def test_a_stream_starts_at_the_latest_and_a_batch_at_the_earliest() -> None:
    assert options().starting is Place.LATEST
    assert options(streaming=False).starting is Place.EARLIEST
    assert options(streaming=False).ending is Place.LATEST


def test_names_do_not_care_about_case() -> None:
    assert options(STARTINGOFFSETS="Earliest").starting is Place.EARLIEST


def test_a_timestamp_is_stronger_than_offsets() -> None:
    given = options(startingOffsets="earliest", startingTimestamp="1000")
    assert given.starting == ByTime(1000, option="startingTimestamp")
    each = options(
        startingOffsets="earliest", startingOffsetsByTimestamp='{"orders": {"0": 5}}'
    ).starting
    assert isinstance(each, ByTime)
    assert each.each_ms == {TopicPartition("orders", 0): 5}


def test_offsets_are_given_for_each_partition() -> None:
    given = options(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert given == ByOffset({TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2})


def test_a_time_is_a_moment_or_so_long_ago() -> None:
    assert read_time_ms("startingTime", "1970-01-01T00:00:01Z", 0) == 1000
    assert read_time_ms("startingTime", "1970-01-01T02:00:01+02:00", 0) == 1000
    assert read_time_ms("startingTime", "-2h", 10_000_000) == 2_800_000
    ago = options(startingTime="-2h").starting
    assert isinstance(ago, ByTime)
    assert (ago.ago_ms, ago.latest_if_none) == (7_200_000, True)


def test_sizes_and_spans_have_units() -> None:
    assert [read_size("x", text) for text in ("1000", "2k", "64MiB", "1g", "none", "0")] == [
        1000,
        2048,
        64 * 1024**2,
        1024**3,
        None,
        None,
    ]
    assert [read_span_ms("x", text) for text in ("15", "15ms", "2s", "15m", "1h")] == [
        15,
        15,
        2000,
        900_000,
        3_600_000,
    ]


def test_a_batch_is_bounded_in_bytes_unless_it_is_bounded_by_offsets() -> None:
    assert options().max_bytes_per_trigger == 2 * 1024**3
    assert options(maxBytesPerTrigger="64m").max_bytes_per_trigger == 64 * 1024**2
    assert options(maxOffsetsPerTrigger="1000").max_bytes_per_trigger is None


def test_the_columns_are_those_of_sparks_own_source() -> None:
    plain = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options().columns == plain
    assert options(includeHeaders="true").columns == (*plain, "headers")
    assert options(columns="offset, value").columns == ("offset", "value")


def test_isolation_comes_from_either_name() -> None:
    assert not options().read_committed
    assert parse(GIVEN | {"kafka.isolation.level": "read_committed"}, streaming=True).read_committed
    assert options(isolation="read_committed").read_committed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": ""}, "subscribe='': expected at least one name"),
        ({"assign": '{"orders": [0]}'}, "exactly one of subscribe, subscribePattern and assign"),
        ({"startingOffsets": "eraliest"}, "startingOffsets='eraliest': expected JSON such as"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets has -3 for orders-0"),
        ({"startingTime": "yesterday"}, "startingTime='yesterday': expected a time such as"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        ({"stopOffsets": '{"orders": {"0": -1}}'}, "stopOffsets: orders-0 has -1; expected an"),
        ({"read.from": "files"}, "read.from=files is for batch reads"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': expected true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0: expected 1 or more"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "9"}, "minOffsetsPerTrigger=9 is"),
        ({"maxBytesPerTrigger": "lots"}, "maxBytesPerTrigger='lots': expected a size such as"),
        ({"columns": "offset,vale"}, "columns has 'vale': expected some of key, value"),
        ({"valueFormat": "json"}, "valueFormat=json and valueSchema go together"),
        (
            {"valueFormat": "json", "valueSchema": "id bigint, amount duoble"},
            "valueSchema='id bigint, amount duoble': field amount: 'duoble' is not a type of Spark",
        ),
        ({"kafka.auto.offset.reset": "none"}, "kafka.auto.offset.reset is not supported: use"),
        ({"kafka.fetch.max.byte": "1"}, "did you mean fetch.max.bytes"),
    ],
)
def test_what_is_wrong_is_said_with_its_value(given: dict[str, str], said: str) -> None:
    assert said in refusal(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets=latest: a batch read"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets has -1 (latest)"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest: a batch read"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets has -2 (earliest)"),
    ],
)
def test_a_batch_has_both_ends(given: dict[str, str], said: str) -> None:
    assert said in refusal(given, streaming=False)


def test_the_broker_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse({"subscribe": "orders"}, streaming=True)


def test_an_option_that_nobody_knows_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        options(startingOfsets="earliest")
    assert "did you mean startingOffsets?" in caplog.text


def test_passwords_are_in_no_repr() -> None:
    """Spark and loggers of applications show what an error was about."""
    login = {"kafka.sasl.jaas.config": 'PlainLoginModule required password="s3cret";'}
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "topic": "t", **login}
    for made in (
        parse(given, streaming=True),
        parse_sink(given),
        Setting(bootstrap="b:1", checkpoints="c", options=login),
        TopicEnvironment(bootstrap="b:1", checkpoints="c", options=login),
        Cluster("b:1", login),
    ):
        assert "s3cret" not in repr(made)
