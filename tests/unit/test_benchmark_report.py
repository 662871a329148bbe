"""The table in README is written from the samples of `make bench`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import HEADLINES, Row, merged, rows_of, with_headlines
from benchmarks.rows import Measurement

_README = Path(__file__).parents[2] / "README.md"


def _start(*seconds: float) -> list[Measurement]:
    return [Measurement("start", "start", "s", (each,)) for each in seconds]


def test_a_row_has_the_median_and_the_spread_of_its_runs() -> None:
    rows = rows_of(merged(_start(3.31, 3.12, 9.0)), merged(_start(0.203, 0.19, 0.217)))
    written = with_headlines("| start to first acknowledged produce | ? | ? | ? |\n\nmore", rows)
    assert written == (
        "| start to first acknowledged produce "
        "| 3.3 s (3.1 to 9.0) | 0.20 s (0.19 to 0.22) | 0.06× |\n\nmore"  # noqa: RUF001
    )


def test_rows_that_were_not_measured_on_both_sides_stay() -> None:
    document = _README.read_text()
    assert with_headlines(document, []) == document
    assert with_headlines(document, [Row(_start(1.0)[0], None)]) == document


def test_large_numbers_have_three_digits() -> None:
    key = HEADLINES["one-record requests/s, librdkafka"]
    sides = [Measurement(key, "", "requests/s", samples) for samples in ((10_812,), (48_530,))]
    written = with_headlines("| one-record requests/s, librdkafka | | | |", [Row(*sides)])
    assert written == "| one-record requests/s, librdkafka | 10,800 | 48,500 | 4.5× |"  # noqa: RUF001


def test_every_headline_is_in_the_readme() -> None:
    first_cells = {
        line.split("|")[1].strip() for line in _README.read_text().splitlines() if "|" in line
    }
    assert set(HEADLINES) <= first_cells


def test_the_document_says_how_many_runs_all_its_rows_have() -> None:
    document = "On 2 cores. Each figure is from one run. Measure yourself."
    rows = [Row(*_side(key)) for key in HEADLINES.values()]
    assert with_headlines(document, rows) == (
        "On 2 cores. Each figure is the median of 5 runs, with the lowest and highest in "
        "parentheses. Measure yourself."
    )
    assert with_headlines(document, rows[1:]) == document


def _side(key: str) -> tuple[Measurement, Measurement]:
    kafka, ours = (Measurement(key, key, "s", (3.0, 1.0, 2.0, 5.0, 4.0)) for _ in range(2))
    return kafka, ours
