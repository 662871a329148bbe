"""The process and its event loop."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator

from headwater import __version__
from headwater.io import Clock, ProcessUsage, Workers, process_usage
from headwater.io.attention import WatchfulLoop
from headwater.observability.histogram import Histogram
from headwater.observability.registry import (
    NO_LABELS,
    Distribution,
    Family,
    Item,
    Labels,
    Sample,
    one,
)

_LAG_SECONDS = 0.25  # between two measurements of the loop
_USAGE_EVERY = 20  # of those measurements
_IDLE_SECONDS = 30.0  # over which the idle share is told, at least


class LoopMeter:
    """Measures the load of the event loop: the duration of each turn, and the delay of timers."""

    def __init__(self, clock: Clock, workers: Workers) -> None:
        self.turns = Histogram()
        self.lag = Histogram()
        self.usage = process_usage()
        self.idle = 1.0  # the share of the last half minute or so
        self._clock = clock
        self._workers = workers
        self._idle_since = clock.monotonic()
        self._busy_before = 0.0

    async def run(self) -> None:
        """Measures until it is cancelled."""
        loop = asyncio.get_running_loop()
        selector = loop.attention if isinstance(loop, WatchfulLoop) else None
        if selector is not None:
            selector.measure(self.turns.note)
        try:
            for count in range(1 << 62):
                if count % _USAGE_EVERY == 0:
                    self.usage = await self._workers.run(process_usage)
                due = loop.time() + _LAG_SECONDS
                await asyncio.sleep(_LAG_SECONDS)
                self.lag.note(max(0.0, loop.time() - due))
                self._note_idle()
        finally:
            if selector is not None:
                selector.measure(None)

    def _note_idle(self) -> None:
        now = self._clock.monotonic()
        passed = now - self._idle_since
        if passed >= _IDLE_SECONDS:
            busy, self._busy_before = self.turns.total - self._busy_before, self.turns.total
            self._idle_since = now
            self.idle = min(1.0, max(0.0, 1.0 - busy / passed))


class ProcessCollector:
    def __init__(self, meter: LoopMeter, *, node_id: int, cluster_id: str) -> None:
        self._meter = meter
        self._node_id = node_id
        self._cluster_id = cluster_id

    def collect(self) -> Iterator[Item]:
        yield Family("headwater_info", "gauge", "The version, the cluster and the id of this node.")
        yield Sample(
            Labels(
                version=__version__,
                python=platform.python_version(),
                node=self._node_id,
                cluster=self._cluster_id,
            ),
            1,
        )
        yield from _usage(self._meter.usage)
        yield from self._loop()

    def _loop(self) -> Iterator[Item]:
        meter = self._meter
        yield Family(
            "headwater_loop_lag_seconds",
            "histogram",
            "Delay of timers in the event loop: the time a request waits before it is handled.",
        )
        yield Distribution(NO_LABELS, meter.lag)
        yield Family(
            "headwater_loop_turn_seconds",
            "histogram",
            "Duration of an event loop iteration, without the wait for events.",
        )
        yield Distribution(NO_LABELS, meter.turns)
        for name in (
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            # The examples of jmx_exporter map this name in one way, and Strimzi in the other.
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ):
            what = "Share of about the last half minute that the event loop was idle, 0 to 1."
            yield from one(name, "gauge", what, meter.idle)


def _usage(usage: ProcessUsage) -> Iterator[Item]:
    for name, kind, what, value in (
        ("cpu_seconds_total", "counter", "CPU time of the process.", usage.cpu_seconds),
        ("resident_memory_bytes", "gauge", "Resident memory.", usage.resident_bytes),
        ("virtual_memory_bytes", "gauge", "Virtual memory.", usage.virtual_bytes),
        ("open_fds", "gauge", "Open files, sockets and memory maps.", usage.open_files),
        ("max_fds", "gauge", "The limit of open files.", usage.open_files_max),
        ("start_time_seconds", "gauge", "Start time of the process.", usage.start_seconds),
    ):
        yield from one(f"process_{name}", kind, what, value)  # type: ignore[arg-type]
    if usage.disk is not None:
        for name, what, value in (
            ("read", "Bytes that the process has read from disks.", usage.disk.read_bytes),
            ("write", "Bytes that the process has written to disks.", usage.disk.written_bytes),
        ):
            yield from one(
                f"kafka_server_kafkaserver_linux_disk_{name}_bytes", "gauge", what, value
            )
