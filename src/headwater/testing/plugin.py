"""The pytest plugin: a real broker for each test that names it.

    def test_my_service(headwater_broker):
        service = Service(bootstrap=headwater_broker.bootstrap)

Installing headwater is enough; nothing has to be imported. `headwater_broker` is new for each test,
`headwater_shared_broker` lives as long as the session, and `make_headwater_broker` starts as many
as a test needs. Settings have Kafka's names. The call overrides the nearest marker, and the marker
overrides the ini file; a marker may name topics, too:

    [tool.pytest.ini_options]
    headwater_settings = ["num.partitions=3"]

    @pytest.mark.headwater({"auto.create.topics.enable": "false"}, topics={"orders": 3})

With `tls=True` in the marker or the call, the broker's listener is encrypted; with
`users={"alice": "secret"}` clients have to log in. `client_settings` is what they need then.

`headwater_topology` runs the topology of a streams app without a cluster:

    def test_orders_are_summed(headwater_topology):
        test = headwater_topology(app)
        test.pipe("orders", Order("tea", 2.5), key="alice")
        assert test.table("totals") == {"tea": 2.5}

and `headwater_processor(Silence, late="10 seconds")` one of its processors, without Spark.

`headwater_cluster` is a cluster of three nodes, each a process that the test may kill, pause or cut
off; `make_headwater_cluster` starts one of any size, and so does a marker with `nodes=5`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.processor import Processor
    from headwater.streams.processor_test import ProcessorTest
    from headwater.streams.topology_test import TopologyTest
    from headwater.testing.cluster import HeadwaterCluster
    from headwater.testing.embedded import EmbeddedBroker

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741  # as in headwater.streams

_INI = "headwater_settings"
_LINES_SHOWN_MAX = 50
_NODES_DEFAULT = 3
_BROKERS = pytest.StashKey[list["EmbeddedBroker | HeadwaterCluster"]]()
_SHARED = pytest.StashKey["EmbeddedBroker"]()


class MakeHeadwaterBroker(Protocol):
    """The type of `make_headwater_broker`; the arguments are those of `EmbeddedBroker`."""

    def __call__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
        topics: Mapping[str, int] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> EmbeddedBroker: ...


class MakeHeadwaterCluster(Protocol):
    """The type of `make_headwater_cluster`; the arguments are those of `HeadwaterCluster`."""

    def __call__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int | None = None,
        data: str | os.PathLike[str] | None = None,
        memory: bool = False,
        topics: Mapping[str, int] | None = None,
        racks: Sequence[str] = (),
    ) -> HeadwaterCluster: ...


class MakeTopologyTest(Protocol):
    """The type of `headwater_topology`."""

    def __call__(self, app: App) -> TopologyTest: ...


class MakeProcessorTest(Protocol):
    """The type of `headwater_processor`; what it takes is what `ProcessorTest` takes."""

    def __call__(
        self, processor: type[Processor[K, V, O]], **settings: Any
    ) -> ProcessorTest[K, V, O]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _INI,
        "settings of the brokers that tests get, each `key=value`",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "headwater(settings, topics, nodes, tls, users): settings, topics with their number of "
        "partitions, number of nodes, TLS and users of the broker or cluster that this test gets",
    )


@pytest.fixture
def headwater_broker(make_headwater_broker: MakeHeadwaterBroker) -> EmbeddedBroker:
    """A broker for this test: empty, in memory, on a free port."""
    return make_headwater_broker()


@pytest.fixture(scope="session")
def headwater_shared_broker(pytestconfig: pytest.Config) -> Iterator[EmbeddedBroker]:
    """One broker for the whole session, for tests that use their own topics."""
    from headwater.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(_ini_settings(pytestconfig)) as broker:
        pytestconfig.stash[_SHARED] = broker
        yield broker


@pytest.fixture
def make_headwater_broker(request: pytest.FixtureRequest) -> Iterator[MakeHeadwaterBroker]:
    """Starts brokers with their own settings or data directory; they end with the test."""
    from headwater.testing.embedded import EmbeddedBroker

    marked = _marked(request.node)
    base = _ini_settings(request.config) | marked.settings
    with ExitStack() as running:

        def make(
            settings: Mapping[str, str] | None = None,
            *,
            data: str | os.PathLike[str] | None = None,
            topics: Mapping[str, int] | None = None,
            tls: bool = False,
            users: Mapping[str, str] | None = None,
        ) -> EmbeddedBroker:
            broker = EmbeddedBroker(
                base | dict(settings or {}),
                data=data,
                topics=marked.topics | dict(topics or {}),
                tls=tls or marked.tls,
                users=users or marked.users,
            )
            running.enter_context(broker)
            request.node.stash.setdefault(_BROKERS, []).append(broker)
            return broker

        yield make


@pytest.fixture
def headwater_cluster(make_headwater_cluster: MakeHeadwaterCluster) -> HeadwaterCluster:
    """A cluster for this test: three nodes, each a process of its own, on free ports."""
    return make_headwater_cluster()


@pytest.fixture
def make_headwater_cluster(request: pytest.FixtureRequest) -> Iterator[MakeHeadwaterCluster]:
    """Starts clusters with their own settings and number of nodes; they end with the test."""
    from headwater.testing.cluster import HeadwaterCluster

    marked = _marked(request.node)
    base = _ini_settings(request.config) | marked.settings
    with ExitStack() as running:

        def make(
            settings: Mapping[str, str] | None = None,
            *,
            nodes: int | None = None,
            data: str | os.PathLike[str] | None = None,
            memory: bool = False,
            topics: Mapping[str, int] | None = None,
            racks: Sequence[str] = (),
        ) -> HeadwaterCluster:
            cluster = HeadwaterCluster(
                base | dict(settings or {}),
                nodes=nodes or marked.nodes,
                data=data,
                memory=memory,
                topics=marked.topics | dict(topics or {}),
                racks=racks,
            )
            request.node.stash.setdefault(_BROKERS, []).append(cluster)
            return running.enter_context(cluster)

        yield make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Shows the logs of a test's brokers and clusters if the test fails."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for broker in _brokers_of(item):
            if lines := broker.log_lines[-_LINES_SHOWN_MAX:]:
                report.sections.append((f"headwater {broker.bootstrap}", "".join(lines)))
    if call.when == "teardown":
        item.stash[_BROKERS] = []  # pytest keeps the items of a session, and need not keep these


def _brokers_of(item: pytest.Item) -> list[EmbeddedBroker | HeadwaterCluster]:
    brokers = [*item.stash.get(_BROKERS, ())]
    if "headwater_shared_broker" in getattr(item, "fixturenames", ()):
        shared = item.config.stash.get(_SHARED, None)
        brokers += [] if shared is None else [shared]
    return brokers


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini(_INI):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_INI}: {line!r} is not key=value")
        settings[key.strip()] = value.strip()
    return settings


class _Marked(NamedTuple):
    settings: dict[str, str]
    topics: dict[str, int]
    nodes: int = _NODES_DEFAULT
    tls: bool = False
    users: Mapping[str, str] | None = None


def _marked(node: pytest.Item) -> _Marked:
    marker = node.get_closest_marker("headwater")
    if marker is None:
        return _Marked({}, {})

    def read(
        settings: Mapping[str, str] | None = None,
        topics: Mapping[str, int] | None = None,
        nodes: int = _NODES_DEFAULT,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> _Marked:
        return _Marked(dict(settings or {}), dict(topics or {}), nodes, tls, users)

    try:
        return read(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(
            f"@pytest.mark.headwater takes settings={{...}}, topics={{...}}, nodes=N, tls=True and "
            f"users={{...}}: {error}"
        ) from error


@pytest.fixture
def headwater_topology() -> Iterator[MakeTopologyTest]:
    """Runs topologies of streams apps on one Spark session, which all tests share."""
    from headwater.streams.topology_test import TopologyTest

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(TopologyTest(app))


@pytest.fixture
def headwater_processor() -> MakeProcessorTest:
    """Runs processors of streams apps without Spark: `headwater_processor(Silence, late=...)`."""
    from headwater.streams.processor_test import ProcessorTest

    return lambda processor, **settings: ProcessorTest(processor, **settings)
