"""Tables, sizes and quantiles as commands report them."""

from __future__ import annotations

import json

import pytest

from headwater.cli.bench import quantile
from headwater.cli.output import print_table, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (28_500_000, "28.5 MB"),
        (999_960, "1.0 MB"),
        (3_210_000_000_000, "3.2 TB"),
        (5_000_000_000_000_000, "5000.0 TB"),
    ],
)
def test_sizes_are_written_with_their_unit(count: int, text: str) -> None:
    assert size_text(count) == text


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(each) for each in range(1, 101)]
    found = [quantile(values, part) for part in (0.0, 0.5, 0.95, 0.99, 0.999, 1.0)]
    assert found == [1, 50, 95, 99, 100, 100]
    assert quantile([7.0], 0.5) == 7.0


def test_an_unknown_value_is_a_dash_for_people_and_null_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("orders", 12), ("clicks", None)]
    print_table(("topic", "records"), rows, output="text")
    assert capsys.readouterr().out == "topic   records\norders       12\nclicks  -\n"
    print_table(("topic", "records"), rows[1:], output="json")
    assert json.loads(capsys.readouterr().out) == [{"topic": "clicks", "records": None}]
