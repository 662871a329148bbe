"""The `.properties` format, as Java reads it."""

from __future__ import annotations

import pytest

from headwater.config import parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b c ", {"a": "b c "}),
        ("a = = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("# a=b\n! c=d\n\n  # e", {}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b,\\\n   c,\\\n\td", {"a": "b,c,d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# still the value", {"a": "b# still the value"}),
        (r"a\ b\=c=d", {"a b=c": "d"}),
        (r"a=\u00e9\t\n\q", {"a": "\u00e9\t\nq"}),
        (r"log.dirs=C:\\data", {"log.dirs": "C:\\data"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties(r"a=\u12")
