"""The one line that matters is found in what Spark throws."""

from __future__ import annotations

from headwater.spark.reasons import Reason, reason_of

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
    reason = reason_of(Exception(WORKER))
    assert str(reason) == "topic orders has partitions 0 to 0, and 99 was given"


def test_what_we_raised_is_found_behind_what_spark_says() -> None:
    text = (
        "[STREAM_FAILED] Query [id = a] terminated with exception: [PYTHON_X] Failed when it did "
    )
    text += (
        "initialOffset: headwater.client.errors.UnknownTopic: topic nope: not on a:1\n SQLSTATE: X"
    )
    assert reason_of(Exception(text)) == Reason("topic nope: not on a:1", may_pass=True)


def test_what_we_raised_is_found_under_a_stack_of_java() -> None:
    java = "org.apache.spark.SparkException: Writing job failed\n\tat x.y(Z.java:1)\nCaused by: e: "
    assert reason_of(Captured(STREAM, java + WORKER)).may_pass


def test_an_error_that_does_not_go_away_may_not_pass() -> None:
    text = "headwater.spark.option_values.OptionError: column value is missing"
    assert reason_of(Exception(text)) == Reason("column value is missing", may_pass=False)


def test_an_error_of_the_users_own_code_keeps_its_name() -> None:
    text = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: too much\n"
    assert str(reason_of(Captured(STREAM, text))) == "ValueError: too much"


def test_what_a_function_of_the_driver_raises_is_found_behind_sparks_words() -> None:
    text = "[FOREACH_BATCH] An exception was raised by the Python Proxy. Return Message: "
    text += "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x'\n"
    assert str(reason_of(Exception(text))) == "KeyError: 'x'"


def test_without_a_traceback_it_is_what_spark_says_first() -> None:
    assert str(reason_of(Exception(STREAM))) == "Writing failed."
