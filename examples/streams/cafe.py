"""The café of the tutorial: orders joined with the menu, a live table, and sums by the hour.

headwater streams run examples/streams/cafe.py
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.streams import App, f, tumbling


@dataclass
class Item:
    name: str
    price: float


@dataclass
class Order:
    cups: int
    at: datetime


app = App("cafe")
menu = app.table("menu", Item)
orders = app.stream("orders", Order, time="at", late="1 minute")

# Key of both is the item: each order meets the price that is on the menu when it comes.
sold = orders.join(menu).with_columns(revenue=f.col("cups") * f.col("price"))

by_name = sold.group_by("name")
by_name.agg(cups=f.sum("cups"), revenue=f.sum("revenue"), name="sales")

by_name.window(tumbling("1 hour")).sum("revenue").final().to("revenue-by-hour")
