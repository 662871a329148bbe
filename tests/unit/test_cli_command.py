"""The command without a node: what it says, what it refuses, how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import __version__
from headwater.cli.main import COMMANDS, main, parser_for
from headwater.cli.parser import HIDDEN

# What these print is not a result: a node's one line, a program for a shell, a show for people.
NO_RESULT = ("cert", "start", "completion", "demo")


def run(*arguments: str) -> int:
    """The exit code, also where argparse ends the process by itself."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else -1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(f"usage: headwater {command}")
    assert "SUPPRESS" not in shown.out


def test_help_lists_every_command_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {command} " in shown for command in COMMANDS)
    assert "examples:" in shown


def test_without_a_command_help_is_shown_and_the_exit_code_is_two(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 2
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("no-such",), ("start", "--no-such"), ("start", "extra")])
def test_unknown_arguments_are_refused_with_exit_code_two(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert "headwater" in capsys.readouterr().err


def test_help_loads_no_part_of_a_node() -> None:
    """Imports are the cost of `--help`, on any machine."""
    check = (
        # What argparse itself loads depends on the version of Python: since 3.14 it has colors.
        "import argparse, sys; argparse.ArgumentParser().format_help()\n"
        "heavy = {'asyncio', 'socket', 'ssl', 'logging', 'typing', 'dataclasses', 'inspect'}\n"
        "heavy -= set(sys.modules)\n"
        "from headwater.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "ours = {m for m in sys.modules if m.startswith('headwater')}\n"
        "ours -= {'headwater', 'headwater.cli', 'headwater.cli.main', 'headwater.cli.errors',"
        " 'headwater.cli.parser'}\n"
        "sys.exit(f'{heavy & set(sys.modules)} {ours}' if heavy & set(sys.modules) or ours else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_program_that_calls_main_keeps_its_unbuffered_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "output").open("wb", buffering=0) as raw:
        stream = io.TextIOWrapper(raw, write_through=True)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert main(["version"]) == 0
        stream.write("after")
    said = (tmp_path / "output").read_text()
    assert __version__ in said
    assert said.endswith("after")


def test_version_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version") == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["headwater", __version__]
    assert run("version", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["headwater"] == __version__
    assert run("--version") == 0
    assert capsys.readouterr().out == f"headwater {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--set", "num.partitions=many"), ("num.partitions", "'many'", "expected")),
        (("--set", "num.partitions=0"), ("num.partitions", "0", "expected")),
        (("--set", "log.retention.housr=1"), ("log.retention.housr", "log.retention.hours")),
        (("--set", "num.partitions"), ("--set num.partitions", "KEY=VALUE")),
        (("--listen", "9092"), ("--listen 9092", "HOST:PORT")),
        (("--listen", "localhost:99999"), ("--listen localhost:99999", "HOST:PORT")),
        (("--memory", "--data", "somewhere"), ("--memory", "--data")),
        (("--config", "no/such/file"), ("--config no/such/file", "no such file")),
    ],
)
def test_an_invalid_setting_is_one_line_and_exit_code_two(
    arguments: tuple[str, ...], names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("start", *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("headwater start: ")
    assert all(name in shown.err for name in names), shown.err


def test_an_invalid_properties_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=\\u12\n")
    assert run("start", "--config", str(path)) == 2
    assert str(path) in capsys.readouterr().err


def leaves(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parsers of what can be run."""
    inner = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    for action in inner:
        for each in action.choices.values():
            yield from leaves(each)
    if not inner:
        yield parser


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in NO_RESULT])
def test_every_action_has_json_output(command: str) -> None:
    parsers = [each for each in leaves(parser_for([command])) if command in each.prog.split()]
    assert parsers
    for parser in parsers:
        outputs = [each for each in parser._actions if "--output" in each.option_strings]
        assert outputs, parser.prog
        assert "json" in outputs[0].choices, parser.prog  # type: ignore[operator]


def test_an_unknown_option_is_reported_by_the_action(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("topic", "list", "--no-such") == 2
    said = capsys.readouterr().err
    assert said == (
        "headwater topic list: unknown option --no-such\n"
        "  `headwater topic list --help` shows what it takes\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("topics", "headwater: unknown command topics; did you mean topic?"),
        ("topic lsit", "headwater topic: unknown action lsit; did you mean list?"),
        ("topic frob", "headwater topic: unknown action frob; expected create, list, "),
        ("topic list --outptu json", "topic list: unknown option --outptu; did you mean --out"),
        ("topic list --output=jsno", "--output: jsno: expected text or json; did you mean json?"),
        ("topic list orders", "headwater topic list: unexpected argument orders"),
        ("topic", "headwater topic: expected ACTION"),
        ("completion tcsh", "unknown action tcsh; expected bash, zsh or fish\n"),
        (
            "topic create t --partitions many",
            "--partitions: many: expected a whole number, at least 1",
        ),
        ("topic create t --partitions 0", "--partitions: 0: expected a whole number, at least 1"),
        ("consume t --timeout nan", "--timeout: nan: expected seconds"),
        ("consume t --timeout -1", "--timeout: -1: expected seconds"),
        ("consume t --from sometime", "--from: sometime: expected beginning, end, an offset, a"),
        ("topic list --bootstrap=", "headwater topic: --bootstrap is empty: expected HOST:PORT"),
    ],
)
def test_a_mistyped_word_is_reported_with_a_suggestion(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert len(shown.err.splitlines()) <= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_an_action_shows_the_examples_of_that_action(command: str) -> None:
    for parser in leaves(parser_for([command])):
        if not parser.prog.startswith(f"headwater {command} ") or parser.prog.endswith(HIDDEN):
            continue
        heading, *examples = str(parser.epilog).partition("\n\n")[0].splitlines()
        assert heading == "examples:"
        assert examples, parser.prog
        assert all(parser.prog in each for each in examples), parser.epilog


def test_the_cluster_may_be_given_before_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for before in (["--bootstrap", "127.0.0.1:1"], ["--output=json", "--bootstrap=127.0.0.1:1"]):
        assert run(*before, "topic", "list") == 1
        assert "127.0.0.1:1: connection refused" in capsys.readouterr().err


def test_a_setting_without_a_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "set", "topic", "orders", "retention.ms") == 2
    assert "config: retention.ms: expected KEY=VALUE" in capsys.readouterr().err


def test_profiles_speak_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWATER_PROFILES", str(tmp_path / "profiles.json"))
    for arguments, expected in (
        (
            ("add", "here", "h:1"),
            {"name": "here", "bootstrap": "h:1", "client_config": None},
        ),
        (("use", "here"), {"used": "here"}),
        (("use",), {"used": None}),
        (("remove", "here"), {"removed": "here"}),
    ):
        assert run("profile", *arguments, "--output", "json") == 0
        assert json.loads(capsys.readouterr().out) == expected
    assert run("profile", "remove", "here") == 1
    assert "there is no profile here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("", "h:1"), "'' is not a valid name"),
        (("two words", "h:1"), "'two words' is not a valid name"),
        (("here", ""), "expected at least one address"),
        (("here", "h:port"), "HOST:PORT='h:port': expected HOST:PORT with a port"),
        (("here", "http://h:1"), "does not speak HTTP"),
    ],
)
def test_an_invalid_profile_is_not_added(
    arguments: tuple[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADWATER_PROFILES", str(tmp_path / "profiles.json"))
    assert run("profile", "add", *arguments) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "profiles.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"profiles": ["a"]}',
        b'{"profiles": {"a": 5}}',
        b'{"profiles": {}, "used": 5}',
    ],
)
def test_a_broken_file_of_profiles_is_named(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profiles.json"
    path.write_bytes(text)
    monkeypatch.setenv("HEADWATER_PROFILES", str(path))
    monkeypatch.delenv("HEADWATER_BOOTSTRAP", raising=False)
    for arguments in (("profile", "list"), ("topic", "list")):
        assert run(*arguments) == 1
        said = capsys.readouterr().err
        assert f"{path} is not a valid profiles file\n  fix it, or delete it" in said
    # Nobody needs it who says where the cluster is.
    assert run("topic", "list", "--bootstrap", "127.0.0.1:1") == 1
    assert "connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo", "load", "pipeline"}))
def test_the_help_of_a_command_loads_no_client_and_no_node(command: str) -> None:
    check = (
        f"import sys; from headwater.cli.main import main\ntry: main(['{command}', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('asyncio', 'headwater.client', 'headwater.broker', 'headwater.protocol')\n"
        "sys.exit(', '.join(each for each in heavy if each in sys.modules) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
