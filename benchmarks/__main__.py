"""`python -m benchmarks`: runs the families of benchmarks and prints a table of their results."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from subprocess import TimeoutExpired

from benchmarks.cleaning import cleaning
from benchmarks.cluster import cluster, cluster_partitions
from benchmarks.cluster_load import cluster_load
from benchmarks.connections import connections
from benchmarks.group_size import group_size
from benchmarks.groups import groups
from benchmarks.latency import latency
from benchmarks.metrics import metrics
from benchmarks.python_clients import python_clients
from benchmarks.report import (
    HEADLINES,
    Row,
    merged,
    plot,
    rows_of,
    save,
    spread,
    table,
    with_headlines,
)
from benchmarks.requests import requests
from benchmarks.rows import Contest, Duel, Family, Measurement, Session, is_part
from benchmarks.security import rules, security
from benchmarks.spark import spark
from benchmarks.startup import partitions, restart, start_and_idle
from benchmarks.streams import streams
from benchmarks.streams_state import streams_state
from benchmarks.throughput import throughput
from benchmarks.transactions import transactions
from benchmarks.wire import NotReady
from harness import kafka_jars
from harness.nodes import (
    ROOT,
    Flavour,
    Headwater,
    Kafka,
    NodeFailed,
    end_nodes_when_terminated,
)
from headwater import ClientError

# A family that fails leaves the others to run.
_FAILURES = (AssertionError, NodeFailed, NotReady, OSError, ClientError, TimeoutExpired)

# The rows of a family share a node, so --only picks families by the rows they yield.
_FAMILIES: dict[Family, tuple[str, ...]] = {
    start_and_idle: ("start", "memory.idle"),
    connections: ("connections",),
    requests: ("sync", "requests"),
    throughput: ("produce", "consume", "cpu", "memory.load"),
    groups: ("groups",),
    group_size: ("members",),
    cleaning: ("clean",),
    restart: ("restart",),
    partitions: ("partitions",),
    cluster: (
        "cluster.produce",
        "cluster.p99",
        "cluster.memory",
        "cluster.kill",
        "cluster.stop",
    ),
    cluster_load: ("cluster.load",),
    cluster_partitions: ("cluster.partitions",),
    transactions: ("transactions",),
    rules: ("rules",),
    metrics: ("metrics",),
}
# Both brokers at once.
_DUELS: dict[Duel, tuple[str, ...]] = {latency: ("latency",), security: ("tls", "logins")}
# Several client programs on our broker.
_CONTESTS: dict[Contest, tuple[str, ...]] = {
    python_clients: ("python",),
    spark: ("spark",),
    streams: ("streams.map", "streams.count", "streams.latency"),
    streams_state: ("streams.state", "streams.restart"),
}


def main() -> int:
    options = _options()
    end_nodes_when_terminated()
    version = kafka_jars.kafka_version()
    jars = kafka_jars.jars(version)
    kafka = Kafka(jars)
    subject: Flavour = Headwater() if options.subject == "headwater" else Kafka(jars, "kafka-again")
    # On the disk of the clone: /tmp may be in memory.
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=options.folder))
    only = tuple(options.only)
    session = Session(jars, folder, options.quick, only, repeats=options.repeat > 1)
    started = time.monotonic()
    measured: dict[str, list[Measurement]] = {"kafka": [], "subject": []}
    failures: list[str] = []
    try:
        for _ in range(options.repeat):
            flavours = {"kafka": kafka, "subject": subject}
            _families(session, flavours, options.only, measured, failures)
            _duels(session, kafka, subject, options.only, measured, failures)
        contested = _contests(session, subject, options.only, failures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    brokers = rows_of(merged(measured["kafka"]), merged(measured["subject"]))
    rows = [*brokers, *(row for each in contested.values() for row in each)]
    if not rows:
        print("nothing was measured")
        return 1
    if brokers:
        print(f"\n{table(brokers, 'kafka', subject.name)}")
        print(f"\nlowest and highest\n{spread(brokers, 'kafka', subject.name)}")
    for name, each in contested.items():
        print(f"\n{name}, on {subject.name}\n{table(each, 'other', 'ours')}")
    facts = {"kafka": version, "subject": subject.name, "quick": options.quick}
    path = save(rows, ROOT / "bench-results", {**facts, "failures": failures})
    held = sum(row.holds is True for row in rows)
    goals = sum(row.named.goal is not None for row in rows)
    minutes = (time.monotonic() - started) / 60
    print(f"\n{held} of {goals} goals hold. Apache Kafka {version}; {minutes:.1f} minutes; {path}")
    if options.readme:
        readme = ROOT / "README.md"
        readme.write_text(with_headlines(readme.read_text(), brokers))
        print(f"written: {readme}")
    if options.plot:
        plot(brokers, path.with_suffix(".png"), subject.name)
        print(f"drawn: {path.with_suffix('.png')}")
    for failure in failures:
        print(f"FAILED {failure.splitlines()[0]}")
    return 1 if failures else 0


def _families(
    session: Session,
    flavours: dict[str, Flavour],
    only: list[str],
    measured: dict[str, list[Measurement]],
    failures: list[str],
) -> None:
    for family, keys in _FAMILIES.items():
        if only and not _chosen(keys, only):
            continue
        for who, flavour in flavours.items():
            name = family.__name__.replace("_", " ")
            print(f"{name}: {flavour.name}", flush=True)
            try:
                for measurement in family(session, flavour):
                    if session.wants(measurement.key):
                        measured[who].append(measurement)
                        print(_progress(measurement), flush=True)
            except _FAILURES as problem:
                failures.append(f"{name} on {flavour.name}: {problem}")
                print(f"  failed: {problem}", flush=True)


def _duels(
    session: Session,
    kafka: Flavour,
    subject: Flavour,
    only: list[str],
    measured: dict[str, list[Measurement]],
    failures: list[str],
) -> None:
    for duel, keys in _DUELS.items():
        if only and not _chosen(keys, only):
            continue
        name = duel.__name__.replace("_", " ")
        print(f"{name}: {kafka.name} and {subject.name} in turn", flush=True)
        try:
            for theirs, ours in duel(session, kafka, subject):
                if session.wants(theirs.key):
                    measured["kafka"].append(theirs)
                    measured["subject"].append(ours)
                    print(f"{_progress(theirs)}; {ours.value:,.3f}", flush=True)
        except _FAILURES as problem:
            failures.append(f"{name}: {problem}")
            print(f"  failed: {problem}", flush=True)


def _contests(
    session: Session, flavour: Flavour, only: list[str], failures: list[str]
) -> dict[str, list[Row]]:
    contested: dict[str, list[Row]] = {}
    for contest, keys in _CONTESTS.items():
        if only and not _chosen(keys, only):
            continue
        name = contest.__name__.replace("_", " ")
        print(f"{name}: {flavour.name}", flush=True)
        rows: list[Row] = []
        try:
            for comparison in contest(session, flavour):
                for other in list(comparison.samples)[1:]:
                    row = Row(*comparison.beside(other))
                    rows.append(row)
                    print(f"  {row.named.what}: {row.ratio:.2f}", flush=True)
        except _FAILURES as problem:
            failures.append(f"{name}: {problem}")
            print(f"  failed: {problem}", flush=True)
        if rows:
            contested[name] = rows
    return contested


def _chosen(keys: tuple[str, ...], only: list[str]) -> bool:
    return any(is_part(name, key) or is_part(key, name) for key in keys for name in only)


def _progress(measurement: Measurement) -> str:
    return f"  {measurement.what}: {measurement.value:,.3f} {measurement.unit}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small loads, once: under 4 minutes")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ROW",
        help="rows of this name or below it (start, sync, requests, produce.1000, restart.kill), "
        "or security for tls, logins and rules",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="measure the brokers N times in turn; the table has the medians",
    )
    parser.add_argument(
        "--readme",
        action="store_true",
        help="write the rows that README has there; without --only, measure no others",
    )
    parser.add_argument("--plot", action="store_true", help="also draw the ratios as a PNG")
    parser.add_argument(
        "--subject",
        choices=("headwater", "kafka"),
        default="headwater",
        help="kafka measures Apache Kafka against itself: all ratios should be near 1",
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "bench-results", help="the disk to use"
    )
    options = parser.parse_args()
    if "security" in options.only:
        options.only += ["tls", "logins", "rules"]
    if options.readme and not options.only:
        options.only = list(HEADLINES.values())
    return options


if __name__ == "__main__":
    raise SystemExit(main())
