"""The options of the sink."""

from __future__ import annotations

import pytest

from headwater.spark.errors import OptionError
from headwater.spark.sink import parse

CLUSTER = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}


def test_delivery_is_at_least_once_unless_it_is_asked_for() -> None:
    assert not parse(CLUSTER).exactly_once
    assert not parse({**CLUSTER, "delivery": "at_least_once"}).exactly_once
    assert parse({**CLUSTER, "delivery": "Exactly_Once"}).exactly_once


def test_a_delivery_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OptionError, match=r"delivery='twice': expected at_least_once or exactly"):
        parse({**CLUSTER, "delivery": "twice"})


def test_settings_that_contradict_transactions_are_refused_when_the_query_is_planned() -> None:
    options = {**CLUSTER, "kafka.enable.idempotence": "false", "kafka.acks": "1"}
    parse(options)
    with pytest.raises(OptionError, match="idempotence"):
        parse({**options, "delivery": "exactly_once"})
    with pytest.raises(OptionError, match="the sink chooses its own"):
        parse({**CLUSTER, "kafka.transactional.id": "mine"})
