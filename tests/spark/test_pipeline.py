"""Complete pipelines with a real Spark session: results, dead letters, state, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from harness.wire import until
from headwater import blocking
from headwater.cli.errors import CommandError
from headwater.cli.pipeline_file import PipelineFile
from headwater.spark.dead_letters import OFFSET, PIPELINE, REASON, TOPIC
from headwater.spark.failures import Cause, failure_of
from headwater.spark.pipeline import Pipeline, PipelineError, Stream, Table, pipeline
from headwater.spark.pipeline_query import Setting, run_once, sql_pipelines, start
from headwater.spark.pipeline_sql import parse
from tests.conftest import MakeBroker
from tests.spark.conftest import Read, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)

HEADWATER = str(Path(sys.executable).with_name("headwater"))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
SCHEMA = "customer string, amount double, at timestamp"


def order(customer: str, amount: float, second: int = 0) -> str:
    at = f"2026-03-01T08:{second // 60:02}:{second % 60:02}Z"
    return json.dumps({"customer": customer, "amount": amount, "at": at})


class Place:
    """A topic of orders, and pipelines that read all of it."""

    def __init__(self, spark: SparkSession, topics: Topics, read: Read, topic: str, path: Path):
        self.spark, self.topics, self._read, self.topic = spark, topics, read, topic
        self.dead = f"{topic}-dead"
        self.path = path
        self.setting = Setting(
            bootstrap=topics.bootstrap, checkpoints=str(path), dead_letters=self.dead, once=True
        )
        topics.create(topic, 2)
        topics.create(self.dead)

    def run(self, pipeline: Pipeline) -> None:
        query = start(self.spark, pipeline, self.setting)
        query.awaitTermination()

    def results(self, name: str) -> list[tuple[str | None, Any]]:
        """Returns keys and JSON values, in the order of their offsets."""
        rows = self._read(name).orderBy("partition", "offset").collect()
        return [
            (None if row.key is None else row.key.decode(), json.loads(row.value)) for row in rows
        ]

    def letters(self) -> list[tuple[bytes, dict[str, str]]]:
        return self.letters_of(self.dead)

    def letters_of(self, name: str) -> list[tuple[bytes, dict[str, str]]]:
        rows = self._read(name, includeHeaders="true").orderBy("offset").collect()
        return [
            (row.value, {each.key: (each.value or b"").decode() for each in row.headers})
            for row in rows
        ]


@pytest.fixture
def place(spark: SparkSession, topics: Topics, read: Read, topic: str, tmp_path: Path) -> Place:
    return Place(spark, topics, read, topic, tmp_path)


def test_sums_are_renewed_state_outlives_a_run_and_poison_goes_to_the_dead_letters(
    place: Place,
) -> None:
    totals = f"{place.topic}-totals"

    @pipeline(orders=Stream(place.topic, SCHEMA), to=totals, key="customer", mode="update")
    def sums(orders: DataFrame) -> DataFrame:
        return orders.groupBy("customer").agg({"amount": "sum"}).toDF("customer", "total")

    write = place.topics.write
    write(place.topic, [order("ada", 1.5), order("bob", 2), "{oops"], headers={"trace": b"7"})
    write(place.topic, ['{"customer": "eve", "amount": "much"}'], partition=1)
    place.run(sums)
    assert sorted(place.results(totals)) == [
        ("ada", {"customer": "ada", "total": 1.5}),
        ("bob", {"customer": "bob", "total": 2.0}),
    ]
    (oops, headers), (much, others) = sorted(place.letters(), reverse=True)
    assert oops == b"{oops"
    assert much == b'{"customer": "eve", "amount": "much"}'
    assert headers[REASON] == "the value is not JSON"
    assert others[REASON].startswith("the value is JSON, but does not fit the schema: customer")
    assert (headers["trace"], headers[TOPIC], headers[OFFSET]) == ("7", place.topic, "2")
    assert headers[PIPELINE] == "sums"

    write(place.topic, [order("ada", 10)], partition=1)
    place.run(sums)
    assert place.results(totals)[-1] == ("ada", {"customer": "ada", "total": 11.5})
    assert len(place.letters()) == 2


def test_windows_are_written_once_when_no_event_may_come_any_more(place: Place) -> None:
    windows = f"{place.topic}-windows"
    script = f"""
        CREATE STREAM orders (customer STRING, amount DOUBLE, at TIMESTAMP,
                              WATERMARK FOR at AS 10 SECONDS)
        FROM TOPIC `{place.topic}` WITH (maxOffsetsPerTrigger = 3);
        CREATE TEMPORARY VIEW large AS SELECT * FROM orders WHERE amount > 1;
        INSERT INTO TOPIC `{windows}` WITH (key = 'customer')
        SELECT customer, window.start AS start, sum(amount) AS total
        FROM large GROUP BY customer, window(at, '10 seconds');
    """
    [statement] = sql_pipelines(parse(script))
    place.topics.write(place.topic, [order("ada", 2, 1), order("ada", 1, 2), order("ada", 3, 12)])
    # What is too late is judged by the watermark of the batch before: at 8:00:03 one comes late
    # and counts, at 8:00:04 one comes when its window is gone.
    place.topics.write(place.topic, [order("ada", 5, 30), order("ada", 4, 3), order("ada", 6, 60)])
    place.topics.write(place.topic, [order("ada", 7, 90), order("ada", 7, 91), order("ada", 7, 92)])
    place.topics.write(place.topic, [order("ada", 9, 4), order("ada", 7, 93), order("ada", 7, 94)])
    place.run(statement)
    got = [(value["start"][14:19], value["total"]) for _, value in place.results(windows)]
    assert sorted(got) == [("00:00", 6.0), ("00:10", 3.0), ("00:30", 5.0), ("01:00", 6.0)]


def test_a_function_for_each_record_may_return_one_several_or_none_and_may_raise(
    place: Place,
) -> None:
    out = f"{place.topic}-out"

    @pipeline(record=Stream(place.topic, SCHEMA), each="who string, part int", to=out)
    def parts(record: dict[str, Any]) -> Any:
        match record["customer"]:
            case "one":
                return {"who": record["_key"], "part": 0}
            case "two":
                return [{"who": "a", "part": 1}, {"who": "b", "part": 2}]
            case "none":
                return None
            case "wrong":
                return {"who": "c", "part": "not a number"}
        raise LookupError(f"no {record['customer']}")

    names = ["one", "two", "none", "wrong", "else"]
    place.topics.write(place.topic, [order(name, 1) for name in names] + ["?"], key=b"me")
    place.run(parts)
    assert place.results(out) == [
        ("me", {"who": "me", "part": 0}),
        ("me", {"who": "a", "part": 1}),
        ("me", {"who": "b", "part": 2}),
    ]
    reasons = [headers[REASON] for _, headers in place.letters()]
    assert reasons[1:] == ["LookupError: no else", "the value is not JSON"]
    assert "not a number" in reasons[0]


def test_bytes_pass_with_their_key_headers_and_time(place: Place, read: Read) -> None:
    copy = f"{place.topic}-copy"
    same = pipeline(records=Stream(place.topic), to=copy)(lambda records: records)
    place.topics.write(
        place.topic, ["\x00raw"], key=b"\xff\x00", headers={"a": b"1"}, timestamp=1_700_000_000_000
    )
    place.run(same.with_name("same"))
    [row] = read(copy, includeHeaders="true").collect()
    assert (row.key, row.value) == (b"\xff\x00", b"\x00raw")
    assert [tuple(each) for each in row.headers] == [("a", b"1")]
    assert row.timestamp.timestamp() % 60 == 20


def test_a_table_is_the_newest_value_of_each_key(place: Place) -> None:
    report = f"{place.topic}-report"
    newest = pipeline(table=Table(place.topic, "name string"), to=report, key="name")(
        lambda table: table.select("name")
    )
    assert newest.is_batch
    for key, value in (("1", "old"), ("2", "gone"), ("1", "new")):
        place.topics.write(place.topic, [json.dumps({"name": value})], key=key)
    end = Producer({"bootstrap.servers": place.topics.bootstrap})
    end.produce(place.topic, None, key="2", partition=0)
    assert end.flush(30) == 0
    run_once(place.spark, newest.with_name("newest"), place.setting)
    assert place.results(report) == [("new", {"name": "new"})]


def test_records_of_aborted_transactions_are_not_read_unless_that_is_asked_for(
    place: Place,
) -> None:
    settings = {"transactional.id": place.topic}
    with blocking.Producer(place.topics.bootstrap, config=settings) as producer:
        producer.begin_transaction()
        producer.submit(place.topic, json.dumps({"name": "aborted"}), key="1", partition=0)
        producer.flush()
        producer.abort_transaction()
    place.topics.write(place.topic, [json.dumps({"name": "there"})], key=b"2")
    stream, everything, table = (f"{place.topic}-{name}" for name in ("stream", "all", "table"))
    for source, to in (
        (Stream(place.topic, "name string"), stream),
        (Stream(place.topic, "name string", options={"isolation": "read_uncommitted"}), everything),
    ):
        place.run(pipeline(given=source, to=to)(lambda given: given.select("name")).with_name(to))
    of_table = pipeline(given=Table(place.topic, "name string"), to=table)(
        lambda given: given.select("name")
    )
    run_once(place.spark, of_table.with_name(table), place.setting)
    assert [value["name"] for _, value in place.results(stream)] == ["there"]
    assert [value["name"] for _, value in place.results(everything)] == ["aborted", "there"]
    assert [value["name"] for _, value in place.results(table)] == ["there"]


def test_what_cannot_be_run_is_said_in_words_of_the_pipeline(place: Place) -> None:
    def declared(function: Any, schema: str = SCHEMA, **options: Any) -> Pipeline:
        made = pipeline(orders=Stream(place.topic, schema), to="out", **options)
        return made(function).with_name("sums")

    counts = declared(lambda orders: orders.groupBy("customer").count())
    with pytest.raises(PipelineError, match=r'sums: .*use mode="update"'):
        place.run(counts)
    with pytest.raises(
        PipelineError, match="key 'id' is not a column of the result; it has customer"
    ):
        place.run(declared(lambda orders: orders, key="id"))
    with pytest.raises(PipelineError, match="sums returned 7: expected a DataFrame"):
        place.run(declared(lambda orders: 7))
    with pytest.raises(PipelineError, match=f"topic {place.topic}: schema 'customer strong'"):
        place.run(declared(lambda orders: orders, schema="customer strong"))
    with pytest.raises(PipelineError, match=r"sums: .*UNRESOLVED_COLUMN"):
        place.run(declared(lambda orders: orders.select("colour")))
    script = f"""
    CREATE STREAM orders ({SCHEMA}) FROM TOPIC `{place.topic}`;
    INSERT INTO TOPIC out SELECT customer, count(*) AS n FROM orders GROUP BY customer;
    """
    [counts] = sql_pipelines(parse(script))
    with pytest.raises(PipelineError, match=r"line 3, column 27: out: .*use mode = 'update'"):
        place.run(counts)


def headwater(*arguments: str, place: Place) -> subprocess.CompletedProcess[str]:
    command = [HEADWATER, *arguments, "--bootstrap", place.topics.bootstrap]
    # Checkpoints go to the working directory unless a test says otherwise.
    return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=place.path)


def test_a_pipeline_runs_until_it_is_told_to_stop_and_everybody_can_see_it(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "checked.py"
    text = (EXAMPLES / "checked.py").read_text()
    file.write_text(text.replace('Stream("orders"', f'Stream("{place.topic}"'))
    name = f"{place.topic[-8:]}-checked"
    orders = [json.dumps({"id": n, "customer": "Ada", "price": n}) for n in range(3)]
    place.topics.write(place.topic, orders)
    command = [HEADWATER, "pipeline", "run", str(file), "--name", name, "--master", "local[1]"]
    command += ["--bootstrap", place.topics.bootstrap, "--checkpoints", str(tmp_path / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if f"{name}: batch 0, 3 records" in line:
                break
        listed = json.loads(headwater("pipeline", "list", "--output", "json", place=place).stdout)
        [row] = [each for each in listed if each["pipeline"] == name]
        assert (row["state"], row["lag"]) == ("running", 0)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=200)
        assert process.returncode == 0
    finally:
        process.kill()
    assert f"{name}: stopped after 3 records" in rest
    described = headwater("pipeline", "describe", name, "--output", "json", place=place)
    status = json.loads(described.stdout)
    assert (status["state"], status["rows_in"], status["error"]) == ("stopped", 3, None)
    assert sorted(value["cents"] for _, value in place.results("orders.checked")) == [100, 200]
    assert [headers[REASON] for _, headers in place.letters_of(f"{name}.dead-letters")] == [
        "ValueError: order 0 has price 0.0"
    ]


COPIES = """
from headwater.spark.pipeline import Stream, pipeline

