"""Fixtures of the claims: the subject, Kafka's jars, and running a tool against it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import kafka_jars
from harness.clusters import COMBINED, Cluster
from harness.nodes import Flavour, Headwater, Kafka, Node, run_java

_NODE_PACKAGES = ("kafkajs", "kafkajs-snappy", "kafkajs-lz4", "zstd-codec")

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Subject:
    """A broker that is up, ours or somebody else's, and Kafka's tools aimed at it."""

    bootstrap: str
    jars: Path

    def tool(self, main: str, *arguments: str, stdin: str | None = None) -> str:
        """Runs a tool that takes --bootstrap-server and must succeed; gives what it printed."""
        aimed = ["--bootstrap-server", self.bootstrap, *arguments]
        done = run_java(self.jars, main, *aimed, stdin=stdin)
        return done.stdout + done.stderr

    def refusal(self, main: str, *arguments: str) -> str:
        """The same for a call that must be refused."""
        try:
            printed = self.tool(main, *arguments)
        except AssertionError as refused:
            return str(refused)
        raise AssertionError(f"{main} {' '.join(arguments)} was not refused:\n{printed}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--subject", choices=("headwater", "kafka"), default="headwater")
    parser.addoption("--bootstrap", help="aim at a broker that is already up, HOST:PORT")


@pytest.fixture(scope="session")
def jars() -> Path:
    return kafka_jars.jars(kafka_jars.kafka_version())


@pytest.fixture(scope="session")
def flavour(request: pytest.FixtureRequest, jars: Path) -> Flavour:
    return Kafka(jars) if request.config.getoption("--subject") == "kafka" else Headwater()


@pytest.fixture(scope="session")
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, jars: Path
) -> Iterator[Subject]:
    """One broker for all claims that need no folder of their own."""
    bootstrap = request.config.getoption("--bootstrap")
    if bootstrap:
        yield Subject(bootstrap, jars)
        return
    flavour: Flavour = request.getfixturevalue("flavour")
    node = Node(flavour, tmp_path_factory.mktemp("subject")).start()
    yield Subject(node.bootstrap, jars)
    node.raise_if_ended()
    node.stop()
    node.remove()


@pytest.fixture
def new_node(
    request: pytest.FixtureRequest, flavour: Flavour, tmp_path: Path
) -> Iterator[Callable[..., Node]]:
    """Makes nodes on folders of their own, for claims about processes and files."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("needs a node of its own, not --bootstrap")
    made: list[Node] = []

    def make(kind: Flavour | None = None, **settings: str) -> Node:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        made.append(Node(kind or flavour, tmp_path / f"node-{len(made)}", named))
        return made[-1]

    yield make
    for node in made:
        node.remove()


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def cluster(
    request: pytest.FixtureRequest, flavour: Flavour, jars: Path, tmp_path: Path
) -> Iterator[Cluster]:
    """One node and three, for claims about processes that are killed together with nodes."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("needs nodes of its own, not --bootstrap")
    with Cluster(
        tmp_path / "cluster",
        jars if isinstance(flavour, Kafka) else None,
        roles=(COMBINED,) * request.param,
        settings={"group.initial.rebalance.delay.ms": "0"},
    ) as made:
        yield made.start()


@pytest.fixture
def topic() -> str:
    """A name that no other claim uses."""
    return f"conformance-{next(_numbers)}"


@pytest.fixture(scope="session")
def node_modules() -> Path:
    folder = kafka_jars.cache_folder() / "node"
    if not all((folder / "node_modules" / name).exists() for name in _NODE_PACKAGES):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([*command, *_NODE_PACKAGES], cwd=folder, check=True)
    return folder / "node_modules"
