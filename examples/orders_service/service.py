"""A small web service: orders come in by HTTP, go through a topic, and are totalled from it.

    BOOTSTRAP=127.0.0.1:9092 uvicorn service:app

The totals are read from the topic, not from the requests: so they are right after a restart, and
with several copies of the service each knows all orders.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, PositiveInt

from headwater import Admin, ClientError, Consumer, Producer, TopicExists

TOPIC = "orders"


class Order(BaseModel):
    customer: str
    cents: PositiveInt


def make_app(bootstrap: str) -> FastAPI:
    """Everything lives as long as the app does, on its event loop."""
    totals: dict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with Admin(bootstrap) as admin:
            with suppress(TopicExists):
                await admin.create_topic(TOPIC, partitions=3)
        async with (
            Producer(bootstrap, linger_ms=0) as producer,
            Consumer(bootstrap, topics=[TOPIC], auto_offset_reset="earliest") as consumer,
        ):
            app.state.producer = producer
            reading = asyncio.create_task(read(consumer))
            yield
            reading.cancel()

    async def read(consumer: Consumer) -> None:
        async for record in consumer:
            order = json.loads(record.value or b"{}")
            totals[order["customer"]] += order["cents"]

    app = FastAPI(lifespan=life)

    @app.post("/orders", status_code=201)
    async def order(order: Order) -> dict[str, int]:
        """The answer leaves when the order is stored."""
        producer: Producer = app.state.producer
        try:
            stored = await producer.send(TOPIC, key=order.customer, value=order.model_dump_json())
        except ClientError as error:
            raise HTTPException(503, str(error)) from error
        return {"partition": stored.partition, "offset": stored.offset}

    @app.get("/totals/{customer}")
    async def total(customer: str) -> dict[str, int]:
        return {"cents": totals[customer]}

    return app


if "BOOTSTRAP" in os.environ:
    app = make_app(os.environ["BOOTSTRAP"])
