"""The Python side of the core's `Intake`: the few moments at which a record costs more than being
appended to its batch. `headwater._core.IntakeCalls` is the contract.

Records without a key go to one partition until it has had its share, then to another (KIP-794); the
core hashes keys itself, with murmur2 as Java's clients do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import index
from random import Random
from typing import TYPE_CHECKING, NoReturn, SupportsIndex

from headwater._core import Intake, Outgoing
from headwater.client.config import ProducerConfig
from headwater.client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
    InvalidRecord,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopic,
    WrongLoop,
)
from headwater.client.timestamps import to_milliseconds
from headwater.io import Clock
from headwater.io.clock import SystemClock

if TYPE_CHECKING:
    from headwater.client.producer.producer import Running

# How long one of several connections is watched before the next one is looked at.
_TURN_SECONDS = 0.002
_ONLY_TURN_SECONDS = 0.1


class IntakeRefusals:
    """The callbacks of an intake for records that it cannot take."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    def timestamp(self, given: object) -> int:
        return to_milliseconds(given)

    def too_large(self, topic: str, size: int) -> NoReturn:
        config = self._config
        for name in ("max_request_size", "buffer_memory"):
            limit = getattr(config, name)
            if size > limit:
                raise RecordTooLarge(
                    f"a record for topic {topic} takes up to {size} bytes, more than "
                    f"{name}={limit}: raise it (and the topic's max.message.bytes), or send less"
                )
        raise AssertionError(f"{size} bytes are not too large")

    def no_partition(self, topic: str, partition: int, partitions: int) -> NoReturn:
        shown = "a negative one" if partition < 0 else str(partition)
        raise UnknownTopic(
            f"topic {topic} has partitions 0 to {partitions - 1}, and {shown} was given"
        )

    def refused(self, field: str, topic: str, cause: Exception) -> NoReturn:
        advice = ""
        if field in ("key", "value"):
            advice = f"; give bytes or text, or a {field}_serializer that returns bytes"
        raise SerializationFailed(
            f"the {field} of a record for topic {topic}: {cause}{advice}"
        ) from cause


