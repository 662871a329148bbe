"""Classes of the user's own: authorizers and policies, and what becomes of one that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from headwater.broker.plugins import (
    NoPrincipal,
    Peer,
    PrincipalBuilders,
    build_authorizer,
    build_policies,
)
from headwater.config import ConfigError, node_config
from headwater.controller.policies import NewTopic
from headwater.errors import ErrorCode
from headwater.metadata import Resource, ResourceType
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.security.principal import Principal
from tests.support.controllers import Bench

ALICE = Principal("User", "alice")
READ_T = ("10.0.0.1", Operation.READ, AclResource.TOPIC, "t")


class Guard:
    def configure(self, settings: Mapping[str, str]) -> None:
        self.directory = settings["log.dirs"]

    def allows(self, principal: Principal, host: str, *question: Any) -> bool:
        if principal.name == "broken":
            raise KeyError(self.directory)
        return principal.name == "alice"


class SmallTopics:
    def validate(self, topic: NewTopic) -> None:
        if topic.partitions is None or topic.partitions > 3:
            raise ValueError(f"{topic.name}: at most 3 partitions")
        if topic.name == "broken":
            raise KeyError("oh")


class NoRetention:
    def validate(self, resource: Resource, configs: Mapping[str, str | None]) -> None:
        if "retention.ms" in configs:
            raise ValueError(f"retention.ms of {resource.name} is not yours to set")


class ByDepartment:
    def build(self, peer: Peer) -> Any:
        match peer.user:
            case "mallory":
                raise ValueError("mallory has left")
            case "broken":
                raise KeyError("oh")
            case "wrong":
                return "no-type"
        return f"User:{peer.user}@{peer.listener.lower()}"


class Nothing:
    pass


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    made = ModuleType("company")
    for each in (Guard, SmallTopics, NoRetention, ByDepartment, Nothing):
        setattr(made, each.__name__, each)
    sys.modules["company"] = made
    yield
    del sys.modules["company"]


def config(**settings: str) -> Any:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return node_config({"log.dirs": "/d"} | named)


def test_an_authorizer_of_the_users_own_is_asked_and_its_failure_denies() -> None:
    failures: list[str] = []
    made = build_authorizer(
        config(authorizer_class_name="python:company.Guard"),
        lambda text, error: failures.append(f"{text}: {error}"),
    )
    assert made is not None
    assert not made.keeps_rules
    assert made.allows(ALICE, *READ_T)
    assert not made.allows(Principal("User", "bob"), *READ_T)
    assert not made.allows(Principal("User", "broken"), *READ_T)
    assert failures == ["the authorizer failed, and the request was denied: '/d'"]
    assert not made.allows_any(ALICE, *READ_T[:3])  # it cannot tell


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python:company.Nothing", "a class with the method allows"),
        ("python:company.Missing", "AttributeError"),
        ("python:nowhere.Guard", "ModuleNotFoundError"),
        ("python:Guard", "expected python:MODULE.CLASS"),
    ],
)
def test_a_class_that_cannot_be_had_ends_the_start(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_authorizer(config(authorizer_class_name=name), lambda text, error: None)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["alice", "User:"])
def test_super_users_must_be_principals(text: str) -> None:
    settings = config(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users=text,
    )
    with pytest.raises(ConfigError) as refused:
        build_authorizer(settings, lambda text, error: None)
    assert refused.value.key == "super.users"


def test_policies_refuse_single_topics_and_settings() -> None:
    failures: list[str] = []
    policies = build_policies(
        config(
            create_topic_policy_class_name="python:company.SmallTopics",
            alter_config_policy_class_name="python:company.NoRetention",
        ),
        lambda text, error: failures.append(text),
    )
    bench = Bench([1])
    bench.machine.state.policies = policies
    assert bench.create("small", 3).error_code == 0
    refused = bench.create("large", 4)
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert refused.error_message == "large: at most 3 partitions"
    assert bench.create("assigned", -1, -1, assignments=[(0, [1])]).error_code == (
        ErrorCode.POLICY_VIOLATION
    )
    assert bench.create("broken").error_code == ErrorCode.POLICY_VIOLATION
    assert len(failures) == 1
    topic = Resource(ResourceType.TOPIC, "small")
    outcome = bench.do(
        bench.machine.decide_alter_configs([(topic, [("retention.ms", "5")])], validate_only=False)
    )
    refusal = outcome[topic]
    assert refusal is not None
    assert refusal.code is ErrorCode.POLICY_VIOLATION
    assert "not yours to set" in str(refusal)
    assert bench.machine.image.config(topic) == {}


def test_a_principal_builder_names_users_and_its_failure_lets_nobody_in() -> None:
    failures: list[str] = []
    builders = PrincipalBuilders(
        config(
            **{
                "principal.builder.class": "python:company.ByDepartment",
                "listener.name.plaintext.principal.builder.class": (
                    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
                ),
            }
        ),
        lambda text, error: failures.append(text),
    )
    assert builders
    assert builders.of("PLAINTEXT") is None
    build = builders.of("TEAM")
    assert build is not None

    def peer(user: str) -> Peer:
        return Peer("TEAM", "SASL_SSL", "10.0.0.1", user, "PLAIN")

    assert build(peer("alice")) == Principal("User", "alice@team")
    for user, said in (
        ("mallory", "mallory has left"),
        ("broken", "the principal builder failed"),
        ("wrong", "returned 'no-type', expected TYPE:NAME"),
    ):
        with pytest.raises(NoPrincipal, match=said):
            build(peer(user))
    assert failures == ["the principal builder failed, and a client was refused"]


def test_without_a_principal_builder_there_is_none() -> None:
    builders = PrincipalBuilders(config(), lambda text, error: None)
    assert not builders
    assert builders.of("PLAINTEXT") is None
    with pytest.raises(ConfigError, match="a class with the method build"):
        PrincipalBuilders(
            config(principal_builder_class="python:company.Nothing"), lambda text, error: None
        )
