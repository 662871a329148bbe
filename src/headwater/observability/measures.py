"""Measures: counts since the start, and means and maxima of the last minute or so."""

from __future__ import annotations

from math import inf

# As long as Kafka's two samples (metrics.sample.window.ms, metrics.num.samples).
WINDOW_SECONDS = 30.0


class Window:
    """Values of the last 30 to 60 seconds. `note` stands where it must be cheap: it does four
    small steps, and nothing is kept of a single value."""

    __slots__ = ("_before", "_count", "_ends", "_most", "_total")

    def __init__(self) -> None:
        self._count = 0
        self._total = 0.0
        self._most = 0.0
        self._ends = -inf
        self._before = (0, 0.0, 0.0)

    def note(self, value: float, now: float) -> None:
        if now >= self._ends:
            self._turn(now)
        self._count += 1
        self._total += value
        if value > self._most:
            self._most = value

    def _turn(self, now: float) -> None:
        is_recent = now < self._ends + WINDOW_SECONDS
        self._before = (self._count, self._total, self._most) if is_recent else (0, 0.0, 0.0)
        self._count, self._total, self._most = 0, 0.0, 0.0
        self._ends = now + WINDOW_SECONDS

    def shown(self, name: str, now: float, *, scale: float = 1.0) -> dict[str, float]:
        """`name-avg` and `name-max`; both are 0 if nothing was noted."""
        mean, most = self.mean(now), max(self._most, self._before[2])
        return {f"{name}-avg": mean * scale, f"{name}-max": most * scale}

    def mean(self, now: float) -> float:
        """Returns the mean; 0 if nothing was noted."""
        if now >= self._ends:
            self._turn(now)
        count, total, _ = self._before
        return ratio(self._total + total, self._count + count)

    def rate(self, now: float) -> float:
        """Returns the sum of the values, for each second."""
        if now >= self._ends:
            self._turn(now)
        covered = WINDOW_SECONDS + now - (self._ends - WINDOW_SECONDS)
        return (self._total + self._before[1]) / covered


class RecentRate:
    """The rate of a counter in the last one to two minutes. Costs nothing between two readings."""

    __slots__ = ("_before", "_turned")

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None  # moment and count where the window begins
        self._turned = (0.0, 0.0)  # where the next one will begin

    def read(self, count: float, now: float) -> float:
        """Returns how much was counted each second; 0 at the first reading."""
        if self._before is None:
            self._before = self._turned = now, count
            return 0.0
        if now - self._turned[0] >= 2 * WINDOW_SECONDS:
            self._before, self._turned = self._turned, (now, count)
        since, then = self._before
        return ratio(count - then, now - since)


class Traffic:
    """Traffic of all connections of a client."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "closed",
        "failed",
        "latency",
        "nodes",
        "opened",
        "requests",
        "responses",
    )

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.failed = 0  # attempts to open one
        self.requests = 0
        self.responses = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.latency = Window()  # seconds from a request to its answer
        self.nodes: dict[int, Window] = {}  # the same, by node

    def answered(self, node_id: int, seconds: float, now: float) -> None:
        self.responses += 1
        self.latency.note(seconds, now)
        of_node = self.nodes.get(node_id)
        if of_node is None:
            of_node = self.nodes[node_id] = Window()
        of_node.note(seconds, now)

    def shown_by_node(self, now: float) -> dict[str, float]:
        """Returns `node-request-latency-avg{node_id="node-1"}` and so on, labelled as in Kafka."""
        shown: dict[str, float] = {}
        for node_id, latency in self.nodes.items():
            if node_id >= 0:  # else an address whose node is not known yet
                values = latency.shown("node-request-latency", now, scale=1000)
                shown |= {
                    f'{name}{{node_id="node-{node_id}"}}': each for name, each in values.items()
                }
        return shown

    def shown(self, now: float) -> dict[str, float]:
        return {
            "connection-creation-total": self.opened,
            "connection-close-total": self.closed,
            "connection-failure-total": self.failed,
            "request-total": self.requests,
            "outgoing-byte-total": self.bytes_out,
            "incoming-byte-total": self.bytes_in,
            **self.latency.shown("request-latency", now, scale=1000),
        }


def ratio(total: float, count: float) -> float:
    return total / count if count else 0.0
