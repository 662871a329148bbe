"""Memory of idle connections, and memory after many short ones."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

from benchmarks.rows import Measurement, Session, at_most, value_at_most
from benchmarks.wire import Wire
from harness.nodes import Flavour, Node

_WARM_UP = 500
_PRODUCE = 0


def connections(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Opens connections that request ApiVersions once."""
    node = session.fresh_node(flavour).start()
    for _ in range(_WARM_UP):
        _opened(node).close()
    # Enough to exceed the noise of a JVM's heap; each takes a descriptor in this process, too.
    count = session.size(5000, 2000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * count)), hard))
    before = _settled_bytes(node)
    held = [_opened(node) for _ in range(count)]
    idle = (_settled_bytes(node) - before) / count
    for each in held:
        each.close()
    # Not as a ratio: what a JVM takes from a heap that is resident already is not seen here.
    yield Measurement(
        "connections.idle",
        "memory of an idle connection",
        "KB",
        (idle / 1000,),
        value_at_most(12),
    )
    churn = session.size(20_000, 5000)
    before = _settled_bytes(node)
    started = time.monotonic()
    for _ in range(churn):
        _opened(node).close()
    rate = churn / (time.monotonic() - started)
    after = _settled_bytes(node)
    node.remove()
    what = f"{churn:,} connections one after another"
    yield Measurement("connections.rate", what, "connections/s", (rate,), more_is_better=True)
    yield Measurement(
        "connections.churn", f"resident memory after {what}", "MB", (after / 1e6,), at_most(0.2)
    )
    yield Measurement(
        "connections.growth", f"resident memory after {what}, to before", "times", (after / before,)
    )


def _opened(node: Node) -> Wire:
    wire = Wire.connect(node.port)
    assert wire.supports(_PRODUCE)
    return wire


def _settled_bytes(node: Node) -> int:
    """Waits until closed connections are noticed and the memory no longer changes."""
    found = node.resident_bytes()
    while True:
        time.sleep(0.5)
        before, found = found, node.resident_bytes()
        if abs(found - before) < 200_000:
            return found
