"""Lists of fields in Spark's notation are checked without Spark."""

from __future__ import annotations

import pytest

from headwater.spark.fields import FieldsError, field_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("id string", ["id"]),
        ("id: string, amount: double", ["id", "amount"]),
        (" id BIGINT NOT NULL COMMENT 'a, b', `my field` Decimal(10, 2) ", ["id", "my field"]),
        ("a array<map<string, struct<x: int, y: array<date>>>>, b struct<>", ["a", "b"]),
        ("a varchar(10), b timestamp_ntz, c interval day to second, d variant", list("abcd")),
        ("a\n  int,\n\tb float", ["a", "b"]),
    ],
)
def test_spark_s_notation_is_understood(text: str, names: list[str]) -> None:
    assert field_names(text) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id strng", "field id: 'strng' is not a type of Spark; did you mean string?"),
        ("id", "field id has no type: write 'id string'"),
        ("id int,", "expected a field such as 'id string'"),
        ("id int amount double", "expected a comma or the end, found 'amount'"),
        ("tags array<string", "field tags: expected '>' in array, found the end"),
        ("m map<string>", "field m: expected ',' in map, found '>'"),
        ("", "expected a field such as 'id string'"),
        ("id int; drop", "expected a comma or the end, found ';'"),
    ],
)
def test_a_typing_error_is_named_with_its_field(text: str, says: str) -> None:
    with pytest.raises(FieldsError) as caught:
        field_names(text)
    assert says in str(caught.value)
