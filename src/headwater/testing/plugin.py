"""The pytest plugin: a real broker for each test that names it.

    def test_my_service(headwater_broker):
        service = Service(bootstrap=headwater_broker.bootstrap)

Installing headwater is enough; nothing has to be imported. `headwater_broker` is fresh for each
test, `headwater_shared_broker` lives as long as the session, and `make_headwater_broker` makes as
many as a test wants. Settings have Kafka's names and come, the later over the earlier, from the
ini file, from the nearest marker, and from the call:

    [tool.pytest.ini_options]
    headwater_settings = ["num.partitions=3"]

    @pytest.mark.headwater({"auto.create.topics.enable": "false"})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headwater.testing.embedded import EmbeddedBroker

_INI = "headwater_settings"
_LINES_SHOWN_MAX = 50
_BROKERS = pytest.StashKey[list["EmbeddedBroker"]]()

MakeHeadwaterBroker = Callable[..., "EmbeddedBroker"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _INI,
        "settings of the brokers that tests get, each `key=value`",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "headwater(settings): settings of the broker that this test gets"
    )


@pytest.fixture
def headwater_broker(make_headwater_broker: MakeHeadwaterBroker) -> EmbeddedBroker:
    """A broker of this test's own: empty, in memory, on a free port."""
    return make_headwater_broker()


@pytest.fixture(scope="session")
def headwater_shared_broker(pytestconfig: pytest.Config) -> Iterator[EmbeddedBroker]:
    """One broker for the whole session: for tests that use topics of their own."""
    from headwater.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(_ini_settings(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def make_headwater_broker(request: pytest.FixtureRequest) -> Iterator[MakeHeadwaterBroker]:
    """Starts brokers, with settings or a data directory of their own; they end with the test."""
    from headwater.testing.embedded import EmbeddedBroker

    base = _ini_settings(request.config) | _marked_settings(request.node)
    with ExitStack() as running:

        def make(settings: Mapping[str, str] | None = None, **options: Any) -> EmbeddedBroker:
            broker = running.enter_context(EmbeddedBroker(base | dict(settings or {}), **options))
            request.node.stash.setdefault(_BROKERS, []).append(broker)
            return broker

        yield make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that fails shows what its brokers had to say."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for broker in item.stash.get(_BROKERS, []):
            lines = broker.log_lines[-_LINES_SHOWN_MAX:]
            report.sections.append((f"headwater {broker.bootstrap}", "".join(lines)))


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini(_INI):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_INI}: {line!r} is not key=value")
        settings[key.strip()] = value.strip()
    return settings


def _marked_settings(node: pytest.Item) -> dict[str, str]:
    marker = node.get_closest_marker("headwater")
    return dict(marker.args[0]) if marker is not None and marker.args else {}