IMPATIENT = {"kafka.default.api.timeout.ms": "1000"}


@pipeline(orders=Stream("orders", format="text", options=IMPATIENT), to="copies")
def copies(orders):
    return orders
"""


def test_a_pipeline_that_lost_its_broker_is_started_again(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(data=tmp_path / "data")
    topics = Topics(broker.bootstrap)
    topics.create("orders")
    topics.write("orders", ["before"])
    file = tmp_path / "copies.py"
    file.write_text(COPIES)
    command = [HEADWATER, "pipeline", "run", str(file), "--master", "local[1]"]
    command += ["--bootstrap", broker.bootstrap, "--checkpoints", str(tmp_path / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said_after(process, "copies: batch 0, 1 record,")
        broker.stop()
        # The last it hears of the broker may be that it gives its partitions up, or nothing.
        said_after(process, "; starting again in 2 s")
        broker.start()
        topics.write("orders", ["after"])
        until(lambda: topics.read("copies", 1) == ["after", "before"], "the copies", 100)
        process.send_signal(signal.SIGTERM)
        assert "copies: stopped after 2 records, lag 0" in process.communicate(timeout=100)[0]
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def said_after(process: subprocess.Popen[str], text: str) -> str:
    """Returns the next line of the output that has the text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        if text in line:
            return line
        lines.append(line)
    raise AssertionError(f"{text!r} was not said:\n{''.join(lines)}")


