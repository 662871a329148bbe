"""`headwater produce`, `consume`, `profile` and `completion`, as they are typed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.completion import candidates
from headwater.testing import EmbeddedBroker

HEADWATER = str(Path(sys.executable).with_name("headwater"))


class Shell:
    """Runs commands against one broker, with profiles of its own."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.environment = os.environ | {
            "HEADWATER_BOOTSTRAP": bootstrap,
            "HEADWATER_PROFILES": str(folder / "profiles.json"),
        }
        self.environment.pop("HEADWATER_PROFILE", None)

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEADWATER, *words],
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def out(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, *words: str, code: int, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def shell(shared_broker: EmbeddedBroker, tmp_path: Path) -> Shell:
    return Shell(shared_broker.bootstrap, tmp_path)


ALL = ("--from", "beginning", "--until-end")


def test_lines_become_records_and_lines_again(shell: Shell, topic: str) -> None:
    done = shell.run("produce", topic, stdin="one\ntwo\nthree")
    assert done.stderr == f"3 records sent to {topic}\n"
    assert shell.out("consume", topic, *ALL) == "one\ntwo\nthree\n"


def test_keys_values_and_headers_are_typed_and_shown(shell: Shell, topic: str) -> None:
    words = ("--value", "hello", "--key", "alice", "--header", "trace=7", "--header", "by=me")
    shell.out("produce", topic, *words)
    shown = shell.out("consume", topic, *ALL, "--format", "%t %p %o|%k|%v|%h|100%%")
    assert shown == f"{topic} 0 0|alice|hello|trace=7,by=me|100%\n"


def test_a_format_takes_lines_apart(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, "--format", r"%k\t%v", stdin="a\t1\nb\t2\t3\n")
    assert shell.out("consume", topic, *ALL, "--format", "%k=%v") == "a=1\nb=2\t3\n"


def test_a_separator_sets_keys_apart_and_a_word_stands_for_null(shell: Shell, topic: str) -> None:
    stdin = "a:1\nb:NULL\nNULL:c:3\n:\n"
    shell.out("produce", topic, "--key-separator", ":", "--null", "NULL", stdin=stdin)
    shown = shell.out("consume", topic, *ALL, "--format", "%k=%v", "--null", "(none)")
    assert shown == "a=1\nb=(none)\n(none)=c:3\n=\n"
    assert shell.out("consume", topic, *ALL, "--null", "-") == "1\n-\nc:3\n\n"
    shell.out("produce", topic, "--key-separator", r"%\t", "--value", "k%\tv")
    assert (
        shell.out("consume", topic, "--from", "-1", "--until-end", "--format", "%k=%v") == "k=v\n"
    )
    said = shell.refusal("produce", topic, "--key-separator", ":", "--format", "%v", code=2)
    assert "cannot be combined" in said
    said = shell.refusal("produce", topic, "--key-separator", ":", "--value", "no key", code=1)
    assert "--value no key: does not match the format '%k:%v'" in said


def test_settings_of_the_client_have_kafkas_names(shell: Shell, topic: str) -> None:
    large = "x" * 1_100_000
    said = shell.refusal("produce", topic, stdin=large, code=1)
    assert "max_request_size" in said
    shell.out("topic", "create", topic, "--config", "max.message.bytes=2000000")
    shell.out("produce", topic, "--property", "max.request.size=2000000", stdin=large)
    read = ("consume", topic, *ALL, "--property", "max.partition.fetch.bytes=1000")
    assert shell.out(*read) == f"{large}\n"
    said = shell.refusal("produce", topic, "--value", "v", "--property", "max.requst=1", code=2)
    assert "max.requst" in said
    assert "--bootstrap" not in said


def test_json_lines_go_from_topic_to_topic_unchanged(shell: Shell, topic: str) -> None:
    line = {"key": "k", "value": {"base64": "/w=="}, "headers": {"h": None}, "timestamp": 1000}
    shell.out("produce", topic, "--format", "json", stdin=json.dumps(line))
    first = shell.out("consume", topic, *ALL, "--output", "json")
    shell.out("produce", f"{topic}-copy", "--format", "json", stdin=first)
    second = json.loads(shell.out("consume", f"{topic}-copy", *ALL, "--format", "json"))
    assert second == json.loads(first) | {"topic": f"{topic}-copy"}
    assert line.items() <= second.items()


def test_a_tombstone_has_a_key_and_no_value(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, "--key", "k", "--tombstone")
    assert json.loads(shell.out("consume", topic, *ALL, "--format", "json"))["value"] is None
    assert "--key" in shell.refusal("produce", topic, "--tombstone", code=2)


def test_an_invalid_line_is_reported_with_its_number(shell: Shell, topic: str) -> None:
    stdin = '{"value": "good"}\nnonsense\n{"value": "later"}\n'
    said = shell.refusal("produce", topic, "--format", "json", stdin=stdin, code=1)
    assert "standard input, line 2: not JSON" in said
    assert "sent before it: 1 record;" in said
    assert shell.out("consume", topic, *ALL) == "good\n"
    shell.out("produce", topic, "--format", "json", "--skip-bad", stdin=stdin)
    assert shell.out("consume", topic, *ALL) == "good\ngood\nlater\n"


def test_files_are_read_in_order(shell: Shell, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("3")
    files = ("--file", str(tmp_path / "a"), "--file", str(tmp_path / "b"))
    counted = json.loads(shell.out("produce", topic, *files, "--output", "json"))
    assert counted["records"] == 3
    assert shell.out("consume", topic, *ALL) == "1\n2\n3\n"
    said = shell.refusal("produce", topic, "--file", str(tmp_path / "c"), code=1)
    assert "no such file" in said


def test_reading_begins_and_ends_where_it_is_told(shell: Shell, topic: str) -> None:
    lines = "".join(f'{{"value": "{n}", "timestamp": {n * 1000}}}\n' for n in range(10))
    shell.out("produce", topic, "--format", "json", stdin=lines)
    assert shell.out("consume", topic, "--from", "7", "--until-end") == "7\n8\n9\n"
    assert shell.out("consume", topic, "--from", "beginning", "--max", "2") == "0\n1\n"
    when = "1970-01-01T00:00:08+00:00"
    assert shell.out("consume", topic, "--from", when, "--until-end") == "8\n9\n"
    assert shell.out("consume", topic, "--from", "@8", "--until-end") == "8\n9\n"
    assert shell.out("consume", topic, "--from", "-3", "--until-end") == "7\n8\n9\n"
    assert shell.out("consume", topic, "--from", "-30", "--max", "1") == "0\n"
    assert shell.out("consume", topic, "--from", "1h", "--until-end") == ""
    assert shell.out("consume", topic, "--timeout", "0.1") == ""
    assert shell.out("consume", f"{topic}:0", *ALL, "--max", "1") == "0\n"


def test_a_group_continues_from_its_committed_offsets(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, stdin="1\n2\n3\n")
    group = ("--group", topic, "--from", "beginning")
    assert shell.out("consume", topic, *group, "--max", "2") == "1\n2\n"
    assert shell.out("consume", topic, *group, "--max", "1") == "3\n"
    assert "group reset" in shell.refusal("consume", topic, "--group", "g", "--from", "5", code=2)


def test_reading_ends_before_an_offset_or_a_time(shell: Shell, topic: str) -> None:
    lines = "".join(f'{{"value": "{n}", "timestamp": {n * 1000}}}\n' for n in range(10))
    shell.out("produce", topic, "--format", "json", stdin=lines)
    assert shell.out("consume", topic, "--from", "3", "--to", "5") == "3\n4\n"
    assert shell.out("consume", topic, "--from", "@2", "--to", "@4") == "2\n3\n"
    assert shell.out("consume", topic, "--from", "-3", "--to", "-1") == "7\n8\n"
    assert shell.out("consume", topic, "--from", "@8", "--to", "now") == "8\n9\n"
    assert shell.out("consume", topic, "--from", "8", "--to", "end") == "8\n9\n"
    assert shell.out("consume", topic, "--from", "5", "--to", "5") == ""
    said = shell.refusal("consume", topic, "--to", "2100-01-01", code=2)
    assert "--to 2100-01-01: this time has not come yet" in said
    said = shell.refusal("consume", topic, "--to", "5", "--until-end", code=2)
    assert "not allowed with" in said
    # An end that lies ahead is waited for.
    with run_until(shell, ("consume", topic, "--from", "9", "--to", "11"), lines=1) as reading:
        shell.out("produce", topic, stdin="10\n11\n")
        rest, _ = reading.communicate(timeout=60)
    assert (reading.returncode, rest) == (0, "10\n")


def test_an_offset_beyond_the_end_is_reported(shell: Shell, topic: str) -> None:
    shell.out("topic", "create", topic, "--partitions", "2")
    shell.out("produce", topic, "--partition", "0", stdin="1\n2\n3\n")
    said = shell.refusal("consume", topic, "--from", "5", code=1)
    assert f"--from 5 is beyond the end: {topic}-0 ends at 3, {topic}-1 ends at 0" in said
    done = shell.run("consume", topic, "--from", "2", "--until-end")
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert done.stderr == f"headwater consume: {topic}-1 ends at 0; it is read from there\n"
    done = shell.run("consume", topic, "--from", "2100-01-01", "--timeout", "0.1")
    assert "there is no record from 2100-01-01 on" in done.stderr


def test_an_offset_that_was_deleted_is_reported(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, stdin="0\n1\n2\n3\n")
    shell.out("topic", "records", topic, "--delete-before", "2", "--yes")
    done = shell.run("consume", topic, "--from", "1", "--until-end")
    assert (done.returncode, done.stdout) == (0, "2\n3\n")
    assert done.stderr == f"headwater consume: {topic}-0 begins at 2; it is read from there\n"
    assert shell.out("consume", topic, "--from", "0", "--until-end") == "2\n3\n"


def test_many_topics_are_read_at_once_by_name_or_by_pattern(shell: Shell, topic: str) -> None:
    names = [f"{topic}-{each}" for each in ("a", "b")]
    for name in (*names, f"other-{topic}-a"):
        shell.out("produce", name, "--value", name)
    pattern = (f"{re.escape(topic)}-.*", "--regex")
    for words in (names, pattern, (*pattern, "--group", topic)):
        shown = shell.out("consume", *words, "--from", "beginning", "--until-end")
        assert sorted(shown.splitlines()) == names
    said = shell.refusal("consume", f"{topic}-[", "--regex", code=2)
    assert f"--regex {topic}-[: unterminated" in said
    said = shell.refusal("consume", f"{topic}-x.*", "--regex", code=1)
    assert f"no topic matches {topic}-x.*\n  `headwater topic list`" in said


def test_a_group_reads_until_the_end_and_commits_nothing_beyond_it(
    shell: Shell, topic: str
) -> None:
    shell.out("topic", "create", topic, "--partitions", "3")
    for first in (0, 10, 20):
        lines = "".join(f"{n}\n" for n in range(first, first + 10))
        shell.out("produce", topic, "--partition", str(first // 10), stdin=lines)
    group = ("--group", topic, "--from", "beginning")
    some = shell.out("consume", topic, *group, "--to", "2").split()
    assert sorted(map(int, some)) == [0, 1, 10, 11, 20, 21]
    assert committed(shell, topic) == 6
    rest = shell.out("consume", topic, *group, "--until-end").split()
    assert sorted(map(int, some + rest)) == list(range(30))
    assert committed(shell, topic) == 30
    assert shell.out("consume", topic, *group, "--until-end") == ""


def test_any_text_can_delimit_records(shell: Shell, topic: str, tmp_path: Path) -> None:
    shell.out("produce", topic, "--delimiter", r"\0", stdin="one\nline\0two\0")
    assert shell.out("consume", topic, *ALL, "--delimiter", r"\0") == "one\nline\0two\0"
    assert shell.out("consume", topic, *ALL, "--format", "%V;", "--delimiter", "") == "8;3;"
    for name in ("first", "second"):
        (tmp_path / name).write_text(f"{name}\n\nfile\n")
    files = ("--file", str(tmp_path / "first"), "--file", str(tmp_path / "second"))
    shell.out("produce", f"{topic}-files", *files, "--whole-file", "--key", "k")
    shown = shell.out("consume", f"{topic}-files", *ALL, "--format", "%k %V %v", "--delimiter", ".")
    assert shown == "k 12 first\n\nfile\n.k 13 second\n\nfile\n."
    assert "--delimiter" in shell.refusal("produce", topic, "--delimiter", "", code=2)
    said = shell.refusal("produce", topic, "--delimiter", "x", "--whole-file", code=2)
    assert "--whole-file" in said
    assert "--value" in shell.refusal("produce", topic, "--value", "v", "--whole-file", code=2)
    assert "JSON" in shell.refusal("consume", topic, "--delimiter", "x", "--output", "json", code=2)


def test_bytes_go_through_hex_and_base64(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, "--format", "%k{hex} %v{base64}", stdin="00ff /v8=\n")
    shown = shell.out("consume", topic, *ALL, "--format", "%k{base64} %v{hex} %K %V %H")
    assert shown == "AP8= feff 2 2 0\n"
    said = shell.refusal("produce", topic, "--format", "%v{hex}", stdin="zz\n", code=1)
    assert "line 1: %v is not hex" in said
    assert "{hex} and {base64}" in shell.refusal("consume", topic, "--format", "%v{b64}", code=2)


def test_the_timeout_of_a_member_begins_with_its_assignment(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, stdin="1\n2\n")
    words = ("--group", f"{topic}-late", "--from", "beginning", "--timeout", "1")
    assert shell.out("consume", topic, *words) == "1\n2\n"


def test_a_mistyped_topic_is_reported_and_not_created(shell: Shell, topic: str) -> None:
    missing = f"{topic}-mistyped"
    for words in ((), ("--group", "g")):
        said = shell.refusal("consume", missing, *words, "--timeout", "5", code=1)
        assert missing in said
        assert "headwater topic list" in said
    assert missing not in shell.out("topic", "list")


def test_a_missing_partition_is_reported(shell: Shell, topic: str) -> None:
    shell.out("topic", "create", topic, "--partitions", "2")
    for numbers in ("7", "0,7"):
        said = shell.refusal("consume", f"{topic}:{numbers}", *ALL, code=1)
        assert f"there is no partition {topic}:7\n  {topic} has partitions 0 to 1" in said


def test_standard_input_may_be_closed(shell: Shell, topic: str) -> None:
    command = f'"{HEADWATER}" produce {topic} <&-'
    done = subprocess.run(
        command, shell=True, env=shell.environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("headwater produce: standard input is closed\n")


def test_failures_among_many_results_go_to_standard_error(shell: Shell, topic: str) -> None:
    done = shell.run("topic", "create", topic, "no:name")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{topic}: created")
    assert done.stderr.startswith("no:name: not created: ")
    done = shell.run("group", "delete", f"{topic}-group", "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{topic}-group: not found\n"
    done = shell.run("cluster", "features", "--set", "no.such=1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no.such" in done.stderr


def sh(shell: Shell, command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", f'{HEADWATER} {command}; exit "${{PIPESTATUS[0]}}"'],
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, stdin="1\n2\n")
    consume = f"consume {topic} --from beginning --until-end"
    assert sh(shell, f"{consume} | head -1")[1:] == ("1\n", "")
    for command in (consume, "topic list", "version"):
        assert sh(shell, f"{command} >&-") == (0, "", "")
        assert sh(shell, f"{command} | true")[1:] == ("", "")
    assert sh(shell, f"produce {topic} --value 3 2>&-") == (0, "", "")
    assert sh(shell, f"topic describe {topic}-nowhere 2>&-") == (1, "", "")


def test_an_output_error_is_reported(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, stdin="1\n2\n")
    consume = f"consume {topic} --from beginning --until-end"
    for command in (consume, "topic list", "version"):
        name = command.split()[0]
        said = f"headwater {name}: no space left on device\n"
        assert sh(shell, f"{command} > /dev/full") == (1, "", said)


@pytest.fixture
def many(shell: Shell, topic: str) -> int:
    """Puts 2,000 records of a kilobyte into the topic: more than a pipe holds."""
    shell.out("produce", topic, stdin=f"{'x' * 1023}\n" * 2000)
    return 2000


def committed(shell: Shell, group: str) -> int:
    told = json.loads(shell.out("group", "describe", group, "--offsets", "--output", "json"))
    return sum(each["committed"] or 0 for each in told["offsets"])


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_does_not_fit_is_an_error_and_is_not_committed(
    shell: Shell, topic: str, many: int, tmp_path: Path, unbuffered: str
) -> None:
    shell.environment["PYTHONUNBUFFERED"] = unbuffered
    group = f"{topic}-{unbuffered}"
    consume = f"consume {topic} --group {group} --from beginning --max {many}"
    limited = tmp_path / "limited"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; {HEADWATER} {consume} > {limited}"],
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "headwater consume: file too large\n")
    assert committed(shell, group) <= limited.stat().st_size // 1024


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", ["config get broker 1 --all --output json", "config get broker 1 --all"]
)
def test_no_command_loses_a_part_of_its_output(
    shell: Shell, tmp_path: Path, command: str, unbuffered: str
) -> None:
    shell.environment["PYTHONUNBUFFERED"] = unbuffered
    shown = tmp_path / "shown"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 4; {HEADWATER} {command} > {shown}"],
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "headwater config: file too large\n")
    assert shown.stat().st_size == 4096


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_records_that_the_pipe_did_not_take_are_not_committed(
    shell: Shell, topic: str, many: int, unbuffered: str
) -> None:
    shell.environment["PYTHONUNBUFFERED"] = unbuffered
    consume = f"consume {topic} --group {topic} --from beginning --max {many}"
    code, shown, said = sh(shell, f"{consume} | head -3")
    assert (code, len(shown), said) == (1, 3 * 1024, "")
    assert committed(shell, topic) <= 100  # a pipe holds 64 KB, and `head` has read some


def test_a_cluster_without_pipelines_lists_none_at_once(shell: Shell) -> None:
    assert shell.out("pipeline", "list") == "no pipelines\n"


def test_invalid_usage_is_reported_in_one_line(shell: Shell, topic: str) -> None:
    assert "no-such-topic" in shell.refusal("consume", "no-such-topic", *ALL, code=1)
    assert "%x is not known" in shell.refusal("consume", topic, "--format", "%x", code=2)
    assert "need a separator" in shell.refusal("produce", topic, "--format", "%k%v", code=2)
    assert "header 'x'" in shell.refusal("produce", topic, "--value", "v", "--header", "x", code=2)
    assert "cannot be combined" in shell.refusal(
        "produce", topic, "--value", "v", "--file", "-", code=2
    )
    nobody = ("--bootstrap", "127.0.0.1:1")
    assert "is a node running there?" in shell.refusal(
        "produce", topic, *nobody, "--value", "v", code=1
    )


def test_profiles_name_clusters(shell: Shell, topic: str, shared_broker: EmbeddedBroker) -> None:
    shell.out("produce", topic, "--value", "x")
    shell.environment.pop("HEADWATER_BOOTSTRAP")
    shell.out("profile", "add", "here", shared_broker.bootstrap)
    shell.out("profile", "add", "nowhere", "127.0.0.1:1")
    assert shell.out("consume", topic, *ALL, "--profile", "here") == "x\n"
    shell.out("profile", "use", "here")
    assert shell.out("consume", topic, *ALL) == "x\n"
    assert "127.0.0.1:1" in shell.refusal("topic", "list", "--profile", "nowhere", code=1)
    listed = json.loads(shell.out("profile", "list", "--output", "json"))
    assert [(each["name"], each["used"]) for each in listed] == [("here", True), ("nowhere", False)]
    assert "profiles: here, nowhere" in shell.refusal("topic", "list", "--profile", "x", code=2)
    shell.out("profile", "remove", "here")
    assert shell.run("profile", "remove", "here").returncode == 1


def test_a_shell_completes_commands_options_values_and_topics(
    shell: Shell, topic: str, shared_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.out("topic", "create", topic)
    shell.out("profile", "add", "staging", "h:1")
    monkeypatch.setenv("HEADWATER_PROFILES", shell.environment["HEADWATER_PROFILES"])
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", "127.0.0.1:1")  # what is typed comes first
    here = ("--bootstrap", shared_broker.bootstrap)
    for words, expected in (
        (["con"], ["config", "consume"]),
        (["--bootstrap", "h:1", "con"], ["config", "consume"]),
        (["--bootstrap", ""], []),
        (["topic", "de"], ["delete", "describe"]),
        (["topic", "create", "--part"], ["--partitions"]),
        (["produce", "t", "--compression", "z"], ["zstd"]),
        (["produce", "t", "--compression=z"], ["--compression=zstd"]),
        (["produce", "t", "--file", ""], None),
        (["log", "dump", ""], None),
        (["produce", "t", "--value", ""], []),
        (["produce", "t", ""], []),
        (["profile", "use", ""], ["staging"]),
        (["consume", "t", "--from", "b"], ["beginning"]),
        (["group", "offsets", "d"], ["delete"]),
        (["topic", "list", "--profile", "st"], ["staging"]),
        (["topic", "delete", *here, topic], [topic]),
        (["topic", "delete", *here, "other", topic], [topic]),
        (["topic", "delete", f"--bootstrap={here[1]}", topic], [topic]),
        ([*here, "topic", "delete", topic], [topic]),
        (["group", "reset", "g", *here, "--topic", topic], [topic]),
        (["config", "get", *here, "topic", topic], [topic]),
        (["config", "get", *here, "topic", topic, "retention."], RETENTION),
        (["config", "get", *here, "broker", "a"], ["all"]),
        (["topic", "delete", topic], []),  # nobody is there to ask
    ):
        assert candidates(words) == expected, words


RETENTION = ["retention.bytes", "retention.ms"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("topic desc", ["describe"]),
        ("topic describe --bootstrap {bootstrap} {topic}", ["{topic}"]),
        ("topic describe '{topic}", ["{topic}"]),
        ("topic list --output=", ["json", "text"]),
        ("topic list --ou", ["--output"]),
        ("produce t --file ", ["(files)"]),
    ],
)
def test_bash_completes_although_it_splits_words(
    shell: Shell, topic: str, shared_broker: EmbeddedBroker, typed: str, expected: list[str]
) -> None:
    shell.out("topic", "create", topic)
    names = {"topic": topic, "bootstrap": shared_broker.bootstrap}
    line = f"headwater {typed.format(**names)}"
    piece = re.split(r"[\s:=]", line)[-1] or line[-1].strip()
    script = (
        'eval "$(headwater completion bash)"; compopt() { COMPREPLY=("(files)"); }; '
        'COMP_WORDS=("$PIECE"); COMP_CWORD=0; COMP_POINT=${#COMP_LINE}; '
        "_headwater; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    environment = shell.environment | {
        "PATH": f"{Path(HEADWATER).parent}:{os.environ['PATH']}",
        "COMP_LINE": line,
        "PIECE": piece,
    }
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [each.format(**names) for each in expected], done.stderr


# Signals


def run_until(shell: Shell, words: tuple[str, ...], lines: int) -> subprocess.Popen[str]:
    """Starts a command and waits for its first lines."""
    running = subprocess.Popen(
        [HEADWATER, *words],
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    for _ in range(lines):
        assert running.stdout.readline()
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.usefixtures("hangups_count")
def test_a_member_that_is_told_to_end_commits_and_leaves_its_group(
    shell: Shell, topic: str, number: signal.Signals
) -> None:
    shell.out("produce", topic, stdin="1\n2\n")
    words = ("consume", topic, "--group", topic, "--from", "beginning")
    with run_until(shell, words, lines=2) as reading:
        reading.send_signal(number)
        rest, said = reading.communicate(timeout=60)
    expected = 0 if number == signal.SIGINT else -number
    assert (reading.returncode, rest, said) == (expected, "", "")
    told = json.loads(shell.out("group", "describe", topic, "--output", "json"))
    assert (told["members"], told["state"]) == ([], "Empty")
    assert committed(shell, topic) == 2


def test_a_reader_that_takes_nothing_does_not_keep_the_command_from_ending(
    shell: Shell, topic: str, many: int
) -> None:
    words = ("consume", topic, "--group", topic, "--from", "beginning")
    with run_until(shell, words, lines=1) as reading:
        reading.send_signal(signal.SIGTERM)
        assert reading.wait(timeout=60) == -signal.SIGTERM
    assert committed(shell, topic) < many


def test_the_command_ends_when_nobody_reads_its_output(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, stdin="1\n2\n")
    code, shown, said = sh(shell, f"consume {topic} --from beginning | head -2")
    assert (code, shown, said) == (1, "1\n2\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_producer_that_is_told_to_end_sends_the_rest_and_says_how_much(
    shell: Shell, topic: str, number: signal.Signals
) -> None:
    command = [HEADWATER, "produce", topic]
    with subprocess.Popen(
        command, env=shell.environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as producing:
        assert producing.stdin is not None
        producing.stdin.write("1\n2\n")
        producing.stdin.flush()
        shell.out("consume", topic, "--from", "beginning", "--max", "2")
        producing.send_signal(number)
        _, said = producing.communicate(timeout=60)
    assert (producing.returncode, said) == (-number, f"2 records sent to {topic}\n")


def test_an_interrupted_benchmark_reports_what_it_has_measured(shell: Shell, topic: str) -> None:
    shell.out("topic", "create", topic)
    command = ("bench", "produce", topic, "--rate", "10", "--size", "5")
    with run_until(shell, command, lines=0) as sending:
        shell.out("consume", topic, "--from", "beginning", "--max", "1")
        sending.send_signal(signal.SIGINT)
        shown, said = sending.communicate(timeout=60)
    assert (sending.returncode, said) == (-signal.SIGINT, "")
    assert f"sent to {topic}" in shown
    assert "latency" in shown


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--max", "3"), -signal.SIGINT)])
def test_an_interrupted_read_fails_only_if_it_had_an_end(
    shell: Shell, topic: str, words: tuple[str, ...], code: int
) -> None:
    shell.out("produce", topic, stdin="1\n2\n")
    command = [HEADWATER, "consume", topic, "--from", "beginning", *words]
    with subprocess.Popen(
        command,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reading:
        assert reading.stdout is not None
        assert [reading.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
        reading.send_signal(signal.SIGINT)
        rest, said = reading.communicate(timeout=60)
    assert (reading.returncode, rest, said) == (code, "", "")
