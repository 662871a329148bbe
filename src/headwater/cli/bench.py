"""`headwater bench`: measures how quickly a cluster takes and gives records.

Asks any cluster that speaks Kafka's protocol, as kafka-producer-perf-test and
kafka-consumer-perf-test do. The Python clients are part of what is measured.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import from_one, from_zero, read_pairs, seconds
from headwater.cli.connection import (
    CLIENT_ID,
    START_TIMEOUT_MS,
    add_cluster_options,
    add_property_option,
    cluster_of,
    explained_errors,
)
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import add_output_option, plural, print_fields, print_json, size_text
from headwater.cli.parser import add_actions
from headwater.cli.produce import add_producer_options, producer_config
from headwater.cli.progress import Progress
from headwater.cli.stopping import Stopped, StopSignals

if TYPE_CHECKING:
    from headwater.blocking import Consumer, Producer
    from headwater.client.errors import ClientError

_RECORDS = 100_000
_SIZE_BYTES = 1000
_TIMEOUT_SECONDS = 10.0
_SAMPLES_MAX = 20_000  # latencies are sampled, because a callback for each record costs time
_PAYLOADS_MAX = 1000
_PAYLOADS_BYTES_MAX = 16 << 20
_POLL_MS = 200
_POLL_RECORDS = 5000
_TOPIC_TIMEOUT_MS = 2_000
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}

_EXAMPLES = """\
examples:
  headwater bench produce orders --records 1000000 --size 100
  headwater bench produce orders --rate 5000 --acks all          latency at a steady rate
  headwater bench produce orders --compression zstd --property linger.ms=20 --output json
  headwater bench consume orders                                 all records, as fast as it can
  headwater bench consume orders --from end --records 10000      new records, with their latency
"""


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("produce", "measure how quickly generated records are sent", _define_produce),
            ("consume", "measure how quickly the records of a topic are read", _define_consume),
        ),
        examples=_EXAMPLES,
    )


def _define_produce(action: ArgumentParser) -> None:
    action.add_argument("topic", metavar="TOPIC")
    action.add_argument(
        "--records",
        type=from_one,
        default=_RECORDS,
        metavar="N",
        help=f"number of records (default: {_RECORDS:,})",
    )
    action.add_argument(
        "--size",
        type=from_zero,
        default=_SIZE_BYTES,
        metavar="BYTES",
        help=f"size of each value (default: {_SIZE_BYTES})",
    )
    action.add_argument(
        "--rate", type=from_one, metavar="N", help="records a second (default: as many as possible)"
    )
    add_producer_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_produce)


def _define_consume(action: ArgumentParser) -> None:
    action.add_argument("topic", metavar="TOPIC")
    action.add_argument(
        "--records",
        type=from_one,
        metavar="N",
        help="number of records (default: up to the current end)",
    )
    action.add_argument(
        "--from",
        dest="start",
        choices=("beginning", "end"),
        default="beginning",
        help="end: new records, until Ctrl-C or --records (default: beginning)",
    )
    action.add_argument(
        "--timeout",
        type=seconds,
        default=_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help=f"fail when no record has come for this long (default: {_TIMEOUT_SECONDS:g})",
    )
    add_property_option(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_consume)


@dataclass(slots=True)
class Measured:
    """The result of a run: counts, the time they took, and latencies in seconds."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        rate = 1 / self.seconds if self.seconds else 0.0
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records * rate, 1),
            "bytes_per_second": round(self.bytes * rate),
            "latency_ms": self._latency_ms(),
        }

    def _latency_ms(self) -> dict[str, float] | None:
        if not self.latencies:
            return None
        ordered = sorted(self.latencies)
        result = {"average": sum(ordered) / len(ordered)}
        result |= {name: quantile(ordered, part) for name, part in _QUANTILES.items()}
        result["max"] = ordered[-1]
        return {name: round(value * 1000, 3) for name, value in result.items()}


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that is not below `part` of all of them."""
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]


# produce


def _produce(options: Namespace) -> int:
    measured = Measured()
    with StopSignals() as stop, explained_errors():
        from headwater.blocking import Producer

        cluster = cluster_of(options)
        with Producer(
            cluster.bootstrap,
            start_timeout_ms=START_TIMEOUT_MS,
            config=producer_config(options, cluster),
        ) as producer:
            producer.partitions_for(options.topic)  # what the first record would wait for
            stop.raises = False
            began = time.perf_counter()
            measured.records = _send(producer, options, measured, stop)
            producer.flush()
            measured.seconds = time.perf_counter() - began
    measured.bytes = measured.records * options.size
    _report(options, measured, "sent to")
    return _end(stop)


def _send(producer: Producer, options: Namespace, measured: Measured, stop: StopSignals) -> int:
    payloads = _payloads(options.size)
    every = -(-options.records // _SAMPLES_MAX)
    pace = _Pace(options.rate) if options.rate is not None else None
    latencies = measured.latencies
    clock = time.perf_counter

    def on_delivery(began: float, _: object, error: ClientError | None) -> None:
        if error is None:
            latencies.append(clock() - began)

    with Progress(options.records, "records") as progress:
        for number in range(options.records):
            if stop.number is not None:
                return number
            if pace is not None:
                pace.wait(number)
            heard: Callable[..., None] | None = None
            if number % every == 0:
                heard = partial(on_delivery, clock())
                progress.add(min(every, options.records - number))
            producer.submit(options.topic, payloads[number % len(payloads)], on_delivery=heard)
    return int(options.records)


def _payloads(size: int) -> list[bytes]:
    """Random letters: they compress about as well as text does, and the same in every run."""
    count = max(1, min(_PAYLOADS_MAX, _PAYLOADS_BYTES_MAX // max(1, size)))
    letters = random.Random(0)
    return [bytes(letters.choices(range(65, 91), k=size)) for _ in range(count)]


class _Pace:
    """Spreads records evenly over time; a delay is caught up with."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._began = time.perf_counter()

    def wait(self, number: int) -> None:
        early = self._began + number / self._rate - time.perf_counter()
        if early > 0:
            time.sleep(early)


