"""The line that matters is found in what Spark throws."""

from __future__ import annotations

from headwater.spark.failures import Cause, Failure, failure_of, spark_message

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "writer.py", line 48, in write
    return write_rows(self._options, iterator)
headwater.client.errors.UnknownTopic: topic orders has partitions 0 to 0, and 99 was given
"""

STREAM = """[STREAM_FAILED] Query [id = a] terminated with exception: Writing failed. SQLSTATE: X
=== Streaming Query ===
Identifier: windows [id = a]
Logical Plan:
WriteToMicroBatchDataSource headwater
"""


class Captured(Exception):
    def __init__(self, text: str, trace: str) -> None:
        super().__init__(text)
        self._stackTrace = trace


def test_what_we_raised_in_a_worker_is_the_reason() -> None:
    failure = failure_of(Exception(WORKER))
    assert str(failure) == "topic orders has partitions 0 to 0, and 99 was given"


def test_what_we_raised_is_found_behind_what_spark_says() -> None:
    text = (
        "[STREAM_FAILED] Query [id = a] terminated with exception: [PYTHON_X] Failed when it did "
    )
    text += (
        "initialOffset: headwater.client.errors.UnknownTopic: topic nope: not on a:1\n SQLSTATE: X"
    )
    assert failure_of(Exception(text)) == Failure("topic nope: not on a:1", Cause.TRANSIENT)


def test_what_we_raised_is_found_under_a_stack_of_java() -> None:
    java = "org.apache.spark.SparkException: Writing job failed\n\tat x.y(Z.java:1)\nCaused by: e: "
    assert failure_of(Captured(STREAM, java + WORKER)).cause is Cause.TRANSIENT


def test_an_error_that_does_not_go_away_may_not_pass() -> None:
    text = "headwater.spark.errors.OptionError: column value is missing"
    assert failure_of(Exception(text)) == Failure("column value is missing")


def test_an_error_of_the_users_own_code_keeps_its_name() -> None:
    text = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: too much\n"
    assert str(failure_of(Captured(STREAM, text))) == "ValueError: too much"


def test_what_a_function_of_the_driver_raises_is_found_behind_sparks_words() -> None:
    text = "[FOREACH_BATCH] An exception was raised by the Python Proxy. Return Message: "
    text += "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x'\n"
    assert str(failure_of(Exception(text))) == "KeyError: 'x'"


def test_without_a_traceback_it_is_what_spark_says_first() -> None:
    assert str(failure_of(Exception(STREAM))) == "Writing failed."


UDF = """Job aborted. Traceback (most recent call last):
  File "/opt/python/site-packages/pyspark/worker.py", line 900, in main
    process()
  File "/home/me/jobs/totals.py", line 12, in cents
    return convert(price)
  File "/home/me/jobs/helpers.py", line 3, in convert
    raise ValueError("too much")
ValueError: too much

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_an_error_in_a_worker_names_the_line_of_the_users_file() -> None:
    failure = failure_of(Captured(STREAM, UDF), folder="/home/me/jobs")
    assert str(failure) == "/home/me/jobs/helpers.py, line 3: ValueError: too much"
    assert failure.cause is Cause.USER_CODE


def test_an_exception_without_a_message_keeps_its_name() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nAssertionError\n\n\tat x'
    )
    assert str(failure_of(Exception(text))) == "AssertionError"


def test_of_exceptions_that_follow_from_each_other_the_last_one_counts() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/u/a.py", line 2, in f\nValueError: two\n'
    )
    assert str(failure_of(Exception(text), folder="/u")) == "/u/a.py, line 2: ValueError: two"


def test_a_checkpoint_of_another_query_is_known_by_spark_s_words() -> None:
    changed = (
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match. SQLSTATE: X"
    )
    assert failure_of(Exception(changed)).cause is Cause.CHECKPOINT
    fewer = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2]"
    )
    assert failure_of(Exception(fewer)).cause is Cause.CHECKPOINT
    ours = "headwater.spark.errors.CheckpointError: the checkpoint has offsets of a"
    assert failure_of(Exception(ours)).cause is Cause.CHECKPOINT


def test_an_error_of_an_expression_has_its_place_in_the_sql() -> None:
    text = """[STREAM_FAILED] Query [id = a] terminated with exception: [CAST_INVALID] The value
== SQL (line 2, position 8) ==
       cast(product AS INT) AS n
       ^^^^^^^^^^^^^^^^^^^^
"""
    failure = failure_of(Exception(text))
    assert failure == Failure("[CAST_INVALID] The value", Cause.USER_CODE, (2, 7))


def test_spark_s_message_is_told_apart_from_the_place_it_is_about() -> None:
    analysis = "[UNRESOLVED_COLUMN] no `prize`. SQLSTATE: 42703; line 2 pos 11;\n'Aggregate [a]"
    assert spark_message(Exception(analysis)) == ("[UNRESOLVED_COLUMN] no `prize`.", (2, 11))
    syntax = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601 (line 1, pos 25)\n\n== SQL"
    )
    assert spark_message(Exception(syntax)) == (
        "[PARSE_SYNTAX_ERROR] Syntax error at 'x'.",
        (1, 25),
    )
    column = "[UNRESOLVED_COLUMN] no `a`. SQLSTATE: 42703;\n'Project ['a]"
    assert spark_message(Exception(column)) == ("[UNRESOLVED_COLUMN] no `a`.", None)
    assert spark_message(Exception("nothing of the kind")) == ("nothing of the kind", None)
