"""Rights: requests need those that Kafka asks for, and Kafka's AclCommand manages the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters import COMBINED, Cluster
from harness.nodes import Flavour, Kafka, run_java
from harness.rights import ROWS, Guard, Row, trials

_ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def guards(
    tmp_path_factory: pytest.TempPathFactory, jars: Path, flavour: Flavour
) -> Iterator[tuple[Guard, Guard]]:
    """Kafka, and the subject, each with the same topics, groups and rules."""
    folder = tmp_path_factory.mktemp("guards")
    subject_jars = jars if isinstance(flavour, Kafka) else None
    clusters = [
        Cluster(folder / name, kind, roles=(COMBINED,), settings=dict(Guard.SETTINGS))
        for name, kind in (("kafka", jars), ("subject", subject_jars))
    ]
    try:
        for cluster in clusters:
            cluster.start()
        kafka, subject = (Guard(each.bootstrap, each.bootstrap_controllers) for each in clusters)
        yield kafka, subject
        kafka.close()
        subject.close()
    finally:
        for cluster in clusters:
            cluster.remove()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_request_needs_the_rights_that_kafka_asks_for(
    guards: tuple[Guard, Guard], row: Row
) -> None:
    kafka, subject = guards
    for name, rights in trials(row):
        assert subject.ask(row, rights) == kafka.ask(row, rights), name


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, jars: Path, flavour: Flavour
) -> Iterator[Cluster]:
    settings = {
        "authorizer.class.name": Guard.SETTINGS["authorizer.class.name"],
        "super.users": "User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("guarded")
    subject_jars = jars if isinstance(flavour, Kafka) else None
    with Cluster(folder, subject_jars, roles=(COMBINED,), settings=settings) as cluster:
        yield cluster.start()


def test_kafkas_acl_command_adds_lists_and_removes_rules(guarded: Cluster, jars: Path) -> None:
    def acls(*arguments: str, controller: bool = False) -> str:
        aimed = (
            ["--bootstrap-controller", guarded.bootstrap_controllers]
            if controller
            else ["--bootstrap-server", guarded.bootstrap]
        )
        return run_java(jars, _ACLS, *aimed, *arguments).stdout

    alice = ("--allow-principal", "User:alice")
    acls("--add", *alice, "--producer", "--topic", "orders", "--transactional-id", "t")
    acls("--add", *alice, "--consumer", "--group", "g", "--topic", "orders-",
         "--resource-pattern-type", "prefixed")  # fmt: skip
    acls("--add", "--deny-principal", "User:mallory", "--deny-host", "10.0.0.7", "--operation",
         "All", "--cluster", controller=True)  # fmt: skip
    listed = acls("--list")
    for shown in (
        "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)",
        "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)",
        "ResourcePattern(resourceType=GROUP, name=g, patternType=PREFIXED)",
        "ResourcePattern(resourceType=TRANSACTIONAL_ID, name=t, patternType=LITERAL)",
        "(principal=User:mallory, host=10.0.0.7, operation=ALL, permissionType=DENY)",
        "(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)",
    ):
        assert shown in listed, shown
    applying = acls("--list", "--topic", "orders-eu", "--resource-pattern-type", "match")
    assert "name=orders-," in applying
    assert "name=orders," not in applying
    acls(
        "--remove", "--force", *alice, "--producer", "--topic", "orders", "--transactional-id", "t"
    )
    acls("--remove", "--force", "--cluster", controller=True)
    left = acls("--list")
    assert "name=orders," not in left
    assert "mallory" not in left
    assert "name=orders-," in left