# consume


def _consume(options: Namespace) -> int:
    measured = Measured()
    with StopSignals() as stop, explained_errors():
        from headwater.blocking import Consumer

        cluster = cluster_of(options)
        with Consumer(
            cluster.bootstrap,
            start_timeout_ms=START_TIMEOUT_MS,
            config={"client.id": CLIENT_ID, "allow.auto.create.topics": False}
            | cluster.settings
            | read_pairs(options.property, "--property"),
        ) as consumer:
            consumer.assign(consumer.partitions_for(options.topic, timeout_ms=_TOPIC_TIMEOUT_MS))
            if options.start == "end":
                consumer.seek_to_end()
            else:
                consumer.seek_to_beginning()
            until = _Until(consumer, options.records, options.start)
            if until.is_reached(0):
                raise CommandError(
                    f"{options.topic} has no records",
                    then=f"`headwater bench produce {options.topic}` sends some",
                )
            stop.raises = False
            _read(consumer, options, measured, stop, until)
    _report(options, measured, "read from")
    if options.records is not None and measured.records < options.records and not stop.number:
        said = f"no record came for {options.timeout:g} s; {options.records:,} were asked for"
        print(f"headwater bench: {said}", file=sys.stderr)
        return FAILED
    return _end(stop, has_end=options.start != "end" or options.records is not None)


class _Until:
    """The end of a run: after a number of records, or at the end of the topic when it began."""

    def __init__(self, consumer: Consumer, records: int | None, start: str) -> None:
        self._consumer = consumer
        self.records = records
        self._ends = (
            consumer.end_offsets(*consumer.assignment())
            if records is None and start == "beginning"
            else {}
        )

    def is_reached(self, count: int) -> bool:
        if self.records is not None:
            return count >= self.records
        position = self._consumer.position
        return bool(self._ends) and all(position(at) >= end for at, end in self._ends.items())


def _read(
    consumer: Consumer,
    options: Namespace,
    measured: Measured,
    stop: StopSignals,
    until: _Until,
) -> None:
    is_live = options.start == "end"
    began = last = time.perf_counter()
    with Progress(until.records, "records") as progress:
        while stop.number is None and not until.is_reached(measured.records):
            most = _POLL_RECORDS
            if until.records is not None:
                most = min(most, until.records - measured.records)
            records = consumer.poll(timeout_ms=_POLL_MS, records_max=most)
            now = time.perf_counter()
            if not records:
                if now - last >= options.timeout and not (is_live and until.records is None):
                    break
                continue
            if is_live:
                if not measured.records:
                    began = now  # the wait for the first record is not part of the run
                measured.latencies.append(max(0.0, time.time() - records[-1].timestamp / 1000))
            measured.records += len(records)
            measured.bytes += sum(len(each.key or b"") + len(each.value or b"") for each in records)
            measured.seconds = now - began
            progress.add(len(records))
            last = now


# The result


def _report(options: Namespace, measured: Measured, verb: str) -> None:
    told = measured.fields()
    if options.output == "json":
        print_json({"topic": options.topic, **told})
        sys.stdout.flush()
        return
    rate = f"{told['records_per_second']:,.0f} records/s, "
    rate += f"{size_text(told['bytes_per_second'])}/s"
    count = plural(measured.records, "record")
    shown: dict[str, object] = {
        "records": f"{count} of {size_text(measured.bytes)} {verb} {options.topic}",
        "time": f"{measured.seconds:.3f} s",
        "throughput": rate,
    }
    latency = told["latency_ms"]
    if latency is not None:
        parts = ", ".join(f"{name} {value:.1f} ms" for name, value in latency.items())
        shown["latency"] = parts
    print_fields(shown, output="text")
    sys.stdout.flush()


def _end(stop: StopSignals, *, has_end: bool = True) -> int:
    # Ctrl-C is the usual way to end reading new records.
    if stop.number is not None and (has_end or stop.number != signal.SIGINT):
        raise Stopped(stop.number)
    return 0
