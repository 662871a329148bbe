"""Arguments that `headwater group` refuses before it asks any node."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.errors import CommandError
from headwater.cli.group_describe import partitions_text, seconds_text
from headwater.cli.group_reset import Move, _chosen, _from_file
from headwater.cli.main import main
from headwater.model import TopicPartition


def run(*arguments: str) -> int:
    try:
        return main(("group", *arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else -1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("reset", "g"),
        ("reset", "g", "--all-topics"),
        ("reset", "g", "--to-earliest"),
        ("reset", "g", "--all-topics", "--topic", "t", "--to-earliest"),
        ("reset", "g", "--all-topics", "--to-earliest", "--to-latest"),
        ("reset", "g", "--all-topics", "--to-offset", "-1"),
        ("reset", "g", "--all-topics", "--to-time", "someday"),
        ("reset", "g", "--all-topics", "--by-duration", "1 day"),
        ("reset", "g", "--topic", "t:a", "--to-latest"),
        ("reset", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"),
        ("reset", "g", "--topic", "t", "--from-file", "offsets.csv"),
        ("delete",),
        ("offsets", "delete"),
        ("offsets", "delete", "g"),
        ("offsets", "delete", "g", "--topic", "t:x"),
        ("describe",),
    ],
)
def test_invalid_arguments_are_a_usage_error(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "describe", "reset", "delete"])
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(action, "--help") == 0
    assert "--bootstrap" in capsys.readouterr().out


def test_topics_are_chosen_whole_or_by_partition() -> None:
    assert _chosen("orders") == ("orders", None)
    assert _chosen("orders:0,3") == ("orders", (0, 3))


def test_a_file_may_speak_of_many_groups(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("orders,0,5\nbilling,orders,1,7\nother,orders,2,9\n\n")
    assert _from_file(str(path), "billing") == {
        TopicPartition("orders", 0): 5,
        TopicPartition("orders", 1): 7,
    }


@pytest.mark.parametrize("text", ["", "orders,0\n", "orders,zero,1\n", "orders,0,1,2,3\n"])
def test_an_empty_or_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    with pytest.raises(CommandError, match=r"offsets\.csv"):
        _from_file(str(path), "billing")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(b"orders,0,\xff\n")
    with pytest.raises(CommandError, match="not a text file"):
        _from_file(str(path), "billing")


def test_a_move_knows_its_difference() -> None:
    assert Move(TopicPartition("t", 0), current=10, asked=4, new=4).difference == -6
    assert Move(TopicPartition("t", 0), current=None, asked=4, new=4).difference is None


def test_partitions_are_written_by_topic_and_in_order() -> None:
    mixed = [TopicPartition("b", 2), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert partitions_text(mixed) == "a:9,10 b:2"


def test_seconds_are_written_for_people() -> None:
    said = [seconds_text(each) for each in (0, 0.25, 9.94, 61, 300, 10_000, 500_000)]
    assert said == ["0 s", "0.2 s", "9.9 s", "61 s", "5 min", "2.8 h", "5.8 d"]
