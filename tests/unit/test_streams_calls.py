"""Functions of Python over Arrow batches, as Spark's workers call them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headwater.streams import Record
from headwater.streams.calls import Caller, OperatorFailed
from headwater.streams.columns import KEY, LETTER, ROW, TOMBSTONE
from headwater.streams.sinks import CHOSEN
from headwater.streams.topology import CallKind, OnError
from headwater.streams.types import shape_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


def schema(value: Any, *, key: Any = None, chosen: bool = False) -> pa.Schema:
    own = [StructField(KEY, key or StringType())]
    own += [StructField(name, kind) for name, kind in ROW.items()]
    own += [StructField(CHOSEN, StringType())] if chosen else []
    found: pa.Schema = to_arrow_schema(
        StructType([*own, StructField("value", value)]), timezone="UTC"
    )
    return found


def rows(*values: str | None) -> pa.RecordBatch:
    given = [
        {
            KEY: "k",
            "_timestamp": AT,
            "_headers": [{"key": "h", "value": b"1"}],
            "_topic": "lines",
            "_partition": 0,
            "_offset": at,
            TOMBSTONE: value is None,
            "_raw_key": b"k",
            "_raw_value": None if value is None else value.encode(),
            "value": value,
        }
        for at, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(given, schema=schema(StringType()))


def call(
    function: Callable[..., Any],
    kind: CallKind,
    batch: pa.RecordBatch,
    *,
    to: Any = str,
    on_error: OnError = "dead_letter",
    output: pa.Schema | None = None,
    deletes: bool = False,
) -> list[dict[str, Any]]:
    caller = Caller(
        operator="op",
        function=function,
        kind=kind,
        names=("value",),
        load=shape_of(str).to_python,
        load_key=None,
        dump=shape_of(to).to_row,
        dump_key=None,
        output=output or schema(LongType() if to is int else StringType()),
        on_error=on_error,
        deletes=deletes,
    )
    return [row for made in caller([batch]) for row in made.to_pylist()]


def values(found: list[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in found]


def test_map_filter_and_flat_map() -> None:
    batch = rows("a", "bb", None)
    mapped = call(len, "map", batch, to=int)
    assert [(row["value"], row[TOMBSTONE]) for row in mapped] == [
        (1, False), (2, False), (None, True),
    ]  # fmt: skip
    assert values(call(lambda value: value > "a", "filter", batch)) == ["bb"]
    assert values(call(lambda value: value > "a", "filter_not", batch)) == ["a"]
    assert values(call(list, "flat_map", batch)) == ["a", "b", "b"]


def test_a_function_that_returns_none_deletes() -> None:
    (row,) = call(lambda value: None, "map", rows("a"))
    assert (row["value"], row[TOMBSTONE]) == (None, True)


def test_what_raises_is_a_letter_with_the_record_and_where_it_came_from() -> None:
    def shout(value: str) -> str:
        if value == "boom":
            raise ValueError("too\nloud")
        return value.upper()

    good, bad = call(shout, "map", rows("a", "boom"))
    assert (good["value"], good[LETTER]) == ("A", None)
    letter = bad[LETTER]
    assert (letter["key"], letter["value"], letter["offset"]) == (b"k", b"boom", 1)
    assert letter["reason"] == (
        "operator op (topic lines, partition 0, offset 1): ValueError: too loud"
    )
    assert 'raise ValueError("too\\nloud")' in letter["traceback"]
    assert values(call(shout, "map", rows("a", "boom"), on_error="continue")) == ["A"]
    with pytest.raises(OperatorFailed, match=r"operator op \(topic lines, partition 0, offset 1\)"):
        call(shout, "map", rows("a", "boom"), on_error="fail")


def test_a_result_of_another_type_names_what_was_expected() -> None:
    (row,) = call(lambda value: 3, "map", rows("a"))
    assert "expected str" in row[LETTER]["reason"]


def test_letters_pass_untouched() -> None:
    (bad,) = call(lambda value: 1 / 0, "map", rows("a"))
    batch = pa.RecordBatch.from_pylist([bad], schema=schema(StringType()))
    (row,) = call(lambda value: value + "!", "map", batch)
    assert "ZeroDivisionError" in row[LETTER]["reason"]
    assert call(lambda value: False, "filter", batch)[0][LETTER] == bad[LETTER]


def test_records_change_keys_times_and_headers_and_keep_the_rest() -> None:
    def change(record: Record[str, str]) -> list[Record[str, str]]:
        return [Record(record.value + "1"), Record("2", key="new", headers=[("x", b"y")])]

    kept, changed = call(change, "records", rows("a"))
    assert (kept["value"], kept[KEY], kept["_timestamp"]) == ("a1", "k", AT)
    assert [(each["key"], each["value"]) for each in kept["_headers"]] == [("h", b"1")]
    assert (changed["value"], changed[KEY]) == ("2", "new")
    assert [(each["key"], each["value"]) for each in changed["_headers"]] == [("x", b"y")]
    (bad,) = call(lambda record: "text", "records", rows("a"))
    assert "expected a Record" in bad[LETTER]["reason"]


def test_a_table_is_filtered_by_a_function() -> None:
    batch = rows("a", "bb", None)
    for kind, kept in (("filter", "bb"), ("filter_not", "a")):
        found = call(lambda value: value > "a", kind, batch, deletes=True)  # type: ignore[arg-type]
        assert len(found) == 3
        assert [row["value"] for row in found if not row[TOMBSTONE]] == [kept]
        assert all(row["value"] is None for row in found if row[TOMBSTONE])


def test_what_has_no_new_key_has_none_of_the_old_type() -> None:
    found = call(int, "key", rows("7", "x", None), output=schema(StringType(), key=LongType()))
    assert [row[KEY] for row in found] == [7, None, None]
    assert "invalid literal" in found[1][LETTER]["reason"]
    assert found[2][TOMBSTONE]


def test_a_function_chooses_the_topic_of_a_deletion() -> None:
    found = call(
        lambda record: f"by-{record.key}-{record.value}",
        "topic",
        rows("a", None),
        output=schema(StringType(), chosen=True),
    )
    assert [(row[CHOSEN], row[TOMBSTONE]) for row in found] == [
        ("by-k-a", False),
        ("by-k-None", True),
    ]
