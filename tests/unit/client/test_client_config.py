"""The settings of the clients: read, checked, and refused with what to do."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, get_type_hints
from uuid import UUID

import pytest

from headwater.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from headwater.client.config_values import duration_ms
from headwater.client.consumer import Consumer
from headwater.client.errors import ClientError, ConfigError
from headwater.client.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from headwater.io import Address

BOOTSTRAP = "localhost:9092"


def refused(cls: type[ClientConfig] = ProducerConfig, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        cls.build(given.pop("bootstrap", BOOTSTRAP), **given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (ClientConfig, ClientSettings),
        (AdminConfig, AdminSettings),
        (ProducerConfig, ProducerSettings),
        (ConsumerConfig, ConsumerSettings),
    ],
)
def test_every_setting_has_a_typed_keyword(config: type[ClientConfig], settings: Any) -> None:
    known = {each.name for each in fields(config) if "read" in each.metadata}
    named = {"bootstrap_servers", *config.ARGUMENTS}  # in the constructor's own signature
    assert known - named == set(get_type_hints(settings))


@pytest.mark.parametrize("cls", [ClientConfig, AdminConfig, ProducerConfig, ConsumerConfig])
def test_every_default_is_a_value_that_its_reader_takes(cls: type[ClientConfig]) -> None:
    for each in fields(cls):
        if "read" in each.metadata and each.default != ():
            assert each.metadata["read"](each.name, each.default) == each.default


def test_keywords_and_kafkas_names_are_one() -> None:
    config = ProducerConfig.build(BOOTSTRAP, config={"linger.ms": "7", "acks": "all"}, retries=3)
    assert (config.linger_ms, config.acks, config.retries) == (7, -1, 3)
    assert config.explicit == {"bootstrap.servers", "linger.ms", "acks", "retries"}


def test_the_bootstrap_may_be_text_or_a_list_or_a_key() -> None:
    both = (Address("a", 1), Address("::1", 9092))
    assert ClientConfig.build("a:1, [::1]").bootstrap_servers == both
    assert ClientConfig.build(["a:1", "[::1]:9092"]).bootstrap_servers == both
    assert ClientConfig.build(config={"bootstrap.servers": "a:1,[::1]"}).bootstrap_servers == both
    assert ClientConfig.build("PLAINTEXT://a:1").bootstrap_servers == (Address("a", 1),)


@pytest.mark.parametrize("bad", ["", "a:", ":9092", "a:x", "a:0", "a:65536", "::1:9092", "a:٣", []])
def test_a_bad_bootstrap_is_refused_with_its_value(bad: Any) -> None:
    assert "expected" in refused(ClientConfig, bootstrap=bad)


def test_no_bootstrap_is_refused() -> None:
    assert "localhost:9092" in refused(ClientConfig, bootstrap=None)


def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    assert "linger_ms" in refused(lingr_ms=3)
    assert "compression.type" in refused(config={"compresion.type": "lz4"})
    assert "did you mean linger.ms?" in refused(config={"linger": 3})
    assert refused(zzzz=1) == "unknown setting zzzz"


def test_a_setting_of_another_client_is_an_error_that_says_whose_it_is() -> None:
    assert refused(AdminConfig, linger_ms=3) == "linger_ms is a producer setting, not an admin one"
    config = {"group.id": "billing"}
    assert refused(config=config) == "group.id is a consumer setting, not a producer one"
    assert refused(ConsumerConfig, acks=1) == "acks is a producer setting, not a consumer one"


def test_python_spelling_in_the_dict_is_an_error_that_says_kafkas() -> None:
    assert "'linger.ms'" in refused(config={"linger_ms": 3})


def test_the_same_key_twice_is_an_error() -> None:
    assert "set twice" in refused(config={"linger.ms": 3}, linger_ms=4)
    assert "set twice" in refused(config={"bootstrap.servers": "a:1"})


@pytest.mark.parametrize(
    "given",
    [
        {"linger_ms": "soon"},
        {"linger_ms": -1},
        {"linger_ms": True},
        {"linger_ms": 1.5},
        {"linger_ms": 2**31},
        {"acks": 2},
        {"acks": True},
        {"compression_type": "brotli"},
        {"enable_idempotence": "maybe"},
        {"key_serializer": "StringSerializer"},
        {"value_serializer": "org.apache.kafka.common.serialization.LongSerializer"},
        {"compression_gzip_level": 0},
        {"compression_gzip_level": 10},
        {"transactional_id": " "},
        {"interceptors": "mine"},
        {"client_id": 5},
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_what_is_expected(given: dict[str, Any]) -> None:
    text = refused(**given)
    name, value = next(iter(given.items()))
    assert name in text
    assert repr(value) in text
    assert "expected" in text


def test_settings_of_a_java_producer_are_taken_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = ProducerConfig.build(
        BOOTSTRAP,
        config={
            "acks": " all ",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "max.block.ms": "9223372036854775807",
            "connections.max.idle.ms": "9223372036854775807",
            "metadata.max.age.ms": "9223372036854775807",
            "compression.gzip.level": "-1",
        },
    )
    assert config.acks == -1
    assert config.key_serializer is None
    assert config.value_serializer is None
    assert not caplog.records


def test_a_lookup_of_names_that_is_not_there_is_said(caplog: pytest.LogCaptureFixture) -> None:
    lookup = "resolve_canonical_bootstrap_servers_only"
    ProducerConfig.build(BOOTSTRAP, config={"client.dns.lookup": lookup})
    assert f"client.dns.lookup={lookup} has no effect" in caplog.text


def test_a_config_error_is_a_client_error_and_a_value_error() -> None:
    assert issubclass(ConfigError, ClientError)
    assert issubclass(ConfigError, ValueError)


def test_a_setting_that_only_kafka_uses_is_taken_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ProducerConfig.build(BOOTSTRAP, config={"metrics.num.samples": 2})
    assert [record.getMessage() for record in caplog.records] == [
        "metrics.num.samples has no effect in this client"
    ]


def test_a_security_protocol_is_one_of_kafkas() -> None:
    assert "SASL_SSL" in refused(security_protocol="TLS")
    built = ClientConfig.build(BOOTSTRAP, security_protocol="sasl_ssl")
    assert built.security_protocol == "SASL_SSL"


def test_what_librdkafka_calls_differently_is_known() -> None:
    assert ClientConfig.build(BOOTSTRAP, sasl_mechanisms="PLAIN").sasl_mechanism == "PLAIN"
    assert "set twice" in refused(sasl_mechanism="PLAIN", sasl_mechanisms="PLAIN")


# Producer


def test_idempotence_gives_way_to_acks_unless_it_was_asked_for() -> None:
    assert ProducerConfig.build(BOOTSTRAP).enable_idempotence
    assert not ProducerConfig.build(BOOTSTRAP, acks=1).enable_idempotence
    assert not ProducerConfig.build(BOOTSTRAP, retries=0).enable_idempotence
    assert "acks=1" in refused(acks=1, enable_idempotence=True)
    assert "retries=0" in refused(retries=0, transactional_id="t")


def test_more_than_five_in_flight_need_idempotence_to_be_switched_off() -> None:
    assert "at most 5" in refused(max_in_flight_requests_per_connection=6)
    config = ProducerConfig.build(
        BOOTSTRAP, max_in_flight_requests_per_connection=6, enable_idempotence=False
    )
    assert config.max_in_flight_requests_per_connection == 6


def test_transactions_need_idempotence() -> None:
    assert "enable_idempotence" in refused(transactional_id="t", enable_idempotence=False)


def test_a_delivery_has_time_for_a_linger_and_a_request() -> None:
    assert "120001" in refused(delivery_timeout_ms=120_000, request_timeout_ms=120_000, linger_ms=1)
    config = ProducerConfig.build(BOOTSTRAP, request_timeout_ms=200_000, linger_ms=1)
    assert config.delivery_timeout_ms == 200_001


# Consumer


def test_auto_commit_needs_a_group() -> None:
    assert not ConsumerConfig.build(BOOTSTRAP).enable_auto_commit
    assert ConsumerConfig.build(BOOTSTRAP, group_id="g").enable_auto_commit
    assert "needs a group" in refused(ConsumerConfig, enable_auto_commit=True)


def test_a_heartbeat_comes_within_a_session() -> None:
    assert "below" in refused(ConsumerConfig, session_timeout_ms=3_000, group_id="g")


def test_each_group_protocol_has_its_own_settings() -> None:
    for name, value in (("session_timeout_ms", 9_000), ("partition_assignment_strategy", "range")):
        text = refused(ConsumerConfig, group_protocol="consumer", group_id="g", **{name: value})
        assert "classic" in text
    assert "consumer" in refused(ConsumerConfig, group_remote_assignor="uniform", group_id="g")


@pytest.mark.parametrize(
    "good", ["earliest", "LATEST", "none", "by_duration:PT1H", "by_duration:P1DT2.5S"]
)
def test_a_reset_may_be_a_word_or_a_duration(good: str) -> None:
    assert ConsumerConfig.build(BOOTSTRAP, auto_offset_reset=good)


@pytest.mark.parametrize(
    "bad", ["smallest", "by_duration:", "by_duration:PT", "by_duration:-PT1H", "by_duration:P", 5]
)
def test_another_reset_is_refused(bad: Any) -> None:
    assert "by_duration:PT1H" in refused(ConsumerConfig, auto_offset_reset=bad)


def test_a_duration_in_milliseconds() -> None:
    assert duration_ms("P1DT2H3M4.5678S") == (((24 + 2) * 60 + 3) * 60 + 4) * 1000 + 567


def test_an_address_of_the_web_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"http://h:9092.*HOST:PORT"):
        ProducerConfig.build("http://h:9092")


def test_an_unknown_assignor_is_refused_where_it_is_given() -> None:
    with pytest.raises(ConfigError, match="'nope' is unknown; use range"):
        Consumer("h:1", group="g", partition_assignment_strategy=["nope"])


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("ByteArrayDeserializer", b"\xff", b"\xff"),
        ("StringDeserializer", "é".encode(), "é"),
        ("ShortDeserializer", b"\xff\xfe", -2),
        ("IntegerDeserializer", b"\0\0\1\0", 256),
        ("LongDeserializer", b"\0" * 7 + b"\2", 2),
        ("FloatDeserializer", b"\x3f\x80\0\0", 1.0),
        ("DoubleDeserializer", b"\x3f\xf0" + b"\0" * 6, 1.0),
        ("BooleanDeserializer", b"\1", True),
        (
            "UUIDDeserializer",
            b"123e4567-e89b-12d3-a456-426614174000",
            UUID("123e4567-e89b-12d3-a456-426614174000"),
        ),
    ],
)
def test_the_deserializers_of_the_java_client_are_known(name: str, data: bytes, value: Any) -> None:
    given = {"value.deserializer": f"org.apache.kafka.common.serialization.{name}"}
    made = ConsumerConfig.build(BOOTSTRAP, config=given).value_deserializer
    assert (data if made is None else made(data)) == value


def test_a_deserializer_that_nobody_knows_is_refused() -> None:
    told = refused(ConsumerConfig, config={"key.deserializer": "com.example.OrderDeserializer"})
    assert "key.deserializer='com.example.OrderDeserializer'" in told
    assert "StringDeserializer" in told


def test_times_that_are_long_in_kafka_may_be_long_here() -> None:
    config = ConsumerConfig.build(BOOTSTRAP, config={"metadata.max.age.ms": 2**63 - 1})
    assert config.metadata_max_age_ms == 2**63 - 1


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [("topic", "topics"), ("listner", "listener"), ("on_bad_records", "on_bad_record")],
)
def test_a_misspelt_argument_of_the_consumer_is_named_with_the_one_that_was_meant(
    spelled: str, meant: str
) -> None:
    arguments: Any = {spelled: None}
    with pytest.raises(ConfigError, match=rf"{spelled}; did you mean {meant}\?"):
        Consumer(BOOTSTRAP, **arguments)


def test_every_argument_of_the_consumer_is_known_to_its_settings() -> None:
    named = {
        each.name
        for each in inspect.signature(Consumer.__init__).parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    }
    assert named - {"self", "host"} == set(ConsumerConfig.ARGUMENTS)
