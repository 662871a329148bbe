"""Values of settings: text to value and back, rules, and what a refusal says."""

from __future__ import annotations

import pytest

from headwater.config import (
    ConfigError,
    ConfigType,
    broker_definition,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    parse,
    render,
    topic_definitions,
)
from headwater.config.values import parse_value, render_value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, " 9223372036854775807\t", 2**63 - 1),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "1.5f", 1.5),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.STRING, " x y ", "x y"),
    ],
)
def test_text_is_read_as_kafka_reads_it(kind: ConfigType, text: str, value: object) -> None:
    assert parse_value("key", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "5.0"),
        (ConfigType.INT, ""),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "\u00a05"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.CLASS, " "),
    ],
)
def test_text_of_another_type_is_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_value("some.key", kind, text)
    assert refused.value.key == "some.key"
    assert "some.key" in str(refused.value)
    assert "expected" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.0001, "1.0E-4"),
        (123456789.5, "1.234567895E8"),
        (-2.5e-7, "-2.5E-7"),
        (0.0, "0.0"),
    ],
)
def test_a_double_is_printed_as_java_prints_it(value: float, text: str) -> None:
    assert render_value(ConfigType.DOUBLE, value) == text


def test_every_default_satisfies_its_own_rule_and_survives_a_round_trip() -> None:
    for table in (
        broker_definitions(),
        topic_definitions(),
        group_definitions(),
        client_metrics_definitions(),
    ):
        for definition in table.values():
            if definition.default is None:
                continue
            text = render(definition, definition.default)
            assert parse(definition, text) == definition.default, definition.name


def test_every_setting_has_one_short_sentence_of_documentation() -> None:
    for table in (broker_definitions(), topic_definitions(), group_definitions()):
        for definition in table.values():
            assert definition.doc.endswith("."), definition.name
            assert 10 < len(definition.doc) < 97, definition.name


def test_an_item_given_twice_in_a_list_counts_once() -> None:
    policy = topic_definitions()["cleanup.policy"]
    assert parse(policy, "compact, compact,delete") == ("compact", "delete")


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("cleanup.policy", "", True),
        ("cleanup.policy", "compact,,delete", False),
        ("cleanup.policy", "Compact", False),
        ("compression.gzip.level", "-1", True),
        ("compression.gzip.level", "0", False),
        ("compression.zstd.level", "23", False),
        ("compression.type", "none", False),
        ("segment.bytes", "1048575", False),
        ("segment.bytes", "1048576", True),
        ("min.cleanable.dirty.ratio", "1.1", False),
        ("leader.replication.throttled.replicas", "*", True),
        ("leader.replication.throttled.replicas", "0:1, 2:3", True),
        ("leader.replication.throttled.replicas", "none", False),
    ],
)
def test_the_rules_of_topics_are_kafkas(name: str, text: str, allowed: bool) -> None:
    definition = topic_definitions()[name]
    if allowed:
        parse(definition, text)
    else:
        with pytest.raises(ConfigError):
            parse(definition, text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("earliest", True),
        ("Earliest", False),
        ("by_duration:P1DT2H3M4.5S", True),
        ("by_duration:pt5s", True),
        ("by_duration:PT1H-30M", True),
        ("by_duration:-PT-1H", True),
        ("by_duration:PT-5S", False),
        ("by_duration:P1Y", False),
        ("by_duration:PT", False),
        ("BY_DURATION:PT5S", False),
    ],
)
def test_a_share_group_begins_earliest_latest_or_a_duration_back(text: str, allowed: bool) -> None:
    definition = group_definitions()["share.auto.offset.reset"]
    assert definition.rule is not None
    assert (definition.rule.expected_instead_of(text) is None) == allowed


def test_a_refused_secret_is_not_repeated() -> None:
    error = ConfigError("ssl.key.password", "hunter2", "expected something else", secret=True)
    assert "hunter2" not in str(error)
    assert error.value is None


def test_the_key_of_a_listener_leads_to_its_setting() -> None:
    override = broker_definition("listener.name.inside.plain.sasl.jaas.config")
    assert override is not None
    assert override.name == "sasl.jaas.config"
    assert broker_definition("listener.name.inside.nothing") is None