TOTALS = """-- what each customer has spent
CREATE STREAM orders (customer STRING, amount DOUBLE) FROM TOPIC `{topic}`;

INSERT INTO TOPIC `{to}` WITH (key = 'customer', mode = 'update')
SELECT customer, /* not
       one line */ sum({column}) AS total
FROM orders GROUP BY customer;
"""


def test_a_pipeline_that_runs_already_is_refused_and_one_that_was_killed_is_not(
    place: Place, tmp_path: Path
) -> None:
    to = f"{place.topic}-totals"
    file = tmp_path / "totals.sql"
    file.write_text(TOTALS.format(topic=place.topic, to=to, column="amount"))
    place.topics.write(place.topic, [order("ada", 1)])
    arguments = ["pipeline", "run", str(file), "--master", "local[1]"]
    arguments += ["--checkpoints", str(tmp_path / "state")]
    command = [HEADWATER, *arguments, "--bootstrap", place.topics.bootstrap]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said_after(first, f"{to}: batch 0, 1 record,")
        for more in ([], ["--checkpoints", str(tmp_path / "elsewhere")]):
            second = headwater(*arguments, *more, place=place)
            assert second.returncode == 1
            assert f"pipeline {to} is already running on " in second.stderr
            assert f"`kill {first.pid}`" in second.stderr
    finally:
        first.kill()
        first.wait()
    place.topics.write(place.topic, [order("ada", 2)])
    third = headwater(*arguments, "--once", place=place)
    assert third.returncode == 0, third.stderr
    assert f"{to}: finished after 1 record" in third.stdout
    totals = [value["total"] for _, value in place.results(to)]
    assert totals == [1.0, 3.0]


