"""Fixtures that tests of several folders share.

With HEADWATER_TEST_BOOTSTRAP=HOST:PORT the tests that use the shared broker run against that one
instead: against Apache Kafka they show that what they ask of us is what Kafka does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from harness.wire import Wire
    from headwater.testing import EmbeddedBroker

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs us in the background has it so, and whatever we start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does; no test is judged by that.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# `make versions` installs no PySpark, whose types are those of columns in streams.
if find_spec("pyspark") is None:
    collect_ignore_glob = [
        "*/test_streams_*.py",
        "*/client/test_table_view.py",
        "unit/test_cli_demo.py",
        "unit/test_spark_options.py",
    ]

MakeBroker = Callable[..., "EmbeddedBroker"]


@pytest.fixture
def hangups_count() -> Iterator[None]:
    """Lets processes that a test starts hear SIGHUP, also where `nohup` runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def make_broker() -> Iterator[MakeBroker]:
    """Starts brokers with settings of their own; they end with the test."""
    from headwater.testing import EmbeddedBroker

    with ExitStack() as brokers:

        def make(settings: dict[str, str] | None = None, **options: Any) -> EmbeddedBroker:
            return brokers.enter_context(EmbeddedBroker(settings, **options))

        yield make


@dataclass(slots=True)
class AnotherBroker:
    """A broker that runs somewhere already."""

    bootstrap: str
    log_lines: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[EmbeddedBroker | AnotherBroker]:
    """One broker for every test that needs nothing but topics of its own."""
    elsewhere = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if elsewhere:
        yield AnotherBroker(elsewhere)
        return
    from headwater.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def wire(shared_broker: EmbeddedBroker) -> Iterator[Wire]:
    """A connection to the shared broker."""
    from harness.wire import Wire

    with Wire(shared_broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    import re
    import uuid

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:80]
    return f"{name}-{uuid.uuid4().hex[:8]}"
