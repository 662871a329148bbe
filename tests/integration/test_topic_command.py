"""`headwater topic` and `headwater config` against a broker.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.wire import Plain, Wire, batch, until
from headwater.testing import EmbeddedBroker
from tests.support.commands import Command


@pytest.fixture
def command(
    shared_broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", shared_broker.bootstrap)
    return Command("topic", capsys)


@pytest.fixture
def config(command: Command, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command("config", capsys)


def create(command: Command, topic: str, *options: str) -> None:
    command("create", topic, *options)
    until(lambda: is_there(command, topic), "the topic")


def is_there(command: Command, topic: str) -> bool:
    return any(each["topic"] == topic for each in command.json("list"))


def fill(wire: Wire, topic: str, timestamps: list[int], partition: int = 0) -> None:
    records = [Plain(b"v", timestamp=at) for at in timestamps]
    assert wire.produce(topic, batch(records), partition=partition).error_code == 0


def test_a_topic_is_made_shown_and_deleted(command: Command, topic: str) -> None:
    said = command("create", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert said == f"{topic}: created, 3 partitions of 1 replica\n"
    until(lambda: is_there(command, topic), "the topic")
    (about,) = command.json("describe", topic)
    assert about["configs"] == {"retention.ms": "60000"}
    assert [each["partition"] for each in about["partitions"]] == [0, 1, 2]
    assert "retention.ms=60000" in command("describe", topic)
    assert topic in command("list")
    assert "nothing has changed yet" in command("delete", topic)
    assert is_there(command, topic)
    assert command("delete", topic, "--yes") == f"{topic}: deleted\n"
    until(lambda: not is_there(command, topic), "its end")


def test_a_topic_that_is_there_is_not_made_again(command: Command, topic: str) -> None:
    create(command, topic)
    assert "not created" in command("create", topic, code=1)
    (told,) = command.json("create", topic, code=1)
    assert not told["created"]
    assert "exist" in told["reason"]
    assert "already exists" in command("create", topic, "--if-not-exists")


def test_a_dry_run_makes_and_changes_nothing(command: Command, topic: str) -> None:
    assert "could be created" in command("create", topic, "--dry-run")
    assert not is_there(command, topic)
    create(command, topic)
    said = command("alter", topic, "--partitions", "4", "--set", "retention.ms=1", "--dry-run")
    assert "this was a dry run" in said
    (about,) = command.json("describe", topic)
    assert (len(about["partitions"]), about["configs"]) == (1, {})


def test_a_topic_is_changed(command: Command, topic: str) -> None:
    create(command, topic, "--config", "segment.bytes=1048576")
    said = command(
        "alter",
        topic,
        *("--partitions", "3", "--set", "retention.ms=60000"),
        *("--append", "cleanup.policy=compact", "--delete", "segment.bytes"),
    )
    assert said.splitlines() == [
        "partitions: 1 -> 3",
        "retention.ms: 604800000 -> 60000",
        "cleanup.policy: delete + compact",
        "segment.bytes: 1048576 -> the default",
    ]

    def is_changed() -> bool:
        (about,) = command.json("describe", topic)
        changed = {"retention.ms": "60000", "cleanup.policy": "delete,compact"}
        return len(about["partitions"]) == 3 and about["configs"] == changed

    until(is_changed, "the changes")


def test_what_cannot_be_is_one_line_with_the_value(command: Command, topic: str) -> None:
    create(command, topic)
    for arguments, named in (
        (("alter", topic, "--set", "retention.ms=soon"), "retention.ms"),
        (("alter", topic, "--partitions", "1"), topic),
        (("describe", f"{topic}-none"), f"there is no topic {topic}-none"),
        (("delete", topic, f"{topic}-none", "--yes"), f"there is no topic {topic}-none"),
        (("records", f"{topic}-none"), f"there is no topic {topic}-none"),
        (("records", topic, "--partition", "7"), f"there is no partition {topic}:7"),
    ):
        said = command(*arguments, code=1)
        assert said.startswith("headwater topic: ")
        assert named in said.splitlines()[0]
    assert is_there(command, topic)


def test_records_are_counted(command: Command, wire: Wire, topic: str) -> None:
    create(command, topic, "--partitions", "2")
    fill(wire, topic, [1, 2, 3])
    told = command.json("records", topic)
    assert told["records"] == 3
    assert [(each["start"], each["end"]) for each in told["partitions"]] == [(0, 3), (0, 0)]
    assert "3 records in 2 partitions" in command("records", topic)


@pytest.mark.parametrize(
    ("where", "start"),
    [
        (("--delete-before", "2"), 2),
        (("--delete-before", "400"), 5),
        (("--delete-before-time", "2020-01-01T00:00:03Z"), 3),
        (("--delete-before-time", "2020-01-02T00:00:00Z"), 5),
        (("--delete-all",), 5),
    ],
)
def test_records_are_deleted_only_when_told_twice(
    command: Command, wire: Wire, topic: str, where: tuple[str, ...], start: int
) -> None:
    create(command, topic)
    fill(wire, topic, [1_577_836_800_000 + 1000 * number for number in range(5)])
    preview = command.json("records", topic, *where)
    (row,) = preview["partitions"]
    assert not preview["executed"]
    assert (row["start"], row["new_start"], row["deleted"]) == (0, start, start)
    assert f"--yes deletes {start} records" in command("records", topic, *where)
    assert command.json("records", topic)["records"] == 5
    assert f"done: {start} records deleted" in command("records", topic, *where, "--yes")
    assert command.json("records", topic)["partitions"][0]["start"] == start


def test_partitions_without_trouble_are_no_problem(command: Command, topic: str) -> None:
    create(command, topic)
    assert "all replicas are in sync" in command("describe", topic, "--problems")
    assert command.json("describe", topic, "--problems") == []


def test_settings_are_shown_with_their_sources(
    command: Command, config: Command, topic: str
) -> None:
    create(command, topic, "--config", "retention.ms=60000")
    until(lambda: bool(config.json("get", "topic", topic)), "a setting that is not the default")
    told = {each["setting"]: each for each in config.json("get", "topic", topic)}
    assert (told["retention.ms"]["value"], told["retention.ms"]["source"]) == ("60000", "topic")
    assert "segment.bytes" not in told
    (segment,) = config.json("get", "topic", topic, "segment.bytes")
    assert (segment["source"], segment["default"]) == ("default", "1073741824")
    assert "segment.bytes" in config("get", "topic", topic, "--all")
    assert "did you mean retention.ms?" in config("get", "topic", topic, "retention.m", code=1)


def test_settings_are_changed(command: Command, config: Command, topic: str) -> None:
    create(command, topic)
    said = config("set", "topic", topic, "retention.ms=60000", "--append", "cleanup.policy=compact")
    assert said.splitlines() == [
        "retention.ms: 604800000 -> 60000",
        "cleanup.policy: delete + compact",
    ]

    def is_set() -> bool:
        (entry,) = config.json("get", "topic", topic, "retention.ms")
        return str(entry["value"]) == "60000"

    until(is_set, "the setting")
    told = config.json("set", "topic", topic, "--delete", "retention.ms")
    assert told["settings"] == [
        {"setting": "retention.ms", "was": "60000", "done": "delete", "value": None}
    ]
    said = config("set", "topic", topic, "retention.ms=soon", code=1)
    assert "retention.ms" in said.splitlines()[0]
    assert "there is no topic" in config("set", "topic", f"{topic}-none", "retention.ms=1", code=1)


def test_a_mistyped_setting_is_not_said_to_be_the_default_again(
    command: Command, config: Command, topic: str
) -> None:
    create(command, topic)
    for change in (config, command):
        words = ("set", "topic") if change is config else ("alter",)
        said = change(*words, topic, "--delete", "retenton.ms", code=1)
        assert "unknown setting retenton.ms; did you mean retention.ms?" in said
    said = config("set", "group", topic, "--delete", "no.such", code=1)
    assert "unknown setting no.such" in said


def test_metrics_of_clients_and_loggers_have_settings(config: Command, topic: str) -> None:
    name = topic[-8:]
    config("set", "client-metrics", name, "interval.ms=5000")
    until(lambda: '"5000"' in config("get", "client-metrics", name, "--output", "json"), "it")
    config("set", "client-metrics", name, "--delete", "interval.ms")
    loggers = config.json("get", "broker-logger", "1")
    assert "root" in {each["setting"] for each in loggers}
    assert "expected its id" in config("get", "broker-logger", "all", code=2)
    assert "broker 77 is not up" in config("get", "broker-logger", "77", code=1)


def test_brokers_and_groups_have_settings(config: Command, topic: str) -> None:
    (node_id,) = config.json("get", "broker", "1", "node.id")
    assert (node_id["value"], node_id["read_only"]) == ("1", True)
    assert "broker 77 is not up" in config("get", "broker", "77", code=1)
    config("set", "broker", "all", "log.cleaner.backoff.ms=14000", "--dry-run")
    config("set", "group", topic, "consumer.session.timeout.ms=50000")

    def timeout() -> bool:
        told = config.json("get", "group", topic)
        return any(each["value"] == "50000" for each in told)

    until(timeout, "the setting")


def test_secrets_come_from_a_file_and_are_not_shown(config: Command, tmp_path: Path) -> None:
    key = "listener.name.team.ssl.keystore.password"
    file = tmp_path / "team.properties"
    file.write_text(f"# of a listener\n{key}=open sesame\nmax.connections.per.ip=1000\n")
    for _ in range(2):  # a new secret, and one that takes the place of another
        said = config("set", "broker", "1", "--file", str(file))
        assert f"{key}: -> (hidden)" in said
        assert "max.connections.per.ip" in said
        assert "sesame" not in said + config("get", "broker", "1")
    assert "given more than once" in config(
        "set", "broker", "1", "max.connections.per.ip=5", "--file", str(file), code=2
    )
    assert "no such file" in config("set", "broker", "1", "--file", f"{file}.none", code=2)
    config("set", "broker", "1", "--delete", key, "--delete", "max.connections.per.ip")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("create",),
        ("create", "t", "--partitions", "many"),
        ("create", "t", "--config", "retention.ms"),
        ("create", "t", "--replicas", "1:x"),
        ("create", "t", "--replicas", "1,2", "--partitions", "2"),
        ("alter", "t"),
        ("alter", "t", "--set", "a=1", "--delete", "a"),
        ("records", "t", "--yes"),
        ("records", "t", "--delete-before", "-1"),
        ("records", "t", "--delete-before-time", "someday"),
        ("records", "t", "--delete-all", "--delete-before", "1"),
        ("records", "t", "--partition", "a"),
    ],
)
def test_invalid_arguments_are_a_usage_error(command: Command, arguments: tuple[str, ...]) -> None:
    command(*arguments, code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("get",),
        ("get", "nothing", "name"),
        ("get", "broker", "first"),
        ("set", "topic", "t"),
        ("set", "topic", "t", "retention.ms"),
        ("set", "topic", "t", "a=1", "--subtract", "a=1"),
    ],
)
def test_settings_that_cannot_be_meant_are_usage_errors(
    config: Command, arguments: tuple[str, ...]
) -> None:
    config(*arguments, code=2)


def test_sizes_and_directories_of_replicas_are_shown(
    command: Command, wire: Wire, topic: str
) -> None:
    create(command, topic, "--partitions", "2")
    fill(wire, topic, [1, 2, 3], partition=1)
    listed = {each["topic"]: each for each in command.json("list", "--sizes")}
    assert listed[topic]["bytes"] > 0
    assert "bytes" not in command.json("list")[0]
    assert " B\n" in command("list", "--sizes")
    empty, filled = command.json("dirs", topic)
    assert (empty["partition"], empty["bytes"]) == (0, 0)
    assert (filled["partition"], filled["bytes"]) == (1, listed[topic]["bytes"])
    assert filled["directory"].startswith("/")
    assert not filled["moving"]
    assert filled["directory"] in command("dirs", topic)
    assert command.json("dirs", topic, "--node", str(filled["node"])) == [empty, filled]
    assert "no node 4711 is up" in command("dirs", topic, "--node", "4711", code=1)
    assert "there is no topic" in command("dirs", f"{topic}-none", code=1)
    assert "expected a whole number" in command("dirs", "--node", "x", code=2)


# headwater bench


@pytest.fixture
def bench(command: Command, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command("bench", capsys)


def test_a_benchmark_counts_what_it_sends_and_reads(
    command: Command, bench: Command, topic: str
) -> None:
    create(command, topic, "--partitions", "2")
    assert f"{topic} has no records" in bench("consume", topic, code=1)
    sent = bench.json("produce", topic, "--records", "500", "--size", "100", "--rate", "100000")
    assert (sent["records"], sent["bytes"]) == (500, 50_000)
    latency = sent["latency_ms"]
    ordered = [latency[name] for name in ("p50", "p95", "p99", "p99.9", "max")]
    assert 0 < latency["average"] <= latency["max"]
    assert ordered == sorted(ordered)
    read = bench.json("consume", topic)
    assert (read["records"], read["bytes"], read["latency_ms"]) == (500, 50_000, None)
    assert read["records_per_second"] > 0
    assert bench.json("consume", topic, "--records", "7")["records"] == 7
    assert f"500 records of 50.0 kB read from {topic}" in bench("consume", topic)
    assert "p99.9" in bench("produce", topic, "--records", "10", "--compression", "zstd")
    said = bench("consume", topic, "--records", "1000", "--timeout", "0.2", code=1)
    assert "no record came for 0.2 s; 1,000 were asked for" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("produce", "t", "--records", "0"), "expected a whole number, at least 1"),
        (("produce", "t", "--rate", "x"), "expected a whole number, at least 1"),
        (("produce", "t", "--size", "-1"), "expected a whole number, at least 0"),
        (("consume", "t", "--from", "5"), "expected beginning or end"),
        (("produce",), "expected TOPIC"),
    ],
)
def test_a_benchmark_that_cannot_be_run_is_refused(
    bench: Command, words: tuple[str, ...], said: str
) -> None:
    assert said in bench(*words, code=2)
