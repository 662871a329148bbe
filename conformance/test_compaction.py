"""Compaction: what is left of a log is what Kafka leaves of it, in files that Kafka reads."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from conformance.records import CODECS, Seen, create_topic, read_to_end
from conformance.test_disk import files
from harness.nodes import Kafka, Node, run_java

_TOPIC = "compacted"
_KEYS = 20
_PATIENCE = 60.0
# Few batches fill a segment, and a cleaner looks at once.
_TOPIC_SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_index_bytes": "240",
    "index_interval_bytes": "0",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "86400000",
}
_NODE_SETTINGS = {"log_cleaner_backoff_ms": "100", "log_cleaner_threads": "1"}
_COMPLAINTS = re.compile(
    r"mismatch|isvalid: false|corrupt|exception|out of order|not be found|cannot|could not|"
    r"couldn't|failed|insane|skipping|unknown",
    re.IGNORECASE,
)


def _write(node: Node, rounds: int = 30) -> dict[str, bytes | None]:
    """Every key many times, some deleted, in batches of every codec; gives what is last."""
    last: dict[str, bytes | None] = {}
    for number in range(rounds):
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "compression.codec": CODECS[number % len(CODECS)],
                "enable.idempotence": number % 2 == 0,
                "linger.ms": 5,
                "log_level": 2,
            }
        )
        for key in range(_KEYS):
            value = None if (key + number) % 7 == 0 else b"%d of round %d " % (key, number) * 9
            last[f"key {key}"] = value
            producer.produce(_TOPIC, value, key=f"key {key}", headers=[("round", str(number))])
            if key % 5 == 4:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0
    return last


def _compacted(node: Node) -> list[Seen]:
    """All there is, once it has become little and does not change any more."""
    deadline = time.monotonic() + _PATIENCE
    before: list[Seen] = []
    while time.monotonic() < deadline:
        found = read_to_end(node.bootstrap, _TOPIC)
        if found == before and len(found) < 8 * _KEYS:
            return found
        before = found
        time.sleep(0.5)
    raise AssertionError(f"{node.flavour.name} has {len(before)} records left:\n{node.output}")


def _last_values(found: list[Seen]) -> dict[str, bytes | None]:
    return {(record.key or b"").decode(): record.value for record in found}


def _dump(jars: Path, *arguments: str) -> str:
    """Returns the output of DumpLogSegments, which has complained of nothing."""
    done = run_java(jars, "org.apache.kafka.tools.DumpLogSegments", *arguments)
    for line in (done.stdout + done.stderr).splitlines():
        told = line.partition(" payload: ")[0]
        assert not _COMPLAINTS.search(told), f"{' '.join(arguments)}: {line}"
    return done.stdout


def _handed_over(writer: Node, reader: Node) -> Node:
    writer.stop()
    shutil.copytree(writer.log_folder, reader.log_folder)
    return reader.start()


def test_dump_log_segments_reads_what_compaction_leaves(
    new_node: Callable[..., Node], jars: Path
) -> None:
    node = new_node(**_NODE_SETTINGS).start()
    create_topic(node.bootstrap, _TOPIC, **_TOPIC_SETTINGS)
    last = _write(node)
    found = _compacted(node)
    assert _last_values(found) == last
    node.stop()
    folder = node.log_folder / f"{_TOPIC}-0"
    assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap")]
    printed = _dump(jars, "--deep-iteration", "--print-data-log", "--files", files(folder, ".log"))
    assert len(re.findall(r"\boffset: \d+ .* payload:| keySize: ", printed)) >= len(found)
    assert "deleteHorizonMs: OptionalLong[" in printed, "deletions have no horizon"
    _dump(jars, "--index-sanity-check", "--files", files(folder, ".index"))
    _dump(jars, "--verify-index-only", "--files", files(folder, ".index"))
    # Not so the time indexes: the tool looks for the record that has a batch's largest timestamp,
    # and has the same to say of logs that Kafka has compacted.


def test_a_log_compacted_here_goes_on_in_kafka_and_comes_back(
    new_node: Callable[..., Node], jars: Path
) -> None:
    here = new_node(**_NODE_SETTINGS).start()
    create_topic(here.bootstrap, _TOPIC, **_TOPIC_SETTINGS)
    last = _write(here)
    found = _compacted(here)
    assert _last_values(found) == last
    # Kafka's cleaner may find more to do at once; what it may not do is lose a last value.
    kafka = _handed_over(here, new_node(Kafka(jars), **_NODE_SETTINGS))
    assert _last_values(read_to_end(kafka.bootstrap, _TOPIC)) == last
    assert set(read_to_end(kafka.bootstrap, _TOPIC)) <= set(found)
    last |= _write(kafka, 12)
    found = _compacted(kafka)
    assert _last_values(found) == last
    back = _handed_over(kafka, new_node(**_NODE_SETTINGS))
    assert set(read_to_end(back.bootstrap, _TOPIC)) <= set(found)
    assert _last_values(read_to_end(back.bootstrap, _TOPIC)) == last
    last |= _write(back, 12)
    assert _last_values(_compacted(back)) == last
    assert "cut off" not in back.output.read_text()


def test_kafkas_own_tester_of_compaction_is_content(
    new_node: Callable[..., Node], jars: Path
) -> None:
    """LogCompactionTester writes keys and deletions at random and compares what it reads."""
    node = new_node(
        **_NODE_SETTINGS,
        log_index_size_max_bytes="240",
        log_index_interval_bytes="0",
        log_cleaner_min_cleanable_ratio="0.01",
    ).start()
    tester = "org.apache.kafka.tools.LogCompactionTester"
    options = ["--bootstrap-server", node.bootstrap, "--messages", "20000", "--topics", "2"]
    options += ["--percent-deletes", "10", "--sleep", "5", "--compression-type", "lz4"]
    done = run_java(jars, tester, *options)
    assert "Data verification is completed" in done.stdout + done.stderr, done.stdout + done.stderr
    if node.flavour.name == "headwater":
        assert "compacted up to offset" in node.output.read_text()
