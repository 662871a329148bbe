"""Records as JSON lines: what is printed can be read again, and an invalid line is named."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli.errors import CommandError
from headwater.cli.record_format import JSON, TypedRecord, printer, reader, unescaped


def printed(**fields: Any) -> bytes:
    given = {"topic": "t", "partition": 7, "offset": 3, "timestamp": 5, "key": None, "value": None}
    return printer(JSON)(SimpleNamespace(**given | {"headers": ()} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record",
    [
        TypedRecord(b"v", b"k", (("a", b"1"), ("b", None), ("c", b"")), timestamp=5),
        TypedRecord(b"v", None, (("a", b"1"), ("b", b"2"), ("a", b"3")), timestamp=5),
        TypedRecord(None, b"\xff\x00", (("a", b"\xfe"),), timestamp=5),
        TypedRecord(b'{"base64": "aGk="}', b"", timestamp=5),
        TypedRecord("caf\u00e9\n\u2028\0".encode(), b"null", timestamp=0),
    ],
)
def test_a_printed_record_is_read_as_it_was(record: TypedRecord) -> None:
    fields = {name: getattr(record, name) for name in ("value", "key", "headers", "timestamp")}
    line = printed(**fields)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert reader(JSON)(line) == record


def test_a_record_without_a_timestamp_gets_one_when_it_is_sent_again() -> None:
    assert reader(JSON)(printed(timestamp=-1)).timestamp is None


def test_a_name_that_comes_once_is_a_field_of_an_object() -> None:
    assert json.loads(printed(headers=(("a", b"1"),)))["headers"] == {"a": "1"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"valu": 1}', "unknown field 'valu'"),
        ('{"partition": "one"}', 'partition is "one", expected a whole number'),
        ('{"partition": true}', "partition is true"),
        ('{"partition": 2147483648}', "partition is 2147483648"),
        ('{"timestamp": 1.5}', "timestamp is 1.5"),
        ('{"timestamp": -1}', "timestamp is -1"),
        ('{"timestamp": 99999999999999999999}', "timestamp is 99999999999999999999"),
        ('{"headers": "ab"}', "headers are neither"),
        ('{"headers": [1]}', "headers are neither"),
        ('{"headers": [[1, 2]]}', "headers are neither"),
        ('{"value": {"base64": 5}}', "5 is not base64"),
        ('{"value": {"base64": "%%%"}}', '"%%%" is not base64'),
        ('{"value": "\\ud800"}', "half of a surrogate pair"),
        ('{"headers": {"\\ud800": null}}', "half of a surrogate pair"),
    ],
)
def test_an_invalid_line_says_why(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        reader(JSON)(line.encode())


def shown(form: str, **fields: Any) -> bytes:
    given = {"topic": "t", "partition": 7, "offset": 3, "timestamp": 5, "key": b"k", "value": b"v"}
    record = SimpleNamespace(**given | {"headers": (("a", b"1"),)} | fields)
    return printer(form)(record)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%K %V %S %H", b"1 3 3 1\n"),
        ("%k{hex}:%v{base64}", b"6b:/wD+\n"),
        (r"%k\x00\xff%%%{%}\\", b"k\0\xff%{}\\\n"),
        (r"%k\t%k\n", b"k\tk\n"),
    ],
)
def test_sizes_encodings_and_escapes_are_shown(form: str, expected: bytes) -> None:
    assert shown(form, value=b"\xff\x00\xfe") == expected


def test_a_size_of_nothing_is_minus_one() -> None:
    assert shown("%K|%V|%k{hex}", key=None, value=None) == b"-1|-1|\n"


def test_bytes_are_read_from_hex_and_base64() -> None:
    read = reader("%k{hex} %v{base64}")
    assert read(b"6b00 /wD+") == TypedRecord(b"\xff\x00\xfe", b"k\0")
    with pytest.raises(ValueError, match="%k is not hex"):
        read(b"xyz /wD+")
    with pytest.raises(ValueError, match="%v is not base64"):
        read(b"6b !")


@pytest.mark.parametrize("form", ["%v{hx}", "%t{hex}", "%v{}"])
def test_an_encoding_that_does_not_exist_is_refused(form: str) -> None:
    with pytest.raises(CommandError, match=r"\{hex\} and \{base64\}"):
        printer(form)


@pytest.mark.parametrize(
    ("form", "delimiter", "expected"),
    [
        (None, b"\0", b"v\0"),
        ("%k=%v", b"\0", b"k=v\0"),
        ("%k=%v", b"", b"k=v"),
        (r"%k\n", b"--\n", b"k\n--\n"),
        (None, None, b"v\n"),
    ],
)
def test_a_record_ends_with_the_delimiter(
    form: str | None, delimiter: bytes | None, expected: bytes
) -> None:
    record = SimpleNamespace(key=b"k", value=b"v")
    assert printer(form, b"", delimiter)(record) == expected  # type: ignore[arg-type]


def test_a_delimiter_is_typed_with_escapes() -> None:
    assert unescaped(r"\0") == b"\0"
    assert unescaped(r"%\0") == b"%\0"
    assert unescaped(r"%v\t\xfe\\|") == b"%v\t\xfe\\|"
