"""Sizes and quantiles as commands report them."""

from __future__ import annotations

import pytest

from headwater.cli.bench import quantile
from headwater.cli.output import size_text


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
