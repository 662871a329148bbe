"""Metrics in OpenTelemetry's format."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.protocol import DecodeError
from headwater.protocol.otlp import Point, decode_metrics, encode_metrics

GAUGE = Point("org.apache.kafka.consumer.lag", (("topic", "t"),), 1.5, time_ns=7)
DELTA = Point(
    "org.apache.kafka.consumer.fetch.total",
    (),
    12,
    is_sum=True,
    is_delta=True,
    is_monotonic=True,
    start_ns=3,
    time_ns=8,
)

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
POINTS = st.builds(
    Point,
    name=TEXTS,
    attributes=st.dictionaries(TEXTS, TEXTS, max_size=4).map(lambda d: tuple(d.items())),
    value=st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    is_sum=st.just(False),
    is_delta=st.just(False),
    is_monotonic=st.just(False),
    start_ns=st.integers(0, 2**64 - 1),
    time_ns=st.integers(0, 2**64 - 1),
)


def test_what_is_written_is_read() -> None:
    data = encode_metrics({}, [GAUGE, DELTA])
    assert decode_metrics(data, points_max=10).points == [GAUGE, DELTA]


@given(st.lists(POINTS, max_size=5))
def test_any_points_are_read_as_they_were_written(points: list[Point]) -> None:
    assert decode_metrics(encode_metrics({}, points), points_max=10).points == points


def test_attributes_of_the_resource_are_those_of_each_point() -> None:
    data = encode_metrics({"group_id": "g", "topic": "shared"}, [GAUGE])
    (point,) = decode_metrics(data, points_max=10).points
    assert dict(point.attributes) == {"group_id": "g", "topic": "t"}


def test_points_beyond_the_bound_are_counted() -> None:
    payload = decode_metrics(encode_metrics({}, [GAUGE] * 5), points_max=3)
    assert (len(payload.points), payload.skipped) == (3, 2)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\x05\x12", "5 bytes, 1 left"),
        (b"\x0a", "out of range"),
        (b"\x00\x01", "field number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x08\x01", "wire type 0 where bytes were expected"),
        (b"\x10" + b"\xff" * 11, "more than ten bytes"),
        (b"\x10\x80", "cut short"),
        (b"\x11\x00", "8 bytes, 1 left"),
    ],
)
def test_broken_bytes_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_metrics(data, points_max=10)


@pytest.mark.parametrize(
    ("resource", "point"),
    [
        ({}, GAUGE._replace(name="n" * 513)),
        ({}, GAUGE._replace(name="")),
        ({"k": "v" * 4097}, GAUGE),
        ({}, GAUGE._replace(attributes=tuple((f"k{n}", "v") for n in range(65)))),
    ],
)
def test_what_is_too_large_to_be_a_label_is_refused(resource: dict[str, str], point: Point) -> None:
    with pytest.raises(DecodeError):
        decode_metrics(encode_metrics(resource, [point]), points_max=10)


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    data = encode_metrics({}, [GAUGE._replace(name="abc")]).replace(b"abc", b"\xff\xfe\xfd")
    with pytest.raises(DecodeError):
        decode_metrics(data, points_max=10)


VALID = encode_metrics({"client_rack": "r"}, [GAUGE, DELTA])


@given(st.data())
def test_damaged_bytes_are_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    with contextlib.suppress(DecodeError):
        decode_metrics(bytes(damaged[:cut]), points_max=10)
