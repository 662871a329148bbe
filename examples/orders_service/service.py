"""A small web service: orders come in by HTTP, go through a topic, and are totalled from it.

    BOOTSTRAP=127.0.0.1:9092 uvicorn service:app

The totals are read from the topic, not from the requests: so they are right after a restart, and
with several copies of the service each knows all orders.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, PositiveInt, ValidationError

from headwater import Admin, ConsumedRecord, Consumer, Producer, RetriableError, TopicExists

TOPIC = "orders"
log = logging.getLogger("orders")


class Order(BaseModel):
    """A client that gets no response may send the order again under the same id: it counts once."""

    id: UUID = Field(default_factory=uuid4)
    customer: str
    cents: PositiveInt


class Totals:
    """The orders of each customer, as the topic has them."""

    def __init__(self) -> None:
        self._cents: Counter[str] = Counter()
        self._seen: set[UUID] = set()

    def of(self, customer: str) -> int:
        return self._cents[customer]

    def take(self, record: ConsumedRecord) -> None:
        try:
            order = Order.model_validate_json(record.value or b"")
        except ValidationError:  # one bad record must not end the reading of all others
            log.warning("%s-%s @%s is not an order", record.topic, record.partition, record.offset)
            return
        if order.id not in self._seen:
            self._seen.add(order.id)
            self._cents[order.customer] += order.cents


def make_app(bootstrap: str, *, patience_ms: int = 5000) -> FastAPI:
    """Everything lives as long as the app does, on its event loop. A request that the broker does
    not answer within `patience_ms` is given back to the client instead of piling up here."""
    totals = Totals()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncGenerator[None]:
        async with Admin(bootstrap, start_timeout_ms=patience_ms) as admin:
            with suppress(TopicExists):
                await admin.create_topic(TOPIC, partitions=3)
        async with (
            Producer(
                bootstrap,
                linger_ms=0,
                max_block_ms=patience_ms,
                request_timeout_ms=patience_ms,
                delivery_timeout_ms=patience_ms,
            ) as producer,
            Consumer(bootstrap, topics=[TOPIC], auto_offset_reset="earliest") as consumer,
        ):
            app.state.producer = producer
            app.state.reading = reading = asyncio.create_task(read(consumer))
            try:
                yield
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    async def read(consumer: Consumer) -> None:
        async for record in consumer:
            totals.take(record)

    app = FastAPI(lifespan=life)

    @app.exception_handler(RetriableError)
    async def try_again(request: Request, error: RetriableError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})

    @app.post("/orders", status_code=201)
    async def order(order: Order) -> dict[str, str | int]:
        """The answer leaves when the order is stored."""
        producer: Producer = app.state.producer
        stored = await producer.send(TOPIC, key=order.customer, value=order.model_dump_json())
        return {"id": str(order.id), "partition": stored.partition, "offset": stored.offset}

    @app.get("/totals/{customer}")
    async def total(customer: str) -> dict[str, int]:
        return {"cents": totals.of(customer)}

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Fails when the reader has ended, not while the broker is unreachable."""
        if app.state.reading.done():
            raise HTTPException(503, "the orders are not read any more")
        return {"status": "reading"}

    return app


if "BOOTSTRAP" in os.environ:
    app = make_app(os.environ["BOOTSTRAP"])