class IntakeCallbacks(IntakeRefusals):
    """Called by the intake, within `submit` and `send`. Implements `_core.IntakeCalls`."""

    def __init__(self, config: ProducerConfig, clock: Clock, running: Running) -> None:
        super().__init__(config)
        self._running: Running | None = running
        self.intake = Intake(
            self,
            batch_bytes=config.batch_size,
            buffer_bytes=config.buffer_memory,
            record_bytes_max=config.max_request_size,
            ignore_keys=config.partitioner_ignore_keys,
            choose=None if config.partitioner is None else self.choose,
            # The core reads the system clock itself; any other clock is called for each record.
            wall_ms=None if isinstance(clock, SystemClock) else clock.wall_ms,
        )

    def end(self) -> None:
        """Lets go of the producer's parts. A `submit` that the user kept holds the intake and this
        object, and from now on is refused."""
        self._running = None

    def _parts(self) -> Running:
        if self._running is None:
            raise ClientClosed("the producer is closed; create a new one")
        return self._running

    def opened(self, topic: str, partition: int) -> None:
        # `submit` is bound straight to the core, so a caller on the wrong loop is found out here;
        # its record is the only one of its batch, and is dropped with it.
        running = self._running
        try:
            running = self._parts()
            running.cluster.check()
            if running.transactions is not None:
                running.transactions.check_writable()
        except ClientError as error:
            outgoing = self.intake.take(topic, partition)
            if outgoing is None:
                raise
            if running is not None and outgoing.count > 1 and isinstance(error, WrongLoop):
                # The owner's thread has put records of its own behind it; they must not get lost.
                running.sender.hand_over(outgoing)
            else:
                self.intake.release(outgoing)
            raise
        running.sender.opened(topic, partition)

    def closed(self, outgoing: Outgoing) -> None:
        running = self._parts()
        running.cluster.check_process()
        if running.sender.is_loop_thread:
            running.sender.closed(outgoing)
        else:  # a call from the wrong thread; it is refused with the next batch
            running.sender.hand_over(outgoing)

    def choose(self, topic: str, key: object, value: object) -> int:
        """Calls the user's partitioner."""
        partitions = self._parts().topics.partitions(topic)
        assert self._config.partitioner is not None
        try:
            chosen = self._config.partitioner(topic, key, value, partitions)
        except Exception as cause:  # whatever a user's function raises
            raise InvalidRecord(
                f"the partitioner failed on a record for topic {topic}: {cause!r}"
            ) from cause
        if not isinstance(chosen, SupportsIndex) or not 0 <= index(chosen) < partitions:
            raise InvalidRecord(
                f"the partitioner returned {chosen!r} for a record of topic {topic}: expected one "
                f"of its partitions, 0 to {partitions - 1}"
            )
        return index(chosen)

    def switch(self, topic: str) -> int:
        """Returns the next partition for records without a key."""
        running = self._parts()
        partitions = running.topics.partitions(topic)
        return choose_partition(
            running.cluster.host.random,
            queued=running.sender.queued(topic, partitions),
            partitions=partitions,
            adaptive=self._config.partitioner_adaptive_partitioning_enable,
        )

    def unknown(self, topic: str) -> None:
        running = self._running
        try:
            running = self._parts()
            running.cluster.check()
            if running.transactions is not None:
                running.transactions.check_writable()
        except ClientError as error:
            is_shared = dict(self.intake.held).get(topic, 0) > 1
            if running is not None and is_shared and isinstance(error, WrongLoop):
                running.sender.call_in_loop(running.topics.unknown, topic)  # as with a batch
            else:
                self.intake.abandon(topic)
            raise
        running.topics.unknown(topic)

    def full(self, size: int) -> None:
        """Makes room for `submit`. It holds the loop, so what the loop would do is done here."""
        running = self._parts()
        running.cluster.check_process()
        with running.outcomes.measuring_wait():
            self._make_room(running, size)

    def _make_room(self, running: Running, size: int) -> None:
        sender, cluster = running.sender, running.cluster
        deadline = cluster.deadline(self._config.max_block_ms)
        while not sender.has_room(size):
            sender.close_open()
            sender.advance()
            connections = list(sender.in_flight)
            asking = running.topics.ask_now()
            if asking is not None and asking not in connections:
                connections.append(asking)
            left = deadline - cluster.now()
            if not connections or left <= 0:
                if not sender.has_room(size):
                    self._no_room(waited=bool(connections))
                return
            if len(connections) == 1:
                connections[0].pump(min(left, _ONLY_TURN_SECONDS))
            elif not sum(each.pump(0) for each in connections):  # all of them, each time
                connections[0].pump(min(left, _TURN_SECONDS))

    def _no_room(self, *, waited: bool) -> NoReturn:
        config = self._config
        if waited:
            why = f"no broker accepted anything for max_block_ms={config.max_block_ms}"
        else:
            why = "no broker is connected; await flush() to let the producer reconnect"
        raise BufferFull(f"the buffer is full (buffer_memory={config.buffer_memory}): {why}")

    def no_partition(self, topic: str, partition: int, partitions: int) -> NoReturn:
        self._parts().cluster.need_update(topic)
        super().no_partition(topic, partition, partitions)


def choose_partition(
    random: Random, *, queued: Sequence[int | None], partitions: int, adaptive: bool = True
) -> int:
    """Returns the next partition, drawn at random; with `adaptive`, one with a shorter queue is
    drawn more often, so that a slow broker gets less. `queued` is the number of batches that wait
    for each partition, or None if it has no leader or its leader accepts nothing."""
    assert partitions > 0
    candidates = [index for index, size in enumerate(queued) if size is not None]
    if not candidates:
        return random.randrange(partitions)
    if not adaptive:
        return candidates[random.randrange(len(candidates))]
    sizes = [queued[index] or 0 for index in candidates]
    longest = max(sizes)
    if longest == min(sizes):
        return candidates[random.randrange(len(candidates))]
    bounds = list(accumulate(longest + 1 - size for size in sizes))
    return candidates[bisect_right(bounds, random.randrange(bounds[-1]))]