def test_an_error_in_sql_is_one_line_with_its_place_in_the_file(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "totals.sql"
    file.write_text(TOTALS.format(topic=place.topic, to=f"{place.topic}-t", column="amont"))
    done = headwater("pipeline", "run", str(file), "--once", "--master", "local[1]", place=place)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"{file}, line 6, column 24: [UNRESOLVED_COLUMN" in line
    assert "`amont`" in line


LOUD = """
from pyspark.sql.functions import udf

from headwater.spark.pipeline import Stream, pipeline


@udf("string")
def shout(text):
    return text.upper() + {end}


NAMES = Stream("{topic}", schema="customer string")


@pipeline(orders=NAMES, to="{topic}-loud", name="{topic}-loud")
def loud(orders):
    return orders.select(shout("customer").alias("customer"))
"""


def test_an_error_in_a_udf_names_its_line_and_the_fixed_file_continues(
    place: Place, tmp_path: Path
) -> None:
    place.topics.write(place.topic, [order("ada", 1)])
    file = tmp_path / "loud.py"
    arguments = ["pipeline", "run", str(file), "--once", "--master", "local[1]"]
    arguments += ["--checkpoints", str(tmp_path / "state")]
    file.write_text(LOUD.format(topic=place.topic, end="oops"))
    done = headwater(*arguments, place=place)
    assert done.returncode == 1
    reason, advice = done.stderr.splitlines()
    assert f"{place.topic}-loud: {file}, line 9: NameError: name 'oops' is not defined" in reason
    assert f"fix {file} and run it again" in advice
    assert f"headwater pipeline reset {place.topic}-loud" in advice
    file.write_text(LOUD.format(topic=place.topic, end="'!'"))
    done = headwater(*arguments, place=place)
    assert done.returncode == 0, done.stderr
    assert place.results(f"{place.topic}-loud") == [(None, {"customer": "ADA!"})]


def test_a_changed_grouping_does_not_fit_the_checkpoint_and_the_advice_is_to_reset(
    place: Place, tmp_path: Path
) -> None:
    place.topics.write(place.topic, [order("ada", 1)])
    totals = f"{place.topic}-totals"

    def sums(by: str) -> Pipeline:
        made = pipeline(orders=Stream(place.topic, SCHEMA), to=totals, mode="update", name="sums")
        return made(lambda orders: orders.groupBy(by).count())

    place.run(sums("customer"))
    place.topics.write(place.topic, [order("ada", 2)])
    with pytest.raises(StreamingQueryException) as caught:
        place.run(sums("amount"))
    assert failure_of(caught.value).cause is Cause.CHECKPOINT
    other = Place(place.spark, place.topics, place._read, f"{place.topic}-2", tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        place.run(replace(sums("customer"), inputs={"orders": Stream(other.topic, SCHEMA)}))
    assert failure_of(caught.value).cause is Cause.CHECKPOINT


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.py", "x = 1\n1 +", "a.py, line 2: SyntaxError: invalid syntax"),
        ("a.sql", "SELECT 1;\nINSERT INTO TOPIC t", "a.sql, line 2: expected SELECT"),
        ("a.sql", "SELECT 1;", "a.sql has no pipeline: expected an INSERT INTO TOPIC"),
        ("a.sql", "CREATE STREAM s (a strng) FROM TOPIC s", "did you mean string?"),
        ("a.txt", "", "expected a file that ends with .py or .sql"),
        (
            "a.sql",
            "CREATE STREAM s FROM TOPIC nowhere; INSERT INTO TOPIC t SELECT value FROM s",
            "t reads topic nowhere, which does not exist",
        ),
    ],
)
def test_a_file_that_is_not_a_pipeline_is_refused_before_spark_is_started(
    place: Place, tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    done = headwater("pipeline", "run", str(tmp_path / name), place=place)
    assert done.returncode in (1, 2)
    assert says in done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "a.py has no pipeline: expected a function with @pipeline"),
        ("x = 1\n1 / 0", "a.py, line 2: ZeroDivisionError: division by zero"),
        (
            "from headwater.spark.pipeline import Stream\n\nStream('orders', schema='id')",
            "a.py, line 3: topic orders: schema 'id': field id has no type",
        ),
    ],
)
def test_an_error_in_a_python_file_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(text)
    with pytest.raises(CommandError) as caught:
        PipelineFile(file).pipelines(None)
    assert says in str(caught.value)


def test_a_run_that_is_ended_while_spark_starts_leaves_no_process_behind(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "copies.py"
    file.write_text(COPIES.replace('"orders"', f'"{place.topic}"'))
    command = [HEADWATER, "pipeline", "run", str(file), "--bootstrap", place.topics.bootstrap]
    process = subprocess.Popen(command, start_new_session=True)

    def started() -> list[int]:
        """Returns the processes of the run besides the command itself."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ProcessLookupError):
                if os.getsid(int(each.name)) == process.pid != int(each.name):
                    found.append(int(each.name))
        return found

    try:
        until(lambda: bool(started()), "the JVM", 100)
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == -signal.SIGTERM
        until(lambda: not started(), "the end of the JVM", 100)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
