"""Sends batches to the brokers: the producer's driver.

It has no task. Every event (a full batch, a response, a timer, a new connection) ends in `advance`,
which sends what may be sent. So a tight loop of `submit` sends from within, and a single awaited
record leaves before `send` waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf

from headwater._core import Intake, Outgoing
from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.connection import Connection
from headwater.client.errors import ClientError, RetriableError, UnsupportedVersion
from headwater.client.producer.accumulator import Accumulator, Batch, PartitionQueue
from headwater.client.producer.outcomes import Outcomes
from headwater.client.producer.producer_id import ProducerIdKeeper
from headwater.client.producer.requests import (
    SINGLE_BYTES_MAX,
    Appended,
    Payload,
    PreparedRequest,
    Requests,
)
from headwater.io.tasks import background_task
from headwater.model import NO_NODE, NO_SEQUENCE, TopicPartition
from headwater.protocol.messages.produce import ProduceResponse

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# With acks=0 nothing comes back: in flight is what the kernel has not accepted.
_UNANSWERED_BYTES_MAX = 1024 * 1024
_UNANSWERED_LOOK_SECONDS = 0.005
# `submit` cannot wait for a connection, so the first ones are opened before it is called.
_EAGER_CONNECTIONS_MAX = 32
_EAGER_SECONDS = 1.0


def codec_of(config: ProducerConfig) -> tuple[int, int | None]:
    """Returns the number of the codec, and its level if there is one."""
    name = config.compression_type
    return _CODECS[name], getattr(config, f"compression_{name}_level", None)


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        intake: Intake,
        accumulator: Accumulator,
        outcomes: Outcomes,
        began: Callable[[TopicPartition], None] | None = None,
    ) -> None:
        """`began` is for transactions: it is told of the partition of each batch that is begun."""
        self.in_flight: dict[Connection, int] = {}  # requests without a response
        self._config = config
        self._cluster = cluster
        self._intake = intake
        self._accumulator = accumulator
        self.outcomes = outcomes
        self._now = cluster.host.clock.monotonic
        self._traffic = cluster.traffic
        self._loop = asyncio.get_running_loop()
        self._linger = config.linger_ms / 1000
        self._codec, self._level = codec_of(config)
        self._in_flight_max = config.max_in_flight_requests_per_connection
        self._identity = ProducerIdKeeper(config, cluster, self._granted, self._refused)
        self._failure: ClientError | None = None  # nothing can ever be sent again
        self._began = began
        self._spoilt: ClientError | None = None  # the transaction can only be aborted
        self._quiet: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._stalled_since: dict[int, float] = {}  # nodes that accept nothing
        self._requests = Requests(config, cluster)
        self._is_advancing = False
        self._again = False
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._unreachable: dict[int, tuple[int, float]] = {}  # failures in a row, retried after
        # A leader or a broker that was missing may be there now.
        self._unwatch = cluster.on_change(lambda _: self.advance())

    async def start(self) -> None:
        """Obtains the producer's id and connects to the brokers."""
        if self._accumulator.identity is not None and self._began is None:
            await self._identity.start()
        for node_id in list(self._cluster.metadata.brokers)[:_EAGER_CONNECTIONS_MAX]:
            self._open(node_id)
        if self._opening:
            await asyncio.wait(self._opening.values(), timeout=_EAGER_SECONDS)

    async def stop(self, error: ClientError) -> None:
        """Fails all batches that have no outcome."""
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch()
        self._is_advancing = True  # from now on nothing is sent
        await self._identity.stop()
        for task in self._opening.values():
            task.cancel()
        self.close_open()
        for queue, batch in list(self._accumulator.unsettled()):
            self._drop(queue, batch, error)

    # From the intake

    def opened(self, topic: str, partition: int) -> None:
        now = self._now()
        queue = self._accumulator.queue(topic, partition)
        if self._began is not None:
            self._began(queue.tp)
        self._accumulator.opened(queue, now)
        self._wake_at(now + self._linger)

    def closed(self, outgoing: Outgoing) -> None:
        """Queues a full batch and sends what may be sent."""
        self._take(
            self._accumulator.queue(outgoing.topic, outgoing.partition), outgoing, self._now()
        )
        # Responses that have already arrived make room for what is sent now.
        for connection in tuple(self.in_flight):
            if connection.in_flight >= self._in_flight_max:
                connection.pump(0)
        self.advance()

    @property
    def is_loop_thread(self) -> bool:
        """Whether this is the thread of the producer's loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def hand_over(self, outgoing: Outgoing) -> None:
        """Takes a batch from another thread, which may do no more with it."""
        self.call_in_loop(self._took_late, outgoing)

    def call_in_loop(self, call: Callable[..., object], *args: object) -> None:
        """Calls a function in the thread of the producer's loop."""
        self._loop.call_soon_threadsafe(call, *args)

    def take_sealed(self, outgoing: Outgoing) -> None:
        """Queues a batch that another process has sealed, and sends what may be sent."""
        self._intake.charge(outgoing)
        self._took_late(outgoing)

    def _took_late(self, outgoing: Outgoing) -> None:
        queue = self._accumulator.queue(outgoing.topic, outgoing.partition)
        if self._began is not None:
            self._began(queue.tp)
        self.outcomes.reports.begin(self._accumulator.enqueue(queue, outgoing, self._now()))
        self.advance()

    def added(self, topic: str, partition: int, *, opened: bool) -> None:
        """Handles an awaited record that was just added; `opened`: it began its batch."""
        queue = self._accumulator.queue(topic, partition)
        if opened:
            if self._began is not None:
                self._began(queue.tp)
            now = self._now()
            is_first = (
                self._accumulator.sends_awaited_at_once and not queue.queued and not queue.in_flight
            )
            if is_first and self._send_single(queue, now):
                return
            self._accumulator.opened(queue, now)
            self._wake_at(now + self._linger)
        if self._accumulator.urge(queue):
            self.advance()

    def _send_single(self, queue: PartitionQueue, now: float) -> bool:
        """Does what `advance` would do for one awaited record with nothing before it, and no more:
        an acknowledged send takes as long as this. Returns False if it is not that simple."""
        accumulator, outcomes = self._accumulator, self.outcomes
        if self._is_advancing or not self._config.acks or not accumulator.may_begin(queue):
            return False
        prepared = self._requests.prepared(queue)
        if prepared is not None and not self._stalled_since and self._is_free(prepared.connection):
            connection = prepared.connection
        else:
            leader = self._cluster.metadata.leader(queue.tp)
            free = None if leader is None else self._free(leader, now)
            if free is None:
                return False
            connection, prepared = free, None
        outgoing = self._intake.take(*queue.tp)
        assert outgoing is not None
        batch = accumulator.sent_single(queue, outgoing, now)
        outcomes.reports.begin(batch)
        self._seal(queue, batch)
        metrics = outcomes.metrics
        metrics.requests += 1
        metrics.batch_size.note(outgoing.size, now)
        metrics.queue_time.note(0.0, now)
        self.in_flight[connection] = self.in_flight.get(connection, 0) + 1
        if outgoing.size > SINGLE_BYTES_MAX:
            self._post(connection, [(queue, batch)], now)
        else:
            self._post_single(connection, prepared, queue, batch, now)
        if self._timer is None:
            self._wake_at(batch.deadline)
        return True

    def _is_free(self, connection: Connection) -> bool:
        return not connection.throttled_until and connection.in_flight < self._in_flight_max

    def _post_single(
        self,
        connection: Connection,
        prepared: PreparedRequest | None,
        queue: PartitionQueue,
        batch: Batch,
        now: float,
    ) -> None:
        done = partial(self._single_answered, connection, queue, batch, now)
        if prepared is None:
            try:
                prepared = self._requests.prepare_single(connection, queue, batch)
            except UnsupportedVersion as error:
                done(None, error)
                return
        records = batch.outgoing.records
        assert records is not None
        timeout_ms = self._config.request_timeout_ms
        connection.post_prepared(prepared.single, memoryview(records), done, timeout_ms=timeout_ms)

    def has_room(self, size: int) -> bool:
        used = self._intake.used_bytes
        return used == 0 or used + size <= self._config.buffer_memory

    def queued(self, topic: str, partitions: int) -> list[int | None]:
        """Returns how much waits for each partition, for the choice of the next one; None where
        nothing can be sent to."""
        known = self._cluster.metadata.topics.get(topic)
        patience = self._config.partitioner_availability_timeout_ms / 1000
        now = self._now()
        sizes: list[int | None] = []
        for index in range(partitions):
            leader = -1
            if known is not None and index < len(known.partitions):
                leader = known.partitions[index].leader
            stalled = self._stalled_since.get(leader)
            if leader < 0 or (patience and stalled is not None and now - stalled > patience):
                sizes.append(None)
                continue
            queue = self._accumulator.find(TopicPartition(topic, index))
            sizes.append(0 if queue is None else queue.depth)
        return sizes

    # Progress

    def close_open(self) -> None:
        """Closes every open batch, however young: for `flush`, and when the buffer is full."""
        now = self._now()
        for queue in self._accumulator.all_open():
            self._close(queue, now)

    def _close(self, queue: PartitionQueue, now: float) -> None:
        outgoing = self._intake.take(*queue.tp)
        if outgoing is None:
            self._accumulator.clear_open(
                queue
            )  # another thread has it, and is about to hand it over
        else:
            self._take(queue, outgoing, now)

    def _take(self, queue: PartitionQueue, outgoing: Outgoing, now: float) -> None:
        self.outcomes.reports.begin(self._accumulator.closed(queue, outgoing, now))

    def advance(self) -> None:
        """Sends all that may be sent now, and sets the timer for what may be sent later."""
        if self._is_advancing:  # called from within: look once more at the end
            self._again = True
            return
        self._is_advancing = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._advance(self._now())
        finally:
            self._is_advancing = False

    def _advance(self, now: float) -> None:
        accumulator = self._accumulator
        if accumulator.is_still and now < self._timer_at:
            return
        for queue in accumulator.due(now):
            self._close(queue, now)
        for queue, batch in accumulator.expired(now):
            self._drop(queue, batch, self.outcomes.timed_out(batch))
        error = self._failure or self._spoilt
        if error is not None:
            self.close_open()
            for queue, batch in list(accumulator.unsettled()):
                if self._failure is not None or not batch.is_in_flight:
                    self._drop(queue, batch, error)
        if accumulator.restarting:
            before = accumulator.identity.epoch if accumulator.identity is not None else 0
            self._restamp(accumulator.restart())
            if accumulator.identity is not None and accumulator.identity.epoch != before:
                self.outcomes.metrics.epochs_bumped += 1
        if accumulator.waiting:
            identity = accumulator.identity
            if identity is not None and not identity.is_known and self._began is None:
                self._identity.want()
            self._send_waiting(now)
        self._wake_at(accumulator.next_deadline(now))

    def _drop(self, queue: PartitionQueue, batch: Batch, error: ClientError) -> None:
        if not batch.is_in_flight:
            self._accumulator.dropped(queue, batch)
        self.outcomes.give_up(queue, batch, error)

    def _restamp(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.outgoing.records is not None:
                batch.outgoing.stamp(
                    producer_id=batch.producer_id,
                    producer_epoch=batch.epoch,
                    base_sequence=batch.base_sequence,
                )

    def _granted(self, producer_id: int, epoch: int) -> None:
        self._restamp(self._accumulator.granted(producer_id, epoch))
        self.advance()

    def _refused(self, error: ClientError) -> None:
        self._failure = error
        self.advance()

    # Transactions

    def fail(self, error: ClientError) -> None:
        """Fails all records, and those that come: nothing can ever be sent again."""
        if self._failure is None:
            self._failure = error
            self._advance_soon()

    def spoil(self, error: ClientError) -> None:
        """Fails the records that are not in flight, and sends no more, until `renew`."""
        if self._spoilt is None:
            self._spoilt = error
            self._advance_soon()

    def _advance_soon(self) -> None:
        # The failure that led here may be one of a response whose other batches come next.
        self._loop.call_soon(self.advance)

    def drop_unsent(self, error: ClientError) -> None:
        """Does the same at once, for all that was added until now."""
        self._spoilt = self._spoilt or error
        self.close_open()
        self.advance()

    async def quiet(self) -> None:
        """Waits until no request is in flight."""
        while self.in_flight:
            if self._quiet is None:
                self._quiet = self._loop.create_future()
            await asyncio.shield(self._quiet)

    def renew(self, producer_id: int, epoch: int, *, uses_v2: bool) -> None:
        """Prepares for the next transaction, under this identity."""
        self._spoilt = None
        self._requests.set_generation(uses_v2=uses_v2)
        self._accumulator.renewed(producer_id, epoch)

    def _wake_at(self, deadline: float) -> None:
        """Makes sure that `advance` is called at the deadline, or before."""
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
            self._timer = None
        if deadline != inf:
            self._timer_at = deadline
            delay = max(0.0, deadline - self._now())
            self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.advance()

    # Sending

    def _send_waiting(self, now: float) -> None:
        """Sends requests to every node that accepts one, until none does."""
        by_node: dict[int, list[PartitionQueue]] = {}
        topics = self._cluster.metadata.topics
        for queue in self._accumulator.waiting.values():
            name, index = queue.tp
            topic = topics.get(name)
            leader = NO_NODE
            if topic is not None and index < len(topic.partitions):
                leader = topic.partitions[index].leader
            if leader == NO_NODE:
                self._cluster.need_update(name)
            elif leader in by_node:
                by_node[leader].append(queue)
            else:
                by_node[leader] = [queue]
        for node_id, queues in by_node.items():
            while queues and (connection := self._free(node_id, now)) is not None:
                chosen = self._choose(queues, now)
                if not chosen:
                    break
                self._send(connection, chosen, now)
                # Those that did not fit come first in the next one.
                served = dict(chosen)
                queues = [queue for queue in queues if queue not in served]
                queues += [queue for queue in served if queue.queued]

    def _free(self, node_id: int, now: float) -> Connection | None:
        """Returns a connection to the node that accepts another request now."""
        connection = self._cluster.ready(node_id)
        if connection is None:
            self._open(node_id)
        elif connection.in_flight < self._in_flight_max:
            if self._config.acks or connection.queued_bytes < _UNANSWERED_BYTES_MAX:
                self._stalled_since.pop(node_id, None)
                return connection
            self._wake_at(now + _UNANSWERED_LOOK_SECONDS)
        self._stalled_since.setdefault(node_id, now)
        return None

    def _choose(self, queues: list[PartitionQueue], now: float) -> list[Payload]:
        """Returns the batches of the next request: one of each partition, up to its size."""
        chosen: list[Payload] = []
        size = 0
        for queue in queues:
            batch = self._accumulator.sendable(queue, now)
            if batch is None:
                continue
            # By its size before sealing: what has a sequence must be sent.
            size += batch.outgoing.size
            if chosen and size > self._config.max_request_size:
                break
            if batch.outgoing.records is None or self._needs_stamp(batch):
                self._seal(queue, batch)
            chosen.append((queue, batch))
        return chosen

    def _needs_stamp(self, batch: Batch) -> bool:
        """Whether another process has sealed the batch, so that it is not this producer's yet."""
        return self._accumulator.identity is not None and batch.base_sequence == NO_SEQUENCE

    def _seal(self, queue: PartitionQueue, batch: Batch) -> None:
        identity = self._accumulator.identity
        if identity is not None and batch.base_sequence == NO_SEQUENCE:
            queue.sequence.assign(batch, identity)
        if batch.outgoing.records is not None:
            self._restamp([batch])
            return
        batch.outgoing.seal(
            self._codec,
            self._level,
            producer_id=batch.producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.base_sequence,
            transactional=self._began is not None,
        )

    def _send(self, connection: Connection, chosen: list[Payload], now: float) -> None:
        metrics = self.outcomes.metrics
        sent = self._accumulator.sent
        for queue, batch in chosen:
            if not batch.attempts:
                metrics.queue_time.note(now - batch.created, now)
                metrics.batch_size.note(batch.outgoing.size, now)
            sent(queue, batch)
        metrics.requests += 1
        self.in_flight[connection] = self.in_flight.get(connection, 0) + 1
        self._post(connection, chosen, now)

    def _post(self, connection: Connection, chosen: list[Payload], now: float) -> None:
        timeout_ms = self._config.request_timeout_ms
        done = partial(self._answered, connection, chosen, now)
        try:
            request, version = self._requests.make(connection, chosen)
        except UnsupportedVersion as error:
            done(None, error)
            return
        is_answered = self._config.acks != 0
        connection.post(request, version, done, timeout_ms=timeout_ms, is_answered=is_answered)

    def _open(self, node_id: int) -> None:
        if node_id in self._opening or self._cluster.is_closed:
            return
        _, until = self._unreachable.get(node_id, (0, 0.0))
        if until > self._now():
            self._wake_at(until)
        else:
            self._opening[node_id] = background_task(self._connect(node_id))

    async def _connect(self, node_id: int) -> None:
        error: ClientError | None = None
        try:
            await self._cluster.connection(node_id)
        except ClientError as problem:
            error = problem
        finally:
            del self._opening[node_id]
        if error is None:
            self._unreachable.pop(node_id, None)
        else:
            failures = self._unreachable.get(node_id, (0, 0.0))[0] + 1
            wait = self._backoff.seconds(failures, self._cluster.host.random)
            self._unreachable[node_id] = (failures, self._now() + wait)
            if isinstance(error, RetriableError):
                self._cluster.need_update()
            for queue in self._accumulator.waiting.values():
                if self._cluster.metadata.leader(queue.tp) == node_id:
                    queue.queued[0].error = error  # for the message if it times out
        self.advance()

    def _single_answered(
        self,
        connection: Connection,
        queue: PartitionQueue,
        batch: Batch,
        asked: float,
        answer: Appended | ProduceResponse | None,
        error: ClientError | None,
    ) -> None:
        if not isinstance(answer, tuple):
            self._answered(connection, [(queue, batch)], asked, answer, error)
            return
        self._landed(connection)
        now = self._now()
        self._accumulator.landed(queue, batch)
        self._traffic.answered(connection.node_id, now - asked, now)
        self.outcomes.acknowledge(queue, batch, *answer)
        if now >= self._timer_at or not self._accumulator.is_still:
            self.advance()

    def _landed(self, connection: Connection) -> None:
        left = self.in_flight.pop(connection) - 1
        if left:
            self.in_flight[connection] = left
        elif self._quiet is not None and not self.in_flight:
            self._quiet.set_result(None)
            self._quiet = None

    def _answered(
        self,
        connection: Connection,
        chosen: list[Payload],
        asked: float,
        answer: ProduceResponse | None,
        error: ClientError | None,
    ) -> None:
        self._landed(connection)
        now = self._now()
        outcomes = self.outcomes
        for queue, batch in chosen:
            self._accumulator.landed(queue, batch)
        if error is not None:
            outcomes.on_failure(chosen, error, now)
        elif answer is not None:
            self._traffic.answered(connection.node_id, now - asked, now)
            outcomes.metrics.throttle_ms.note(answer.throttle_time_ms, now)
            outcomes.on_response(chosen, answer, now)
        else:  # acks=0: the kernel has it, and no more will be known
            for queue, batch in chosen:
                outcomes.acknowledge(queue, batch, -1, -1)
        self.advance()
