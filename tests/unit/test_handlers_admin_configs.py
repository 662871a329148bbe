"""AlterConfigs and IncrementalAlterConfigs: what a broker says before the controller is asked."""

from __future__ import annotations

import pytest

from headwater.broker.handlers import alter_configs, incremental_alter_configs
from headwater.config.alter import AlterOperation
from headwater.errors import ErrorCode
from headwater.metadata import Resource, ResourceType
from headwater.protocol.messages import alter_configs as old
from headwater.protocol.messages import incremental_alter_configs as new
from tests.support.handlers import HandlerBench

SET = AlterOperation.SET
RETENTION = "retention.ms"


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> new.AlterConfigsResource:
    return new.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            new.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )


def incremental(
    bench: HandlerBench, *resources: new.AlterConfigsResource, validate_only: bool = False
) -> list[new.AlterConfigsResourceResponse]:
    request = new.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only
    )
    answer: new.IncrementalAlterConfigsResponse = bench.ask(incremental_alter_configs, request, 1)
    return answer.responses


def code_of(bench: HandlerBench, resource: new.AlterConfigsResource) -> int:
    (answer,) = incremental(bench, resource)
    assert (answer.error_message is None) == (answer.error_code == 0)
    return answer.error_code


@pytest.fixture
def bench() -> HandlerBench:
    made = HandlerBench()
    made.cluster.create("t")
    return made


def test_one_resource_that_is_refused_leaves_the_others_alone(bench: HandlerBench) -> None:
    answers = incremental(
        bench,
        change(ResourceType.TOPIC, "never", (RETENTION, SET, "1000")),
        change(ResourceType.TOPIC, "t", (RETENTION, SET, "1000")),
        change(99, "t", (RETENTION, SET, "1000")),
    )
    assert [(a.resource_name, a.error_code) for a in answers] == [
        ("never", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert bench.image.config(Resource(ResourceType.TOPIC, "t")) == {RETENTION: "1000"}


def test_a_resource_that_is_named_twice_is_refused_both_times(bench: HandlerBench) -> None:
    twice = [change(ResourceType.TOPIC, "t", (RETENTION, SET, value)) for value in ("1", "2")]
    assert [a.error_code for a in incremental(bench, *twice)] == [ErrorCode.INVALID_REQUEST] * 2
    assert bench.image.config(Resource(ResourceType.TOPIC, "t")) == {}


@pytest.mark.parametrize("name", ["2", "x", "1.0"])
def test_a_broker_alters_its_own_settings_only(bench: HandlerBench, name: str) -> None:
    other = change(ResourceType.BROKER, name, ("log.retention.ms", SET, "1000000"))
    assert code_of(bench, other) == ErrorCode.INVALID_REQUEST
    own = change(ResourceType.BROKER, "1", ("log.retention.ms", SET, "1000000"))
    assert code_of(bench, own) == 0


@pytest.mark.parametrize("operation", [-1, 4])
def test_an_unknown_operation_is_refused(bench: HandlerBench, operation: int) -> None:
    asked = change(ResourceType.TOPIC, "t", (RETENTION, operation, "1"))
    assert code_of(bench, asked) == ErrorCode.INVALID_REQUEST


def test_what_is_only_validated_is_not_done(bench: HandlerBench) -> None:
    asked = change(ResourceType.TOPIC, "t", (RETENTION, SET, "1000"))
    (answer,) = incremental(bench, asked, validate_only=True)
    assert answer.error_code == 0
    assert bench.image.config(Resource(ResourceType.TOPIC, "t")) == {}


def test_the_level_of_the_log_changes_while_the_node_runs(bench: HandlerBench) -> None:
    def level(value: str) -> new.AlterConfigsResource:
        return change(ResourceType.BROKER_LOGGER, "1", ("root", SET, value))

    assert code_of(bench, level("DEBUG")) == 0
    assert bench.broker.log.level == "debug"
    assert incremental(bench, level("ERROR"), validate_only=True)[0].error_code == 0
    assert bench.broker.log.level == "debug"
    assert code_of(bench, level("loud")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "logger", "operation", "code"),
    [
        ("1", "no.such.logger", SET, ErrorCode.INVALID_CONFIG),
        ("1", "root", AlterOperation.DELETE, ErrorCode.INVALID_REQUEST),
        ("1", "root", AlterOperation.APPEND, ErrorCode.INVALID_REQUEST),
        ("2", "root", SET, ErrorCode.INVALID_REQUEST),
        ("", "root", SET, ErrorCode.INVALID_REQUEST),
    ],
)
def test_loggers_that_cannot_be_altered(
    bench: HandlerBench, name: str, logger: str, operation: AlterOperation, code: ErrorCode
) -> None:
    asked = change(ResourceType.BROKER_LOGGER, name, (logger, operation, "INFO"))
    assert code_of(bench, asked) == code
    assert bench.broker.log.level == "info"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_old_way_takes_back_what_is_not_named(bench: HandlerBench, version: int) -> None:
    code_of(bench, change(ResourceType.TOPIC, "t", ("segment.ms", SET, "1000")))
    request = old.AlterConfigsRequest(
        resources=[
            old.AlterConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name="t",
                configs=[old.AlterableConfig(name=RETENTION, value="5")],
            ),
            old.AlterConfigsResource(resource_type=ResourceType.BROKER_LOGGER, resource_name="1"),
        ],
        validate_only=False,
    )
    answers = bench.ask(alter_configs, request, version).responses
    assert [a.error_code for a in answers] == [0, ErrorCode.INVALID_REQUEST]
    assert bench.image.config(Resource(ResourceType.TOPIC, "t")) == {RETENTION: "5"}


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("min.insync.replicas", "0", ErrorCode.INVALID_REQUEST),
        ("min.insync.replicas", "1", ErrorCode.INVALID_CONFIG),  # KIP-966: not for one broker
        ("max.connections", "0", ErrorCode.INVALID_REQUEST),
        ("max.connections", "1", ErrorCode.NONE),
        ("metric.reporters", "com.example.Reporter", ErrorCode.INVALID_REQUEST),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", ErrorCode.NONE),
        ("principal.builder.class", "com.example.Builder", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_running_broker_cannot_be_given(
    bench: HandlerBench, key: str, value: str, code: ErrorCode
) -> None:
    assert code_of(bench, change(ResourceType.BROKER, "1", (key, SET, value))) == code
