"""The options of the sink."""

from __future__ import annotations

import pytest

from headwater.spark.errors import OptionError
from headwater.spark.sink import parse

CLUSTER = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}


def test_a_delivery_that_the_sink_cannot_give_is_refused() -> None:
    with pytest.raises(OptionError, match="exactly_once_writer"):
        parse({**CLUSTER, "delivery": "exactly_once"})


def test_the_delivery_that_the_sink_gives_may_be_named() -> None:
    assert parse({**CLUSTER, "delivery": "at_least_once"}) == parse(CLUSTER)
