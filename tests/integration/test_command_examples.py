"""Every example that a help text shows is run against a node."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.main import main, parser_for
from headwater.testing import EmbeddedBroker

COMMANDS = (
    "produce",
    "consume",
    "topic",
    "group",
    "config",
    "quota",
    "cluster",
    "bench",
    "log",
    "profile",
    "completion",
)
# One node cannot do these, they name hosts that do not exist, or records that nobody sends.
NOT_HERE = (
    "--bootstrap-controller host:9093",
    "cluster quorum add 4",
    "cluster quorum remove 2",
    "cluster unregister 2",
    "node-2/data",
    "--replication 3",
    "--to 2,3",
    "--profile production",
    "--from 5000",
    "bench consume orders --from end",
)
# Added to examples that wait for records, or that take long.
SHORTER = {
    "consume": ("--timeout", "0.3"),
    "bench consume": ("--timeout", "0.3"),
    "bench produce": ("--records", "100"),
}
FILES = {
    "lines.txt": "one\ntwo\n",
    "pairs.txt": "alice:1\nbob:2\n",
    "triples.tsv": "alice\ttrace=1\tvalue\n",
    "order.xml": "<order>\n</order>\n",
    "production.properties": "security.protocol=PLAINTEXT\n",
    "team.properties": "max.connections.per.ip=1000\n",
}


def examples_of(command: str) -> list[str]:
    """The examples of a command's help, without the words beside them."""
    parser = parser_for([command])
    (commands,) = (each for each in parser._actions if each.dest == "command")
    assert isinstance(commands.choices, dict)
    epilog = str(commands.choices[command].epilog).partition("\n\n")[0]
    heading, *lines = re.sub(r"\\\n +", "", epilog).splitlines()
    assert heading == "examples:"
    return [re.split(r"  +", line.strip())[0] for line in lines]


def run(example: str, environment: dict[str, str]) -> int:
    """The exit code. What a shell is needed for, or a signal ends, runs in a process."""
    words = shlex.split(example)
    extra = next((SHORTER[each] for each in SHORTER if f"headwater {each} " in example), ())
    if "--watch" in words:
        words.remove("--watch")
    if words[0] == "headwater" and not {"|", ">"} & set(words):
        try:
            return main([*words[1:], *extra])
        except SystemExit as end:
            return int(end.code or 0)
    piped = " ".join(extra) if "--from" not in example and "consume" in example else ""
    script = re.sub(r"(headwater consume \w+)", rf"\1 {piped}", example)
    return subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, timeout=60
    ).returncode


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_a_help_text_work(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HEADWATER_PROFILES", str(tmp_path / "profiles.json"))
    monkeypatch.delenv("HEADWATER_PROFILE", raising=False)
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with EmbeddedBroker(data=tmp_path / "headwater-data") as broker:
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap)
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if command != "topic":  # which begins with a topic that is not there
            for topic in ("orders", "old-orders", "clicks", "orders-eu", "old"):
                main(("topic", "create", topic, "--partitions", "2"))
                for partition in ("0", "1"):
                    values = ("--value", "a", "--value", "b")
                    main(("produce", topic, *values, "--partition", partition))
            topics = ("--topic", "orders", "--topic", "old-orders")
            main(("group", "reset", "billing", *topics, "--to-latest", "--execute"))
            (tmp_path / "orders-0").symlink_to(tmp_path / "headwater-data" / "orders-0")
        for example in examples_of(command):
            if "completion zsh" in example:  # bash cannot read it
                continue
            capsys.readouterr()
            code = run(example, environment)
            said = capsys.readouterr()
            assert code != 2, (example, said)
            is_possible = not any(each in example for each in NOT_HERE)
            assert (code == 0) == is_possible, (example, code, said)
