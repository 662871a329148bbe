"""The transaction coordinator of this broker: a driver for each partition that it leads.

A partition of `__transaction_state` is loaded when this broker becomes its leader, and whatever was
being ended then is ended. The topic itself is created when a client first looks for a coordinator.
The coordinator's epoch, which fences markers of an earlier one, is the partition's leader epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from headwater.broker.broker_channel import BrokerChannel
from headwater.broker.coordinators.driver import CoordinatorDriver, State
from headwater.broker.coordinators.markers import MarkerSender, WriteHere
from headwater.broker.coordinators.records import TransactionCodec
from headwater.broker.coordinators.shards import Shards, check_length
from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.coordination import Decision, Effect, Token
from headwater.errors import ApiError
from headwater.io import Clock, Host
from headwater.metadata import Delta, Image
from headwater.metadata.features import TRANSACTION_VERSION
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from headwater.broker.on_demand import ProducerIds
    from headwater.protocol.messages.add_offsets_to_txn import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
    )
    from headwater.protocol.messages.describe_transactions import TransactionState
    from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
    from headwater.protocol.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )
    from headwater.transactions.settings import TransactionSettings
    from headwater.transactions.shard import SendMarkers, TransactionShard

    Answer = Message | Awaitable[Message]
    DecideWithId = Callable[[TransactionShard, Token, int | None], Decision]

T = TypeVar("T")

TRANSACTIONS_TOPIC = "__transaction_state"


# How long a transaction waits for the end of the one before. One that takes longer is held up by
# more than the network: requests behind this one must not be, too.
_PATIENCE_MS = 50


class _Shard:
    """One driver, as the sender of markers sees it. It belongs to one load of the machine: markers
    that an earlier one asked for are of no more interest."""

    __slots__ = ("_clock", "_driver", "_machine", "_on_ended", "epoch")

    def __init__(
        self,
        driver: CoordinatorDriver[TransactionShard],
        clock: Clock,
        on_ended: Callable[[str], None],
    ) -> None:
        self.epoch = driver.epoch
        self._driver = driver
        self._machine = driver.machine
        self._clock = clock
        self._on_ended = on_ended

    @property
    def is_current(self) -> bool:
        return self._driver.state is State.ACTIVE and self._driver.machine is self._machine

    @property
    def is_writable(self) -> bool:
        return self._driver.is_writable

    def on_written(self, markers: SendMarkers, partitions: Sequence[TopicPartition]) -> None:
        now_ms = self._clock.wall_ms()
        self._driver.run(
            lambda machine: machine.on_markers_written(markers, partitions, now_ms=now_ms)
        )
        if self._machine.ending_since_ms(markers.transactional_id) is None:
            self._on_ended(markers.transactional_id)


class TransactionCoordinator:
    """Routes requests to the shard of their transactional id, and follows the metadata.

    Requests raise ApiError, now or later, if the shard cannot be asked. What the shard itself
    refuses is in its response.
    """

    def __init__(
        self,
        config: NodeConfig,
        host: Host,
        partitions: Partitions,
        producer_ids: ProducerIds,
        write_markers: WriteHere,
        lines: Lines,
    ) -> None:
        """`write_markers` writes to partitions that this broker leads."""
        self._config = config
        self._host = host
        self._clock = host.clock
        self._producer_ids = producer_ids
        self._lines = lines
        self._channel = BrokerChannel(host, config, name="txn-marker-sender")
        self._markers = MarkerSender(config.node_id, host, self._channel, write_markers, lines)
        self._image = Image()
        self._tasks: set[asyncio.Task[None]] = set()
        # Requests that wait until a transaction has ended, by its id.
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._codec = TransactionCodec()
        self.shards: Shards[TransactionShard] = Shards(
            TRANSACTIONS_TOPIC, partitions, self._new_driver
        )

    def loaded(self) -> list[TransactionShard]:
        """Returns the shards of this broker, to look at what they have now. What they have may not
        be committed yet."""
        return self.shards.loaded()

    def partition_for(self, transactional_id: str) -> int | None:
        """Returns the partition that coordinates an id; None while the topic does not exist."""
        return self.shards.partition_for(transactional_id)

    def is_new_here(self, transactional_id: str) -> bool:
        """Returns whether this broker coordinates an id that does not exist yet."""
        try:
            driver = self.shards.find(transactional_id)
        except ApiError:
            return False
        return driver.state is State.ACTIVE and not driver.machine.knows(transactional_id)

    # Requests of producers

    def init(
        self, request: InitProducerIdRequest, *, version: int
    ) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
        """Returns the producer id and epoch of a transactional id."""
        assert request.transactional_id is not None, "an idempotent producer has no coordinator"
        check_length(request.transactional_id)  # other requests write only about ids that are known

        def decide(machine: TransactionShard, token: Token, new_id: int | None) -> Decision:
            now, now_ms = self._now()
            return machine.decide_init(
                token, request, version=version, new_producer_id=new_id, now=now, now_ms=now_ms
            )

        answer = self._ask_with_id(request.transactional_id, decide)
        return cast("InitProducerIdResponse | Awaitable[InitProducerIdResponse]", answer)

    def end(
        self, request: EndTxnRequest, *, version: int
    ) -> EndTxnResponse | Awaitable[EndTxnResponse]:
        """Commits or aborts a transaction."""

        def decide(machine: TransactionShard, token: Token, new_id: int | None) -> Decision:
            now, now_ms = self._now()
            return machine.decide_end(
                token, request, version=version, new_producer_id=new_id, now=now, now_ms=now_ms
            )

        answer = self._ask_with_id(request.transactional_id, decide)
        return cast("EndTxnResponse | Awaitable[EndTxnResponse]", answer)

    def _ask_with_id(self, transactional_id: str, decide: DecideWithId) -> Answer:
        """Asks a shard that may need a new producer id. Usually one is at hand; if a block has to
        be fetched first, the shard decides again when it has come, as things are then."""

        from headwater.transactions.transaction import NeedsProducerId

        def decide_now(machine: TransactionShard, token: Token) -> Decision:
            try:
                return decide(machine, token, None)
            except NeedsProducerId:
                new_id = self._producer_ids.take()
                if new_id is None:
                    raise
                return decide(machine, token, new_id)

        driver = self.shards.find(transactional_id)
        try:
            return driver.ask(decide_now)
        except NeedsProducerId:
            return self._ask_when_id_has_come(transactional_id, decide)

    async def _ask_when_id_has_come(self, transactional_id: str, decide: DecideWithId) -> Message:
        new_id = await self._producer_ids.next()
        answer = self.shards.find(transactional_id).ask(
            lambda machine, token: decide(machine, token, new_id)
        )
        return answer if isinstance(answer, Message) else await answer

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, partition: TopicPartition, *, version: int
    ) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
        """Adds the partition that keeps a group's offsets to a transaction, which may begin with
        it: as patiently as `add_partitions`."""

        def decide(machine: TransactionShard, token: Token) -> Decision:
            now, now_ms = self._now()
            return machine.decide_add_offsets(
                token, request, partition=partition, version=version, now=now, now_ms=now_ms
            )

        answer = self._ask_patiently(request.transactional_id, lambda driver: driver.ask(decide))
        return cast("AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]", answer)

    def add_partitions(
        self, transaction: AddPartitionsToTxnTransaction, *, version: int, is_patient: bool = True
    ) -> AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]:
        """Adds partitions to a transaction, or only verifies that they are part of it.

        A producer that begins its next transaction at once may find the one before not quite ended:
        its markers are on their way to other brokers. A patient caller waits for that moment,
        instead of hearing CONCURRENT_TRANSACTIONS and pausing for much longer.
        """

        def decide(machine: TransactionShard, token: Token) -> Decision:
            now, now_ms = self._now()
            return machine.decide_add_partitions(
                token, transaction, version=version, now=now, now_ms=now_ms
            )

        def ask(driver: CoordinatorDriver[TransactionShard]) -> Answer:
            # What only reads is served while too few replicas are in sync.
            return driver.ask(decide, often_writes=not transaction.verify_only)

        if is_patient and not transaction.verify_only:
            answer = self._ask_patiently(transaction.transactional_id, ask)
        else:
            answer = ask(self.shards.find(transaction.transactional_id))
        return cast("AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]", answer)

    def _ask_patiently(
        self,
        transactional_id: str,
        ask: Callable[[CoordinatorDriver[TransactionShard]], Answer],
    ) -> Answer:
        """Asks when the transaction before has ended, or has not for too long."""
        driver = self.shards.find(transactional_id)
        since_ms = driver.machine.ending_since_ms(transactional_id)
        if since_ms is None or self._clock.wall_ms() - since_ms >= _PATIENCE_MS:
            return ask(driver)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(transactional_id, []).append(ended)
        return self._ask_when_ended(ended, transactional_id, ask)

    async def _ask_when_ended(
        self,
        ended: asyncio.Future[None],
        transactional_id: str,
        ask: Callable[[CoordinatorDriver[TransactionShard]], Answer],
    ) -> Message:
        try:
            async with asyncio.timeout(_PATIENCE_MS / 1000):
                await ended
        except TimeoutError:
            pass
        finally:
            waiting = self._waiting.get(transactional_id, [])
            if ended in waiting:
                waiting.remove(ended)
                if not waiting:
                    del self._waiting[transactional_id]
        answer = ask(self.shards.find(transactional_id))
        return answer if isinstance(answer, Message) else await answer

    def _on_ended(self, transactional_id: str) -> None:
        for ended in self._waiting.pop(transactional_id, ()):
            if not ended.done():
                ended.set_result(None)

    def _now(self) -> tuple[float, int]:
        return self._clock.monotonic(), self._clock.wall_ms()

    # Administration

    def describe(self, transactional_id: str) -> TransactionState | Awaitable[TransactionState]:
        """Returns the state of an id, or why it is not known here."""
        return self.shards.find(transactional_id).read(
            lambda machine: machine.describe(transactional_id)
        )

    def read_all(self, look: Callable[[TransactionShard], T]) -> list[T | Awaitable[T]]:
        """Returns what `look` finds in each shard of this broker. Refuses while one is loaded, for
        the rest would look like all there is."""
        drivers = [
            driver for driver in self.shards.drivers.values() if driver.state is not State.FAILED
        ]
        return [driver.read(look) for driver in drivers]

    # Following the metadata

    def follow(self, image: Image, delta: Delta) -> None:
        self._image = image
        self._channel.follow(image, delta)
        self._markers.follow(image, delta)
        self.shards.follow(image, delta)
        if TRANSACTION_VERSION in delta.features:
            settings = self._settings()
            for driver in self.shards.drivers.values():
                driver.machine.on_settings(settings)

    def on_role(self, partition: Partition) -> None:
        """Follows a change of leadership that comes after its metadata."""
        self.shards.on_role(partition)

    def _new_driver(self, partition: Partition) -> CoordinatorDriver[TransactionShard]:
        driver: CoordinatorDriver[TransactionShard] = CoordinatorDriver(
            partition,
            self._make_machine,
            lambda machine: machine.on_settings(self._settings()),
            self._codec,
            self._clock,
            self._host.workers,
            self._lines,
            commit_timeout_ms=self._config.request_timeout_ms,
            load_bytes=self._config.transaction_state_log_load_buffer_size,
            on_effects=lambda effects: self._carry_out(driver, effects),
            loads=self.shards.loads,
        )
        return driver

    def _make_machine(self) -> TransactionShard:
        # Imported here: a node without transactions starts without loading their machine.
        from headwater.transactions.shard import TransactionShard

        return TransactionShard(self._settings())

    def _settings(self) -> TransactionSettings:
        from headwater.transactions.settings import TransactionSettings

        level = self._image.features.get(TRANSACTION_VERSION, 0)
        return TransactionSettings.of(self._config, transaction_version=level)

    # Effects

    def _carry_out(
        self, driver: CoordinatorDriver[TransactionShard], effects: Sequence[Effect]
    ) -> None:
        from headwater.transactions.shard import GetProducerId, SendMarkers

        shard = _Shard(driver, self._clock, self._on_ended)
        for effect in effects:
            if isinstance(effect, SendMarkers):
                self._markers.send(shard, effect)
            else:
                assert isinstance(effect, GetProducerId), effect
                task = asyncio.ensure_future(self._get_producer_id(driver))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _get_producer_id(self, driver: CoordinatorDriver[TransactionShard]) -> None:
        """Gets a producer id for a transaction that timed out. If there is none, the machine asks
        again when it next looks for such transactions."""
        try:
            new_id = await self._producer_ids.next()
        except ApiError as refusal:
            self._lines.warn(f"a transaction that has timed out is not aborted yet: {refusal}")
            return
        now, now_ms = self._now()
        driver.run(lambda machine: machine.on_producer_id(new_id, now, now_ms))

    def stop(self) -> list[asyncio.Task[None]]:
        """Closes all drivers; returns the tasks that are still ending."""
        self._markers.stop()
        for task in self._tasks:
            task.cancel()
        return [*self.shards.stop(), *self._channel.stop(), *self._tasks]
