"""The demo's picture shows whole windows."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater.cli.demo_shop import Shop, next_window


def test_orders_begin_with_a_window_and_that_of_the_first_order_is_not_shown() -> None:
    begin = next_window(1_772_352_003.7)
    assert begin == 1_772_352_005.0
    shop = Shop(30, begin=begin)
    warm, first, second = (datetime.fromtimestamp(begin + each, UTC) for each in (-5, 0, 5))
    for window in (second, warm, first):
        shop.expected[window, "tea"] += 1.0
    assert shop.windows() == [first, second]
