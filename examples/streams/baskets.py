"""A processor with state in a map, results in the order of event time, and a changed state.

headwater streams run examples/streams/baskets.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headwater.streams import App, Context, MapState, Processor, Record, migration


@dataclass
class Click:
    item: str
    number: int
    at: datetime


@dataclass
class Abandoned:
    customer: str
    items: list[str]


class Baskets(Processor[str, Click, Abandoned]):
    """Reports baskets that have not changed for half an hour."""

    in_order = True
    version = 2  # version 1 had `items: ListState[str]`
    numbers: MapState[str, int] = MapState(ttl="1 day")

    @staticmethod
    @migration(1)
    def count_items(state: dict[str, Any]) -> dict[str, Any]:
        items = state["items"]
        return {"numbers": {item: items.count(item) for item in items}}

    def process(self, record: Record[str, Click], ctx: Context[str]) -> None:
        click = record.value
        self.numbers[click.item] = self.numbers.get(click.item, 0) + click.number
        ctx.timer(ctx.timestamp + timedelta(minutes=30))

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[Record[str, Abandoned]]:
        items = sorted(item for item, number in self.numbers.items() if number > 0)
        if items:
            yield Record(Abandoned(ctx.key, items), headers=[("reason", b"silence")])
        self.numbers.clear()


app = App("baskets")
clicks = app.stream("clicks", Click, time="at", late="1 minute")
clicks.process(Baskets).to("abandoned")
