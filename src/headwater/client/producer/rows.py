"""Rows of Arrow tables as records: taken in by the core, a table at a time.

The columns are found by name: `key` and `value` (binary or string), `topic` (string), `partition`
(int), `headers` (a list of structs of key and value) and `timestamp`; others are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater._core import Intake, submit_arrow
from headwater.client.errors import SerializationFailed
from headwater.client.producer.memory import Room
from headwater.client.producer.topics import Topics
from headwater.client.producer.waiting import Waiting

if TYPE_CHECKING:
    import pyarrow as pa


class Rows:
    """Takes tables in. What the core cannot do, learning of topics and waiting for room, is done
    between its calls."""

    def __init__(self, intake: Intake, topics: Topics, room: Room, waiting: Waiting) -> None:
        self._intake = intake
        self._topics = topics
        self._room = room
        self._waiting = waiting

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
                await self._waiting.take(attempt)
            if at == rows.num_rows:
                return
            if unknown is not None:
                await self._topics.learn(unknown)
