"""Pipelines in SQL: our three statements are read, Spark's own are left alone."""

from __future__ import annotations

import pytest

from headwater.spark.pipeline import PipelineError, Stream, Table
from headwater.spark.pipeline_sql import CreateInput, InsertInto, SparkText, parse, split


def test_a_stream_has_columns_a_watermark_and_options() -> None:
    [statement] = parse(
        """
        CREATE STREAM orders (
          customer STRING,
          price DECIMAL(10, 2),
          at TIMESTAMP,
          WATERMARK FOR at AS 10 SECONDS
        )
        FROM TOPIC shop.orders WITH (startingOffsets = 'latest', maxOffsetsPerTrigger = 1000);
        """
    )
    assert isinstance(statement, CreateInput)
    assert statement.name == "orders"
    stream = statement.input
    assert isinstance(stream, Stream)
    assert stream.topic == "shop.orders"
    assert " ".join((stream.schema or "").split()) == (
        "customer STRING, price DECIMAL(10, 2), at TIMESTAMP"
    )
    assert stream.watermark_parts() == ("at", "10 SECONDS")
    assert stream.options == {"startingOffsets": "latest", "maxOffsetsPerTrigger": "1000"}


def test_a_stream_without_columns_is_bytes_or_text() -> None:
    first, second = parse(
        "create stream a from topic a; create stream b from topic b with (format = 'text')"
    )
    assert isinstance(first, CreateInput)
    assert isinstance(second, CreateInput)
    assert [first.input.value_format, second.input.value_format] == ["bytes", "text"]


def test_a_table_is_read_from_a_topic_and_any_other_table_is_sparks() -> None:
    ours, theirs, select = parse(
        "CREATE TABLE c (id STRING) FROM TOPIC c; CREATE TABLE d (id INT) USING parquet;"
        "CREATE TABLE e AS SELECT 1"
    )
    assert isinstance(ours, CreateInput)
    assert isinstance(ours.input, Table)
    assert theirs == SparkText("CREATE TABLE d (id INT) USING parquet")
    assert select == SparkText("CREATE TABLE e AS SELECT 1")


def test_an_insert_has_a_topic_options_and_a_select() -> None:
    [statement] = parse(
        "INSERT INTO TOPIC totals WITH (key = 'customer', mode = 'UPDATE', 'kafka.acks' = 'all')\n"
        "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;"
    )
    assert statement == InsertInto(
        to="totals",
        select=SparkText("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"),
        key="customer",
        mode="update",
        options={"kafka.acks": "all"},
    )


def test_an_insert_may_begin_with_a_common_table_expression() -> None:
    [statement] = parse("INSERT INTO TOPIC t WITH x AS (SELECT 1 AS value) SELECT value FROM x")
    assert isinstance(statement, InsertInto)
    assert statement.select.text.startswith("WITH x AS")


def test_semicolons_in_quotes_and_comments_end_nothing() -> None:
    script = """-- a; comment
    SELECT ';', "a;b", `c;d` /* and; one
    more */ FROM t; SELECT 'it''s';
    """
    (at, first), (_, second) = split(script)
    assert script[at:].startswith("SELECT ';'")
    assert first.startswith("SELECT ';', \"a;b\", `c;d`")
    assert second == "SELECT 'it''s'"


def test_a_place_in_the_sql_for_spark_is_one_in_the_file() -> None:
    script = """-- totals
    CREATE STREAM orders (a INT) FROM TOPIC orders; SET x = 1; /* two
    lines */ INSERT INTO TOPIC totals WITH (key = 'a') SELECT a, -- one; comment
           wrong /* another
           */, b FROM orders"""
    _, setting, insert = parse(script)
    assert isinstance(setting, SparkText)
    assert isinstance(insert, InsertInto)
    lines = script.splitlines()
    for sql, line, word in (
        (setting, 1, "x"),
        (insert.select, 1, "a,"),
        (insert.select, 2, "wrong"),
        (insert.select, 3, "b FROM"),
    ):
        position = sql.text.splitlines()[line - 1].index(word)
        row, column = sql.place_of(line, position)
        assert lines[row - 1][column - 1 :].startswith(word), (word, row, column)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("SELECT 1;\nCREATE STREAM orders", "line 2: expected FROM TOPIC name"),
        ("CREATE STREAM (a INT) FROM TOPIC a", "line 1: a name is missing"),
        ("CREATE STREAM a (b INT FROM TOPIC a", "line 1: a parenthesis is not closed"),
        ("CREATE STREAM a FROM TOPIC a WITH (b 1)", "line 1: expected name = 'value'"),
        ("CREATE STREAM a FROM TOPIC a UNTIL NOON", "expected WITH"),
        ("INSERT INTO TOPIC a VALUES (1)", "line 1: expected SELECT"),
        ("CREATE STREAM a FROM TOPIC a WITH (format = 'xml')", "line 1: topic a: format 'xml'"),
        ("CREATE STREAM a FROM TOPIC a WITH (format = 'json')", "go together"),
        (
            "SELECT 1;\n\nCREATE STREAM a (b STRNG) FROM TOPIC a",
            "line 3: topic a: schema 'b STRNG'",
        ),
        ("CREATE TABLE a (b TIMESTAMP, WATERMARK FOR b AS 1 SECOND) FROM TOPIC a", "only streams"),
    ],
)
def test_what_is_not_understood_is_named_with_its_line(script: str, says: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse(script)
    assert says in str(caught.value)
