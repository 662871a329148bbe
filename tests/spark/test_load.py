"""A topic into files and files into a topic, with a real Spark session."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from harness.wire import until
from headwater.spark.load import Loaded, LoadError, ToFiles, TopicLoad
from headwater.spark.load_topic import FromFiles, start
from tests.spark.conftest import Read, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

HEADWATER = str(Path(sys.executable).with_name("headwater"))


def load(
    spark: SparkSession, topics: Topics, what: ToFiles, path: Path, since: str | None = None
) -> Loaded:
    run = TopicLoad(spark, what, str(path))
    options = {"maxOffsetsPerTrigger": "60"}
    run.start(topics.bootstrap, since=since, options=options).awaitTermination()
    return run.loaded


def values_in(path: Path) -> list[int]:
    """As a reader sees them that knows nothing of us or of Spark."""
    files = [each for each in path.rglob("*.parquet") if "_headwater" not in each.parts]
    return sorted(int(value) for each in files for value in _column(each))


def _column(file: Path) -> list[bytes]:
    found: list[bytes] = pq.read_table(file, columns=["value"]).column("value").to_pylist()
    return found


def test_a_second_run_loads_what_is_new_and_nothing_twice(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    what = ToFiles(topic=topic, format="parquet", value="bytes")
    lake = tmp_path / "lake"
    topics.write(topic, range(100))
    first = load(spark, topics, what, lake)
    assert (first.records, first.batches) == (100, 2)
    assert first.files == len(list(lake.glob("*.parquet")))
    topics.write(topic, range(100, 130), partition=1)
    assert load(spark, topics, what, lake).records == 30
    assert load(spark, topics, what, lake) == Loaded(0, 0, 0, 0)
    assert values_in(lake) == list(range(130))


def test_a_run_that_ended_anywhere_is_taken_up_without_loss_or_repetition(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.write(topic, range(100))
    what = ToFiles(topic=topic, format="parquet", value="bytes")
    whole = tmp_path / "whole"
    load(spark, topics, what, whole)
    own = Path("_headwater")

    noted = tmp_path / "noted"  # Spark has not heard that the last batch is written
    shutil.copytree(whole, noted)
    _forget(noted / own / "checkpoint/commits/1")
    assert load(spark, topics, what, noted).records == 0

    moved = tmp_path / "moved"  # nor is there a note of it, and one of its files was moved in
    shutil.copytree(whole, moved)
    _forget(moved / own / "checkpoint/commits/1")
    _forget(moved / own / "batches/1.json")
    assert load(spark, topics, what, moved).records == 40

    for folder in (noted, moved):
        assert values_in(folder) == list(range(100)), folder


def _forget(file: Path) -> None:
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_values_become_text_or_columns_in_folders_by_day_and_since_a_time(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    day = 86_400_000
    for number, value in enumerate(['{"id": 1, "n": 2.5}', '{"id": 2}', "no JSON"]):
        at = 1_772_323_200_000 + number * day  # 2026-03-01
        topics.write(topic, [value], key=f"k{number}", headers={"h": b"1"}, timestamp=at)

    lines = tmp_path / "lines"
    what = ToFiles(topic=topic, format="json", value="text", partition_by=("day",))
    assert load(spark, topics, what, lines, since="2026-03-02T00:00:00Z").records == 2
    assert sorted(each.name for each in lines.iterdir() if each.is_dir()) == [
        "_headwater",
        "day=2026-03-02",
        "day=2026-03-03",
    ]
    [file] = (lines / "day=2026-03-02").glob("*.json")
    row = json.loads(file.read_text())
    assert (row["key"], row["value"], row["offset"]) == ("k1", '{"id": 2}', 1)
    assert row["headers"] == [{"key": "h", "value": "1"}]

    table = tmp_path / "table"
    what = ToFiles(topic=topic, format="csv", value="json", schema="id int, n double")
    load(spark, topics, what, table)
    rows = spark.read.option("header", "true").csv(str(table)).orderBy("_offset").collect()
    assert [(row.id, row.n, row._unparsed) for row in rows] == [
        ("1", "2.5", None),
        ("2", None, None),
        (None, None, "no JSON"),
    ]


def test_a_folder_belongs_to_one_load(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.write(topic, range(3))
    lake = tmp_path / "lake"
    what = ToFiles(topic=topic, format="orc", value="bytes")
    load(spark, topics, what, lake)
    with pytest.raises(LoadError, match="was loaded with format orc, and now it is json"):
        load(spark, topics, ToFiles(topic=topic, format="json", value="bytes"), lake)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("")
    with pytest.raises(LoadError, match="has files that were not written by a load"):
        load(spark, topics, what, other)


def test_what_cannot_be_loaded_is_refused_without_spark(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="--partition-by colour: there is no such column"):
        ToFiles(topic="a", format="orc", value="bytes", partition_by=("colour",))
    with pytest.raises(LoadError, match="a CSV file cannot hold bytes"):
        ToFiles(topic="a", format="csv", value="bytes")
    with pytest.raises(LoadError, match=r"--schema 'id strng': .*did you mean string"):
        ToFiles(topic="a", format="csv", value="json", schema="id strng")
    (tmp_path / "mine.txt").write_text("")
    for arguments, says in (
        (["a", "--to", str(tmp_path)], "has files that were not written by a load"),
        (["a", "--to", str(tmp_path / "mine.txt")], "is not a folder"),
        (
            ["a", "--to", str(tmp_path / "new"), "--since", "soon"],
            "--since='soon': expected a time",
        ),
        (["--from", str(tmp_path / "nowhere"), "--to-topic", "a"], "is not a folder"),
    ):
        # Nothing listens there: the folder is looked at first.
        done = subprocess.run(
            [HEADWATER, "load", *arguments, "--bootstrap", "127.0.0.1:1"],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 2
        assert says in done.stderr


def test_a_load_that_is_told_to_stop_ends_after_a_batch_and_the_next_one_goes_on(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.write(topic, range(200))
    lake = tmp_path / "lake"
    command = [HEADWATER, "load", topic, "--to", str(lake), "--master", "local[1]"]
    command += ["--bootstrap", topics.bootstrap]
    slowly = [*command, "--option", "maxOffsetsPerTrigger=1"]
    process = subprocess.Popen(slowly, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until((lake / "_headwater" / "batches" / "0.json").exists, "the first batch", 200)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGTERM, said
    assert "Traceback" not in said
    assert len(values_in(lake)) < 200
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert values_in(lake) == list(range(200))


def test_files_go_into_a_topic_and_a_second_run_takes_only_new_ones(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, read: Read
) -> None:
    copy = f"{topic}-copy"
    topics.create(topic, 2)
    topics.create(copy, 2)
    topics.write(topic, range(20), partition=1, key=b"\xff", headers={"h": b"1"}, timestamp=1000)
    lake = tmp_path / "lake"
    load(spark, topics, ToFiles(topic=topic, format="parquet", value="bytes"), lake)
    back = FromFiles(path=str(lake), format="parquet", topic=copy, keep_partitions=True)

    def run(what: FromFiles) -> None:
        start(spark, what, topics.bootstrap, state=None, options={}).awaitTermination()

    run(back)
    run(back)
    rows = read(copy, includeHeaders="true").orderBy("offset").collect()
    assert [int(row.value) for row in rows] == list(range(20))
    assert {(row.key, row.partition, row.timestamp.timestamp() % 60) for row in rows} == {
        (b"\xff", 1, 1.0)
    }
    assert [tuple(each) for each in rows[0].headers] == [("h", b"1")]

    people = tmp_path / "people"
    people.mkdir()
    (people / "a.csv").write_text("id,name\n7,ada\n8,bob\n")
    run(FromFiles(path=str(people), format="csv", topic=copy, key="id"))
    rows = read(copy).where("timestampType = 0").collect()
    found = {row.key: row.value for row in rows if row.key != b"\xff"}
    assert {key: json.loads(value) for key, value in found.items()} == {
        b"7": {"id": "7", "name": "ada"},
        b"8": {"id": "8", "name": "bob"},
    }
    with pytest.raises(
        LoadError, match="--key colour: there is no such column; the columns are id"
    ):
        run(FromFiles(path=str(people), format="csv", topic=copy, key="colour"))
    with pytest.raises(LoadError, match="is not a folder"):
        run(FromFiles(path=str(tmp_path / "nowhere"), format="csv", topic=copy))
