"""Waiting for room in the producer's buffer without holding the loop: in line, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.client.config import ProducerConfig
from headwater.client.errors import BufferFull
from headwater.client.producer.memory import Room
from headwater.client.producer.sender import Sender


class Waiting:
    def __init__(self, config: ProducerConfig, sender: Sender, room: Room) -> None:
        self._config = config
        self._sender = sender
        self._room = room

    async def take(self, attempt: Callable[[], bool]) -> None:
        """Until it is our turn and the attempt succeeds; after max_block_ms BufferFull."""
        config, sender = self._config, self._sender
        sender.close_open()
        sender.advance()
        with sender.outcomes.waited_for_room():
            try:
                async with asyncio.timeout(config.max_block_ms / 1000):
                    await self._room.take(attempt)
            except TimeoutError:
                raise BufferFull(
                    f"the buffer stayed full (buffer_memory={config.buffer_memory}) for "
                    f"max_block_ms={config.max_block_ms}"
                ) from None
