"""Makes record batches in one process that another one sends, in its own transaction.

`BatchMaker` chooses the partitions of rows and compresses them into batches, without a network; the
number of a topic's partitions comes from its caller. A producer of `shared.joining` takes such a
batch as it is, writes its own id and sequence into it, and sends it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from headwater._core import Intake, Outgoing, submit_arrow
from headwater.client.config import ProducerConfig
from headwater.client.errors import SerializationFailed
from headwater.client.producer.intake_callbacks import IntakeRefusals
from headwater.client.producer.sender import codec_of

if TYPE_CHECKING:
    import pyarrow as pa


class SealedBatch(NamedTuple):
    topic: str
    partition: int
    rows: int
    records: bytes


class BatchMaker(IntakeRefusals):
    """Turns rows into the batches of transactional producers. Implements `_core.IntakeCalls`."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        super().__init__(config)
        self.ready_bytes = 0
        self._random = random
        self._codec, self._level = codec_of(config)
        self._open: dict[tuple[str, int], None] = {}
        self._ready: list[SealedBatch] = []
        self._intake = Intake(
            self,
            batch_bytes=config.batch_size,
            buffer_bytes=config.buffer_memory,
            record_bytes_max=config.max_request_size,
            sticky_bytes=config.batch_size,
            ignore_keys=config.partitioner_ignore_keys,
        )

    def know(self, topic: str, partitions: int) -> None:
        self._intake.know(topic, partitions)

    def add(self, rows: pa.RecordBatch, topic: str | None, start: int) -> tuple[int, str | None]:
        """Adds rows from `start` on. Returns the number of the first one that was not added, and
        its topic if `know` must be called first."""
        while True:
            try:
                at, unknown = submit_arrow(self._intake, rows, topic=topic, start=start)
            except (TypeError, ValueError) as error:
                raise SerializationFailed(str(error)) from error
            if at > start or unknown is not None or at == rows.num_rows:
                return at, unknown
            self._close_all()  # there are more partitions than the buffer has room for

    def take(self) -> list[SealedBatch]:
        """Returns the batches that are full, in the order of their rows."""
        ready, self._ready = self._ready, []
        self.ready_bytes = 0
        return ready

    def finish(self) -> list[SealedBatch]:
        """Returns all that is left."""
        self._close_all()
        return self.take()

    def _close_all(self) -> None:
        for topic, partition in list(self._open):
            outgoing = self._intake.take(topic, partition)
            if outgoing is not None:
                self.closed(outgoing)

    # From the intake

    def opened(self, topic: str, partition: int) -> None:
        self._open[topic, partition] = None

    def closed(self, outgoing: Outgoing) -> None:
        self._open.pop((outgoing.topic, outgoing.partition), None)
        outgoing.seal(self._codec, self._level, transactional=True)
        assert outgoing.records is not None
        self._intake.release(outgoing)
        self._ready.append(
            SealedBatch(outgoing.topic, outgoing.partition, outgoing.count, bytes(outgoing.records))
        )
        self.ready_bytes += outgoing.size

    def switch(self, topic: str) -> int:
        return self._random.randrange(self._intake.partitions(topic))

    def unknown(self, topic: str) -> None:
        raise AssertionError("rows of unknown topics are not taken in")

    def full(self, size: int) -> None:
        raise AssertionError("rows without room are not taken in")
