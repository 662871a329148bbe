"""A function for each record. If it raises, the record goes to the dead letters with the reason.

headwater pipeline run examples/pipelines/checked.py
"""

from __future__ import annotations

from typing import Any

from headwater.spark.pipeline import Stream, pipeline


@pipeline(
    order=Stream("orders", schema="id bigint, customer string, price double"),
    each="id bigint, customer string, cents bigint",
    to="orders.checked",
)
def checked(order: dict[str, Any]) -> dict[str, Any] | None:
    if order["customer"] is None:
        return None
    if order["price"] <= 0:
        raise ValueError(f"order {order['id']} has price {order['price']}")
    return {
        "id": order["id"],
        "customer": order["customer"].lower(),
        "cents": round(order["price"] * 100),
    }
