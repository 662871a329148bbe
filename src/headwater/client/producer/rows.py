"""Rows of Arrow tables as records: taken in by the core, a table at a time.

The columns are found by name: `key` and `value` (binary or string), `topic` (string), `partition`
(int), `headers` (a list of structs of key and value) and `timestamp`; others are not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater._core import Intake, submit_arrow
from headwater.client.config import ProducerConfig
from headwater.client.errors import BufferFull, SerializationFailed
from headwater.client.producer.memory import Room
from headwater.client.producer.sender import Sender
from headwater.client.producer.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


class Rows:
    """Takes tables in. What the core cannot do, learning of topics and waiting for room, is done
    between its calls."""

    def __init__(
        self, config: ProducerConfig, intake: Intake, sender: Sender, topics: Topics, room: Room
    ) -> None:
        self._config = config
        self._intake = intake
        self._sender = sender
        self._topics = topics
        self._room = room

    async def take(self, rows: pa.RecordBatch, topic: str | None) -> None:
        """Queues all rows, in order. Waits for room as long as it comes."""
        at, unknown = 0, None

        def attempt() -> bool:
            """Takes in what fits; whether that was anything."""
            nonlocal at, unknown
            before = at
            try:
                at, unknown = submit_arrow(self._intake, rows, topic=topic, start=at)
            except (TypeError, ValueError) as error:
                raise SerializationFailed(str(error)) from error
            return at > before or unknown is not None or at == rows.num_rows

        while True:
            if self._room or not attempt():
                await self._in_line(attempt)
            if at == rows.num_rows:
                return
            if unknown is not None:
                await self._topics.learn(unknown)

    async def _in_line(self, attempt: Callable[[], bool]) -> None:
        self._sender.outcomes.metrics.waits_for_room += 1
        self._sender.close_open()
        self._sender.advance()
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await self._room.take(attempt)
        except TimeoutError:
            raise BufferFull(
                f"the buffer stayed full (buffer_memory={self._config.buffer_memory}) for "
                f"max_block_ms={self._config.max_block_ms}"
            ) from None
