"""Sends requests to the nodes that must answer them, and retries.

A call about many things is split by node: the leader of a partition, the coordinator of a group, a
broker itself. Each node gets one request. Whatever a node refuses because it is the wrong one or
not ready goes into the next round, until the deadline. For all calls alike:

- each key ends with its own result or its own error;
- a call that no broker can serve (an unsupported version, a closed client) raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from headwater.client.cluster import Cluster, CoordinatorKind, Where
from headwater.client.connection import Connection
from headwater.client.errors import (
    ClientError,
    FatalError,
    RequestTimedOut,
    RetriableError,
    UnsupportedVersion,
    error_for,
)
from headwater.errors import ErrorCode
from headwater.model import NO_EPOCH, NO_NODE, TopicPartition
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)
R = TypeVar("R")

# Asks one node about some keys and returns a result or an error for each.
AskNode = Callable[[Connection, Sequence[K], float], Awaitable[dict[K, R | ClientError]]]
AskRound = Callable[[list[K], float], Awaitable[dict[K, R | ClientError]]]

_COORDINATOR_LOST = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The node was the wrong one or not ready; the same request may succeed a moment later.
_AGAIN = _COORDINATOR_LOST | {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
# A new topic is not known to every broker at once, so an unknown one is retried this long; a
# mistyped name must not cost the whole timeout.
_UNKNOWN_TOPIC_SECONDS = 1.0
_NEW_TOPIC_SECONDS = 10.0
_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class _NodeGone(Exception):
    """A broker that was asked has left the cluster."""


def _no_patience(_: object) -> float:
    return 0.0


class Router:
    """Routes requests within one cluster.

    `trusts_metadata` is for clients that keep the metadata of their topics fresh: the first round
    goes to the leaders already known. Without it, each call about partitions asks who leads them.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        default_timeout_ms: int = 60_000,
        trusts_metadata: bool = False,
    ) -> None:
        self.cluster = cluster
        self._default_timeout_ms = default_timeout_ms
        self._trusts_metadata = trusts_metadata
        # Names and ids of the topics created by this client, with the time until which to wait
        # for them to become known.
        self._created: dict[str, float] = {}

    # Time and chance

    def deadline(self, timeout_ms: int | None) -> float:
        return self.cluster.deadline(self._default_timeout_ms if timeout_ms is None else timeout_ms)

    def left_ms(self, deadline: float) -> int:
        """Returns the rest of a call's time, for requests that carry a timeout and nested calls."""
        return max(1, round((deadline - self.cluster.now()) * 1000))

    def random_bytes(self, count: int) -> bytes:
        return self.cluster.host.random.randbytes(count)

    def on_topics_created(self, names: Iterable[str]) -> None:
        """Notes names or ids that are not mistyped: brokers learn of new topics one after the
        other, so calls about these wait for them."""
        now = self.cluster.now()
        self._created = {name: until for name, until in self._created.items() if until > now}
        self._created |= dict.fromkeys(names, now + _NEW_TOPIC_SECONDS)

    def patience(self, name: str) -> float:
        """Returns for how many seconds an unknown topic may still become known."""
        now = self.cluster.now()
        return self._created.get(name, now) - now

    # One request

    async def ask(
        self,
        node: Connection,
        request: Message,
        deadline: float,
        *,
        at_least: int | None = None,
        at_most: int | None = None,
    ) -> Any:
        """Asks a node once; UnsupportedVersion if it does not serve version `at_least`."""
        _check_version(node, request, at_least, at_most)
        timeout_ms = min(self.cluster.config.request_timeout_ms, self.left_ms(deadline))
        return await node.ask(request, at_most=at_most, timeout_ms=timeout_ms)

    async def anyone(
        self,
        request: Message,
        *,
        timeout_ms: int | None = None,
        deadline: float | None = None,
        at_least: int | None = None,
        node_id: int | None = None,
    ) -> Any:
        """Asks the least loaded broker, or the broker `node_id`."""
        if deadline is None:
            deadline = self.deadline(timeout_ms)
        to = Where.ANY if node_id is None else node_id
        return await self._ask_until(request, to, deadline, at_least)

    async def controller(
        self,
        request: Message,
        deadline: float | None = None,
        *,
        timeout_ms: int | None = None,
        at_least: int | None = None,
    ) -> Any:
        """Asks the controller, or a broker that forwards to it."""
        if deadline is None:
            deadline = self.deadline(timeout_ms)
        return await self._ask_until(request, Where.CONTROLLER, deadline, at_least)

    async def _ask_until(
        self, request: Message, to: Where | int, deadline: float, at_least: int | None
    ) -> Any:
        if at_least is not None:
            self.cluster.check()
            async with _within(deadline - self.cluster.now()):
                node = await self.cluster.any()
            _check_version(node, request, at_least, None)
        return await self.cluster.ask(
            request, to=to, code_of=_code_of, deadline=deadline, retry=_AGAIN
        )

    async def serves(self, api: ApiKey, deadline: float) -> bool:
        """Returns whether one of the brokers serves an API."""
        self.cluster.check()
        async with _within(deadline - self.cluster.now()):
            return (await self.cluster.any()).version(api) is not None

    async def require(self, api: ApiKey, deadline: float) -> None:
        """Raises UnsupportedVersion if the cluster lacks an API that a later step needs."""
        if not await self.serves(api, deadline):
            raise UnsupportedVersion(f"the cluster does not serve {APIS[api].name}")

    async def every_node(
        self,
        request: Message,
        *,
        nodes: Iterable[int] | None = None,
        at_least: int | None = None,
        timeout_ms: int | None = None,
    ) -> dict[int, Any]:
        """Returns each broker's response, or its error."""
        deadline = self.deadline(timeout_ms)
        if nodes is not None:
            return await self._ask_nodes(request, list(nodes), deadline, at_least)
        while True:
            await self.learn([], deadline)
            brokers = self.cluster.metadata.brokers
            try:
                return await self._ask_nodes(
                    request, sorted(brokers), deadline, at_least, all_are_needed=True
                )
            except _NodeGone:
                continue  # what it held is with other brokers now, which may have answered before

    async def _ask_nodes(
        self,
        request: Message,
        node_ids: list[int],
        deadline: float,
        at_least: int | None,
        *,
        all_are_needed: bool = False,
    ) -> dict[int, Any]:
        async def ask(node: Connection, keys: Sequence[int], deadline: float) -> dict[int, Any]:
            (node_id,) = keys
            answer = await self.ask(node, request, deadline, at_least=at_least)
            code = _code_of(answer)
            return {node_id: error_for(code, f"node {node_id}") if code in _AGAIN else answer}

        is_again = False

        async def ask_round(pending: list[int], deadline: float) -> dict[int, Any]:
            nonlocal is_again
            if is_again or not self.cluster.metadata.brokers.keys() >= set(pending):
                await self.learn([], deadline)
            is_again = True
            if all_are_needed and not self.cluster.metadata.brokers.keys() >= set(pending):
                raise _NodeGone
            nodes = {node_id: [node_id] for node_id in pending}
            return await self._fan_out(nodes, self.cluster.connection, ask, deadline)

        return await self.retry_pending(node_ids, ask_round, deadline=deadline)

    # Many requests at once

    async def retry_pending(
        self,
        keys: Iterable[K],
        ask_round: AskRound[K, R],
        *,
        timeout_ms: int | None = None,
        deadline: float | None = None,
        patience: Callable[[K], float] = _no_patience,
    ) -> dict[K, R | ClientError]:
        """Asks about all keys, then again about those with a transient error, until each has its
        result or the deadline comes. An unknown topic counts as transient for `patience` seconds.
        """
        self.cluster.check()
        if deadline is None:
            deadline = self.deadline(timeout_ms)
        wanted = list(dict.fromkeys(keys))
        results: dict[K, R | ClientError] = {}
        pending = wanted
        retries = self.cluster.retries(deadline)
        known_by = {key: self.cluster.now() + patience(key) for key in wanted}
        while pending:
            # An error from an earlier round says more than the timeout of the last one.
            try:
                answers = await ask_round(pending, deadline)
            except RetriableError:
                if retries.failures:
                    break
                raise
            for key in pending:
                result = answers.get(key, _no_answer(key))
                if key not in results or not isinstance(result, RequestTimedOut):
                    results[key] = result
            now = self.cluster.now()
            pending = [key for key in pending if _may_change(results[key], now < known_by[key])]
            if pending and not await retries.pause():
                break
        unsupported = [each for each in results.values() if isinstance(each, UnsupportedVersion)]
        if unsupported and len(unsupported) == len(results):
            raise unsupported[0]
        return {key: results[key] for key in wanted}

    async def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        ask: AskNode[TopicPartition, R],
        *,
        timeout_ms: int | None = None,
        deadline: float | None = None,
    ) -> dict[TopicPartition, R | ClientError]:
        """Asks the leader of each partition, until each has a result or the deadline comes."""
        is_first = True

        async def ask_round(
            pending: list[TopicPartition], deadline: float
        ) -> dict[TopicPartition, R | ClientError]:
            nonlocal is_first
            topics = {each.topic for each in pending}
            if is_first and self._trusts_metadata:
                topics -= self.cluster.metadata.topics.keys()
            is_first = False
            errors = await self.learn(topics, deadline) if topics else {}
            refused: dict[TopicPartition, R | ClientError] = {
                each: error_for(errors[each.topic], f"topic {each.topic}")
                for each in pending
                if each.topic in errors
            }
            allowed = [each for each in pending if each not in refused]
            return refused | await self._ask_leaders(allowed, ask, deadline)

        def patience(partition: TopicPartition) -> float:
            return max(_UNKNOWN_TOPIC_SECONDS, self.patience(partition.topic))

        return await self.retry_pending(
            partitions, ask_round, timeout_ms=timeout_ms, deadline=deadline, patience=patience
        )

    async def by_leader_once(
        self,
        partitions: Iterable[TopicPartition],
        ask: AskNode[TopicPartition, R],
        *,
        deadline: float,
    ) -> dict[TopicPartition, R | ClientError]:
        """Asks the leaders already known, once. For clients that schedule the retries of each
        partition: after an error the metadata of its topic is refreshed in the background."""
        wanted = list(partitions)
        answers = await self._ask_leaders(wanted, ask, deadline)
        results: dict[TopicPartition, R | ClientError] = {}
        for each in wanted:
            result = results[each] = answers.get(each, _no_answer(each))
            if isinstance(result, ClientError):
                self.cluster.need_update(each.topic)
        return results

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: AskNode[TopicPartition, R],
        deadline: float,
    ) -> dict[TopicPartition, R | ClientError]:
        results: dict[TopicPartition, R | ClientError] = {}
        led: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            partition = self.cluster.metadata.partition(each)
            if partition is None:
                results[each] = self._unknown(each)
            elif partition.leader == NO_NODE:
                results[each] = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {each}")
            else:
                led.setdefault(partition.leader, []).append(each)
        return results | await self._fan_out(led, self.cluster.connection, ask, deadline)

    def _unknown(self, tp: TopicPartition) -> ClientError:
        topic = self.cluster.metadata.topics.get(tp.topic)
        if topic is None:
            return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic}")
        last = len(topic.partitions) - 1
        return error_for(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {tp}",
            f"it does not exist: the topic has partitions 0 to {last}",
        )

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Returns the leader epoch to send with a request, so that a stale leader is fenced."""
        partition = self.cluster.metadata.partition(tp)
        return NO_EPOCH if partition is None else partition.leader_epoch

    async def by_coordinator(
        self,
        keys: Iterable[str],
        ask: AskNode[str, R],
        *,
        transactions: bool = False,
        timeout_ms: int | None = None,
        deadline: float | None = None,
        patience: Callable[[str], float] = _no_patience,
    ) -> dict[str, R | ClientError]:
        """Asks the coordinator of each group, or of each transactional id."""
        kind = CoordinatorKind.TRANSACTION if transactions else CoordinatorKind.GROUP

        async def ask_round(pending: list[str], deadline: float) -> dict[str, R | ClientError]:
            results: dict[str, R | ClientError] = {}
            nodes: dict[Connection, list[str]] = {}
            found = await asyncio.gather(*(find(key, deadline) for key in pending))
            for key, node in zip(pending, found, strict=True):
                if isinstance(node, ClientError):
                    results[key] = node
                else:
                    nodes.setdefault(node, []).append(key)

            async def connect(node: Connection) -> Connection:
                return node

            results |= await self._fan_out(nodes, connect, ask, deadline)
            for key, result in results.items():
                if isinstance(result, ClientError) and is_lost(result):
                    self.cluster.coordinator_lost(key, kind)
            return results

        async def find(key: str, deadline: float) -> Connection | ClientError:
            try:
                async with _within(deadline - self.cluster.now()):
                    return await self.cluster.coordinator(key, kind, deadline=deadline)
            except FatalError:
                raise
            except ClientError as error:
                return error

        return await self.retry_pending(
            keys, ask_round, timeout_ms=timeout_ms, deadline=deadline, patience=patience
        )

    async def by_node(
        self,
        keys: Iterable[K],
        node_of: Callable[[K], int | None],
        ask: AskNode[K, R],
        *,
        timeout_ms: int | None = None,
        patience: Callable[[K], float] = _no_patience,
    ) -> dict[K, R | ClientError]:
        """Asks the broker that each key belongs to; any broker if it belongs to none."""

        async def ask_round(pending: list[K], deadline: float) -> dict[K, R | ClientError]:
            nodes: dict[int | None, list[K]] = {}
            for key in pending:
                nodes.setdefault(node_of(key), []).append(key)
            if any(node_id not in self.cluster.metadata.brokers for node_id in nodes):
                await self.learn([], deadline)
            return await self._fan_out(nodes, connect, ask, deadline)

        async def connect(node_id: int | None) -> Connection:
            if node_id is None:
                return await self.cluster.any()
            return await self.cluster.connection(node_id)

        return await self.retry_pending(keys, ask_round, timeout_ms=timeout_ms, patience=patience)

    async def _fan_out(
        self,
        parts: dict[N, list[K]],
        connect: Callable[[N], Awaitable[Connection]],
        ask: AskNode[K, R],
        deadline: float,
    ) -> dict[K, R | ClientError]:
        """Sends one request to each node, all at the same time. A node's failure is the error of
        every key that it was asked about."""

        async def ask_one(node: N, keys: list[K]) -> dict[K, R | ClientError]:
            try:
                async with _within(deadline - self.cluster.now()):
                    connection = await connect(node)
                return await ask(connection, keys, deadline)
            except (RetriableError, UnsupportedVersion) as error:
                return dict.fromkeys(keys, error)

        results: dict[K, R | ClientError] = {}
        for part in await asyncio.gather(*(ask_one(*each) for each in parts.items())):
            results |= part
        return results

    async def learn(self, topics: Iterable[str] | None, deadline: float) -> dict[str, int]:
        """Asks for the metadata of these topics (None: of all) and for the brokers; returns the
        error codes of topics that were refused. It always asks: what is known may be as stale as
        the mistake that led here."""
        if self.cluster.config.asks_controllers and topics is not None and not any(topics):
            await self._learn_controllers(deadline)
            return {}
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=False,
        )
        answer = await self.cluster.ask(request, code_of=_code_of, deadline=deadline, retry=_AGAIN)
        self.cluster.metadata.update(answer, is_all=topics is None)
        return {each.name: each.error_code for each in answer.topics if each.error_code}

    async def _learn_controllers(self, deadline: float) -> None:
        retries = self.cluster.retries(deadline)
        while True:
            try:
                return await self.cluster.refresh()
            except RetriableError:
                if not await retries.pause():
                    raise


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic, in the order given."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            yield
    except TimeoutError:
        raise RequestTimedOut("no broker could be reached within the timeout") from None


def _no_answer(key: object) -> ClientError:
    return RequestTimedOut(f"the broker's response does not mention {key}")


def _check_version(
    node: Connection, request: Message, at_least: int | None, at_most: int | None
) -> None:
    api = type(request).API
    assert api is not None
    version = node.version(api, at_most=at_most)
    if at_least is not None and version is not None and version < at_least:
        raise UnsupportedVersion(
            f"{node.address} serves {APIS[api].name} up to version {version}; this needs "
            f"version {at_least}"
        )


def _code_of(answer: Any) -> int:
    """Returns the code of a response. Where each part has its own, NOT_CONTROLLER in any part means
    that the wrong node was asked and no part was done."""
    code: int = getattr(answer, "error_code", 0)
    if code:
        return code
    for name in ("results", "topics", "responses", "entries", "filter_results"):
        for part in getattr(answer, name, None) or ():
            if getattr(part, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                return ErrorCode.NOT_CONTROLLER
    return 0


def _may_change(result: object, may_appear: bool) -> bool:
    """Returns whether another attempt may bring another result."""
    if not isinstance(result, RetriableError):
        return False
    if result.code is None:  # from the network, not from a broker
        return True
    return result.code in _AGAIN or (may_appear and result.code in _UNKNOWN_TOPIC)


def is_lost(error: ClientError) -> bool:
    """Returns whether an error means that the coordinator must be looked up again."""
    return error.code in _COORDINATOR_LOST or (
        error.code is None and isinstance(error, RetriableError)
    )
