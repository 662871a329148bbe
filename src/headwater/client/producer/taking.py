"""What the intake calls: the few moments at which a record costs more than being written down."""

from __future__ import annotations

from operator import index
from typing import NoReturn, SupportsIndex

from headwater._core import Intake, Outgoing
from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.errors import (
    BufferFull,
    ClientClosed,
    FatalError,
    InvalidRecord,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopic,
    WrongLoop,
)
from headwater.client.producer.partitioning import choose_partition
from headwater.client.producer.sender import Sender
from headwater.client.producer.topics import Topics

# How long one of several connections is watched before the next one is looked at.
_TURN_SECONDS = 0.002
_ONLY_TURN_SECONDS = 0.1


class Taking:
    """The intake's calls. `connect` completes it: intake, sender and topics know each other."""

    sender: Sender
    topics: Topics
    _cluster: Cluster
    _intake: Intake

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._has_ended = False

    def connect(self, intake: Intake, sender: Sender, topics: Topics) -> None:
        self._intake = intake
        self.sender = sender
        self.topics = topics

    def end(self) -> None:
        """The producer is closed. The intake and we hold each other until a collector comes by:
        until then that is to be no more than refusing a kept `submit` needs."""
        self._has_ended = True
        del self._cluster, self.sender, self.topics

    def _check_end(self) -> None:
        if self._has_ended:
            raise ClientClosed("the producer was closed; make a new one")

    def opened(self, topic: str, partition: int) -> None:
        # `submit` is bound straight to the core, so who is on the wrong loop is found out here;
        # the record is then the only one of its batch, and goes with it.
        try:
            self._check_end()
            self._cluster.check()
        except FatalError as error:
            outgoing = self._intake.take(topic, partition)
            if outgoing is not None and outgoing.count > 1 and isinstance(error, WrongLoop):
                # The owner's thread has put records of its own behind it; they must not get lost.
                self.sender.hand_over(outgoing)
            elif outgoing is not None:
                self._intake.release(outgoing)
            raise
        self.sender.opened(topic, partition)

    def closed(self, outgoing: Outgoing) -> None:
        self._cluster.check_process()
        if self.sender.is_here:
            self.sender.closed(outgoing)
        else:  # a thread that has no business here; it is told with the next batch
            self.sender.hand_over(outgoing)

    def choose(self, topic: str, key: object, value: object) -> int:
        """Asks the user's partitioner."""
        self._check_end()
        assert self._config.partitioner is not None
        partitions = self.topics.partitions(topic)
        try:
            chosen = self._config.partitioner(topic, key, value, partitions)
        except Exception as cause:  # whatever a user's function raises: the record has no place
            raise InvalidRecord(
                f"the partitioner failed on a record for topic {topic}: {cause!r}"
            ) from cause
        if not isinstance(chosen, SupportsIndex) or not 0 <= index(chosen) < partitions:
            raise InvalidRecord(
                f"the partitioner gave {chosen!r} for a record of topic {topic}: expected one of "
                f"its partitions, 0 to {partitions - 1}"
            )
        return index(chosen)

    def switch(self, topic: str) -> int:
        """The next partition for records without a key."""
        self._check_end()
        partitions = self.topics.partitions(topic)
        return choose_partition(
            self._cluster.host.random,
            queued=self.sender.queued(topic, partitions),
            partitions=partitions,
            adaptive=self._config.partitioner_adaptive_partitioning_enable,
        )

    def unknown(self, topic: str) -> None:
        try:
            self._check_end()
            self._cluster.check()
        except FatalError as error:
            if dict(self._intake.held).get(topic, 0) > 1 and isinstance(error, WrongLoop):
                self.sender.call_there(self.topics.unknown, topic)  # as with a batch
            else:
                self._intake.abandon(topic)
            raise
        self.topics.unknown(topic)

    def full(self, size: int) -> None:
        """`submit` found no room. It holds the loop, so what the loop would do is done here."""
        self._cluster.check_process()
        with self.sender.outcomes.waited_for_room():
            self._make_room(size)

    def _make_room(self, size: int) -> None:
        deadline = self._cluster.deadline(self._config.max_block_ms)
        while not self.sender.has_room(size):
            self.sender.close_open()
            self.sender.advance()
            connections = list(self.sender.flying)
            asking = self.topics.ask_now()
            if asking is not None and asking not in connections:
                connections.append(asking)
            left = deadline - self._cluster.now()
            if not connections or left <= 0:
                if not self.sender.has_room(size):
                    self._no_room(waited=bool(connections))
                return
            if len(connections) == 1:
                connections[0].pump(min(left, _ONLY_TURN_SECONDS))
            elif not sum(each.pump(0) for each in connections):  # all of them, each time
                connections[0].pump(min(left, _TURN_SECONDS))

    def _no_room(self, *, waited: bool) -> NoReturn:
        config = self._config
        if waited:
            why = f"no broker took anything for max_block_ms={config.max_block_ms}"
        else:
            why = "no broker is connected; await flush() to let the producer reconnect"
        raise BufferFull(f"the buffer is full (buffer_memory={config.buffer_memory}): {why}")

    # Refusals

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
        self._check_end()
        self._cluster.need_update(topic)
        shown = "a negative one" if partition < 0 else str(partition)
        raise UnknownTopic(
            f"topic {topic} has partitions 0 to {partitions - 1}, and {shown} was given"
        )

    def refused(self, field: str, topic: str, cause: Exception) -> NoReturn:
        advice = ""
        if field in ("key", "value"):
            advice = f"; give bytes or text, or a {field}_serializer that makes bytes of it"
        raise SerializationFailed(
            f"the {field} of a record for topic {topic}: {cause}{advice}"
        ) from cause
