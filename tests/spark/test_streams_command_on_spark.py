"""`headwater streams` with Spark: an app is run, looked into, scaled and rebuilt."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.blocking import Admin, Consumer, Producer
from headwater.cli.main import main
from headwater.model import TopicPartition
from headwater.spark.pipeline_status import TOPIC, TOPIC_CONFIGS
from headwater.testing import EmbeddedBroker
from tests.spark.conftest import Topics

pytestmark = pytest.mark.timeout(900)

WORDS = Path(__file__).parents[2] / "examples" / "streams" / "words.py"
# Several commands in one process share a JVM, whose start would be most of the time.
PROGRAM = """
import json, sys
from headwater.cli.main import main

for command in json.loads(sys.argv[1]):
    print("$", *command[:2], flush=True)
    code = main(command)
    assert code == 0, (command, code)
"""


def counts(topics: Topics, topic: str, word: str) -> list[int]:
    """Returns all counts of a word that were committed."""
    with Consumer(topics.bootstrap, isolation_level="read_committed") as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets(place)[place]
        found: list[int] = []
        while consumer.position(place) < end:
            records = consumer.poll(timeout_ms=1000)
            found += [int(each.value or b"0") for each in records if each.key == word.encode()]
    return found


def test_an_app_is_scaled_and_rebuilt_and_continues(topics: Topics, tmp_path: Path) -> None:
    topics.create("lines", 1)
    topics.create("words-counts-changelog", 1, cleanup_policy="compact")
    topics.write("lines", ["to be or not to be"])
    (tmp_path / "more.txt").write_text("to be\n")
    cluster = ["--bootstrap", topics.bootstrap]
    folder = ["--checkpoints", str(tmp_path / "progress"), "--master", "local[2]"]
    run = ["streams", "run", str(WORDS), "--once", *folder, *cluster]
    more = ["produce", "lines", "--file", str(tmp_path / "more.txt"), *cluster]
    state = ["streams", "state", "words", *folder, *cluster, "--output", "json"]
    rebuild = ["streams", "rebuild", str(WORDS), *folder, *cluster]
    commands = [
        run,
        ["streams", "scale", "words", "--partitions", "3", *folder, *cluster],
        more,
        run,
        state,
        more,  # is not read by the rebuild: it is for the next run
        rebuild,
        [*rebuild, "--yes"],
        state,
        run,
        [*rebuild, "--from", "inputs"],
        [*rebuild, "--from", "inputs", "--yes"],
        more,
        run,
        ["streams", "list", *cluster],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    said = [part.split("\n", 1)[1] for part in done.stdout.split("$ ")[1:]]
    assert "the state of counts has 3 partitions" in said[1]
    for shown in (said[4], said[8]):
        kept = {each["key"]: each["value"]["count"] for each in json.loads(shown)["rows"]}
        assert kept == {"to": 3, "be": 3, "or": 1, "not": 1}
    assert "counts would take its state from words-counts-changelog, and write nothing" in said[6]
    assert "rebuilt counts's state from words-counts-changelog (4 keys); the next run" in said[7]
    assert "counts would read lines again: 0@3" in said[10]
    assert "rebuilt counts's state and words-counts-changelog from its inputs" in said[11]
    assert "finished" in said[14]
    # Each result once; only the table itself has its values once more, if inputs are read again.
    assert counts(topics, "word-counts", "to") == [2, 3, 4, 5]
    assert counts(topics, "words-counts-changelog", "to") == [2, 3, 4, 4, 5]


def test_what_fires_later_is_not_rebuilt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = str(WORDS.with_name("shop.py"))
    assert main(["streams", "rebuild", shop, "--query", "alarms"]) == 1
    assert "results of silence-1 come when a time has passed" in capsys.readouterr().err
    assert main(["streams", "rebuild", shop]) == 2
    assert "those with state are revenue, orders-with-names" in capsys.readouterr().err
    checkpoint = tmp_path / "words"
    checkpoint.mkdir()
    (checkpoint / "counts.rebuild.json").write_text("{}")
    with EmbeddedBroker(topics={"lines": 1}) as broker:
        command = ["streams", "run", str(WORDS), "--checkpoints", str(tmp_path)]
        assert main([*command, "--bootstrap", broker.bootstrap]) == 1
    assert "the rebuild of query counts was cut off" in capsys.readouterr().err
    command = ["streams", "rebuild", str(WORDS), "--checkpoints", str(tmp_path)]
    assert main([*command, "--from", "changelog"]) == 1
    assert "from its inputs was cut off" in capsys.readouterr().err
    assert main([*command]) == 0
    assert "(not from the topic of its table: it was begun that way)" in capsys.readouterr().out


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[str]:
    """A cluster in which the app of words.py has read two lines. It has a checkpoint."""
    (tmp_path / "words" / "counts" / "offsets").mkdir(parents=True)
    topics = {"lines": 1, "words-counts-changelog": 1}
    with EmbeddedBroker(topics=topics) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)
            admin.alter_group_offsets("words-counts", {TopicPartition("lines", 0): 2})
        yield broker.bootstrap


def test_a_rebuild_deletes_nothing_while_a_transaction_is_open(
    stopped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuild = ["streams", "rebuild", str(WORDS), "--checkpoints", str(tmp_path)]
    with Producer(stopped, transactional_id="killed") as killed, killed.transaction():
        killed.send("words-counts-changelog", b"1", key=b"to")
        assert main([*rebuild, "--yes", "--bootstrap", stopped]) == 1
    assert "a transaction of the last run of counts is still open" in capsys.readouterr().err
    assert (tmp_path / "words" / "counts" / "offsets").is_dir()
    assert not (tmp_path / "words" / "counts.rebuild.json").exists()


def test_a_rebuild_that_was_cut_off_goes_on_from_the_position_as_it_is_now(
    stopped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"from": "changelog", "up_to": {"lines": {"0": 1}}}
    (tmp_path / "words" / "counts.rebuild.json").write_text(json.dumps(kept))
    rebuild = ["streams", "rebuild", str(WORDS), "--checkpoints", str(tmp_path)]
    assert main([*rebuild, "--bootstrap", stopped, "--output", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["from"], shown["up_to"]) == ("changelog", {"lines": {"0": 2}})


def test_a_rebuild_that_was_cut_off_does_not_go_on_with_another_operator(
    stopped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"state": [{"operator": "sum('value')"}]}
    kept = {"from": "changelog", "up_to": {}, "fingerprint": json.dumps(before)}
    (tmp_path / "words" / "counts.rebuild.json").write_text(json.dumps(kept))
    averages = tmp_path / "averages.py"
    averages.write_text(WORDS.read_text().replace(".count(", '.avg(f.length("value"), '))
    for file, why in (
        (WORDS, "its state was that of sum('value'), and is now"),
        (averages, "keeps more than its result"),
    ):
        rebuild = ["streams", "rebuild", str(file), "--checkpoints", str(tmp_path)]
        rebuild += ["--bootstrap", stopped]
        assert main(rebuild) == 1
        said = capsys.readouterr().err
        assert "from the changelog was cut off, and is no longer possible: " in said
        assert why in said
        assert "--from inputs reads its topics again" in said
        assert main([*rebuild, "--from", "inputs"]) == 0
        assert "counts would read lines again: 0@2" in capsys.readouterr().out
