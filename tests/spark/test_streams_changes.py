"""An app whose code changes between its runs, and whose input gets partitions meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from headwater.blocking import Consumer
from headwater.cli.main import main
from tests.support.programs import running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Topics

pytestmark = pytest.mark.timeout(600)

FIRST = """
from headwater.streams import App, f

app = App("talk")
lines = app.stream("talk-lines", str)
lines.map(f.upper("value"), to=str).to("talk-loud")
lines.group_by("value").count(name="counts").to("talk-counted")
"""
# Other functions before the same state, and a new query.
KEPT = """
from headwater.streams import App, f

app = App("talk")
lines = app.stream("talk-lines", str)
lines.map(f.reverse("value"), to=str).to("talk-loud")
lines.filter(f.length("value") > 0).group_by("value").count(name="counts").to("talk-counted")
app.stream("talk-more", str).to("talk-copied")
"""
# Another aggregate under the same name.
LOST = FIRST.replace(".count(", '.agg(n=f.count("value"), ')
# Several commands in one process share a JVM. Each comes with the code that it must end with.
PROGRAM = """
import json, sys
from headwater.cli.main import main

for wanted, command in json.loads(sys.argv[1]):
    print("$", *command[:2], file=sys.stderr, flush=True)
    code = main(command)
    assert code == wanted, (command, code)
"""


def test_each_record_counts_once_whatever_changes_meanwhile(topics: Topics, tmp_path: Path) -> None:
    for name in ("lines", "loud", "counted", "more", "copied"):
        topics.create(f"talk-{name}", 1)
    for name, text in (("first", FIRST), ("kept", KEPT), ("lost", LOST)):
        (tmp_path / f"{name}.py").write_text(text)
    bootstrap = ["--bootstrap", topics.bootstrap]
    folder = ["--checkpoints", str(tmp_path / "progress"), "--master", "local[2]"]

    def run(name: str, *options: str) -> list[str]:
        file = str(tmp_path / f"{name}.py")
        return ["streams", "run", file, *options, *folder, *bootstrap]

    topics.write("talk-lines", ["a", "b", "a"])
    topics.write("talk-more", ["x"])
    command = [sys.executable, "-m", "headwater.cli.main", *run("first")]
    with (
        Consumer(topics.bootstrap, isolation_level="read_committed") as consumer,
        running(command, tmp_path) as app,
    ):

        def shouted(count: int) -> list[bytes]:
            return sorted(app.values(consumer, "talk-loud", lambda found: len(found) >= count))

        assert shouted(3) == [b"A", b"A", b"B"]
        topics.grow("talk-lines", 2)  # while it runs
        topics.write("talk-lines", ["a", "c"], partition=1)
        assert shouted(5) == [b"A", b"A", b"A", b"B", b"C"]
        assert main(["streams", "stop", "talk", *bootstrap]) == 0
        app.end()
    topics.grow("talk-lines", 3)  # while it is stopped
    topics.write("talk-lines", ["de", "a"], partition=2)
    topics.write("talk-lines", ["b"], partition=0)
    commands = [
        (0, run("kept", "--once")),
        (0, run("kept", "--once")),  # there is nothing left to read
        (1, run("lost", "--once")),
        (0, run("lost", "--once", "--start-over", "counts")),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept, again, refused, over = done.stderr.split("$ streams run\n")[1:]
    assert "talk: keeps the state and the position of talk-loud, counts" in kept
    assert "talk: starts talk-copied from the beginning" in kept
    assert again == ""
    assert "the checkpoints do not fit the topology: counts: its state was that of " in refused
    assert "--start-over counts discards their state and position" in refused
    assert "talk: no longer runs talk-copied, and keeps their checkpoints" in over
    assert topics.read("talk-loud", 1) == sorted(["A", "B", "A", "A", "C", "ed", "a", "b"])
    assert topics.read("talk-copied", 1) == ["x"]
    counted = topics.read("talk-counted", 1)
    assert [each for each in counted if each.startswith("{")] == [
        '{"n":1}',
        '{"n":1}',
        '{"n":2}',
        '{"n":4}',
    ]
    # The counts of a that were passed on: 2, 3 and 4, and not more than once.
    assert sorted(each for each in counted if not each.startswith("{"))[-2:] == ["3", "4"]
