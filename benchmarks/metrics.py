"""The cost of metrics: requests to a node with them, and to one without."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.clients import create_topic
from benchmarks.rows import Measurement, Session, value_at_least, value_at_most
from benchmarks.security import CONNECTIONS, requests_in_turn
from harness.nodes import Flavour, Kafka

_SETTINGS = {"headwater.metrics.listen": "127.0.0.1:0"}


def metrics(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Requests per second with metrics, histograms included, to a node without them, which is
    measured in turn. Kafka always counts: what its two nodes differ is the noise of the machine."""
    measured = session.fresh_node(flavour)
    if not isinstance(flavour, Kafka):
        measured.settings |= _SETTINGS
    nodes = [session.fresh_node(flavour).start(), measured.start()]
    try:
        for node in nodes:
            create_topic(node, "many", CONNECTIONS)
        rates, cpu = requests_in_turn(session, nodes)
    finally:
        for node in nodes:
            node.remove()
    yield Measurement(
        "metrics.requests",
        "requests/s with metrics, to those without",
        "times",
        tuple(with_ / without for without, with_ in zip(*rates, strict=True)),
        value_at_least(0.97),
        more_is_better=True,
    )
    yield Measurement(
        "metrics.cpu",
        "broker CPU for a request with metrics, to that without",
        "times",
        tuple(with_ / without for without, with_ in zip(*cpu, strict=True)),
        value_at_most(1.03),
    )
