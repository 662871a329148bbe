"""To whom a question goes, and asking again what may still be answered.

A call for many things is split by the node that must answer: the leader of a partition, the
coordinator of a group, a broker itself. Each part is one request; what a node refuses because it is
the wrong one, or not ready, goes into the next round, until the deadline. In all families alike:

- each key has its own result or its own error in the end;
- what cannot be asked at all (a version that nobody has, a closed client) is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster, CoordinatorKind, Where
from headwater.client.config import AdminConfig
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
from headwater.model import NO_NODE, TopicPartition
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)
R = TypeVar("R")

# Asks one node for some keys: what came of each.
AskNode = Callable[[Connection, Sequence[K], float], Awaitable[dict[K, R | ClientError]]]
AskRound = Callable[[list[K], float], Awaitable[dict[K, R | ClientError]]]

_COORDINATOR_LOST = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The node was the wrong one, or not ready; the same question may be answered a moment later.
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
# A topic that was made a moment ago is not known to every broker yet. So long one that is unknown
# is asked for again; whoever mistyped a name need not wait for the whole timeout.
_UNKNOWN_TOPIC_SECONDS = 1.0
_NEW_TOPIC_SECONDS = 10.0
_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class _NodeGone(Exception):
    """A broker that was asked is not one of the cluster's any more."""


def _no_patience(_: object) -> float:
    return 0.0


class Router:
    """All that the families of calls need of the cluster."""

    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._made: dict[str, float] = {}  # names and ids of topics made by this client

    # Time and chance

    def deadline(self, timeout_ms: int | None) -> float:
        given_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._cluster.deadline(given_ms)

    def left_ms(self, deadline: float) -> int:
        """What is left of a call's time, for requests that say it and for calls within calls."""
        return max(1, round((deadline - self._cluster.now()) * 1000))

    def random_bytes(self, count: int) -> bytes:
        return self._cluster.host.random.randbytes(count)

    def on_topics_made(self, names: Iterable[str]) -> None:
        """Brokers learn of new topics one after the other; whoever has made one has not mistyped
        its name, so it is waited for."""
        now = self._cluster.now()
        self._made = {name: until for name, until in self._made.items() if until > now}
        self._made |= dict.fromkeys(names, now + _NEW_TOPIC_SECONDS)

    def patience(self, name: str) -> float:
        """For how many seconds a topic that nobody knows may still become known."""
        now = self._cluster.now()
        return self._made.get(name, now) - now

    # One question

    async def ask(
        self,
        node: Connection,
        request: Message,
        deadline: float,
        *,
        at_least: int | None = None,
        at_most: int | None = None,
    ) -> Any:
        """Asks a node once; `at_least` is the version without which the question cannot be put."""
        _check_version(node, request, at_least, at_most)
        timeout_ms = min(self._config.request_timeout_ms, self.left_ms(deadline))
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
        """The answer of whichever broker is least busy, or of one in particular."""
        if deadline is None:
            deadline = self.deadline(timeout_ms)
        to = Where.ANY if node_id is None else node_id
        return await self._persist(request, to, deadline, at_least)

    async def controller(
        self,
        request: Message,
        deadline: float | None = None,
        *,
        timeout_ms: int | None = None,
        at_least: int | None = None,
    ) -> Any:
        """The answer of the controller, or of a broker that hands the question on to it."""
        if deadline is None:
            deadline = self.deadline(timeout_ms)
        return await self._persist(request, Where.CONTROLLER, deadline, at_least)

    async def _persist(
        self, request: Message, to: Where | int, deadline: float, at_least: int | None
    ) -> Any:
        if at_least is not None:
            self._cluster.check()
            async with _within(deadline - self._cluster.now()):
                node = await self._cluster.any()
            _check_version(node, request, at_least, None)
        return await self._cluster.ask(
            request, to=to, code_of=_code_of, deadline=deadline, retry=_AGAIN
        )

    async def serves(self, api: ApiKey, deadline: float) -> bool:
        """Whether the cluster has an API, as far as one of its brokers tells."""
        self._cluster.check()
        async with _within(deadline - self._cluster.now()):
            return (await self._cluster.any()).version(api) is not None

    async def require(self, api: ApiKey, deadline: float) -> None:
        """For what begins with another question than its own."""
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
        """The answer of each broker, or the error that it met."""
        deadline = self.deadline(timeout_ms)
        if nodes is not None:
            return await self._ask_nodes(request, list(nodes), deadline, at_least)
        while True:
            await self._learn([], deadline)
            brokers = self._cluster.metadata.brokers
            try:
                return await self._ask_nodes(
                    request, sorted(brokers), deadline, at_least, all_are_needed=True
                )
            except _NodeGone:
                continue  # what it had is with others now, who may have answered before that

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
            if is_again or not self._cluster.metadata.brokers.keys() >= set(pending):
                await self._learn([], deadline)
            is_again = True
            if all_are_needed and not self._cluster.metadata.brokers.keys() >= set(pending):
                raise _NodeGone
            nodes = {node_id: [node_id] for node_id in pending}
            return await self._fan_out(nodes, self._cluster.connection, ask, deadline)

        return await self.settle(node_ids, ask_round, deadline=deadline)

    # Many questions at once

    async def settle(
        self,
        keys: Iterable[K],
        ask_round: AskRound[K, R],
        *,
        timeout_ms: int | None = None,
        deadline: float | None = None,
        patience: Callable[[K], float] = _no_patience,
    ) -> dict[K, R | ClientError]:
        """Asks for all keys, then again for those that were not refused for good, until each has
        its result or the time is over. For `patience` seconds its topic may become known."""
        self._cluster.check()
        if deadline is None:
            deadline = self.deadline(timeout_ms)
        wanted = list(dict.fromkeys(keys))
        results: dict[K, R | ClientError] = {}
        pending = wanted
        failures = 0
        known_by = {key: self._cluster.now() + patience(key) for key in wanted}
        while pending:
            # That the time is over says less than what went wrong before.
            try:
                answers = await ask_round(pending, deadline)
            except RetriableError:
                if failures:
                    break
                raise
            for key in pending:
                result = answers.get(key, _no_answer(key))
                if key not in results or not isinstance(result, RequestTimedOut):
                    results[key] = result
            now = self._cluster.now()
            pending = [key for key in pending if _may_change(results[key], now < known_by[key])]
            failures += 1
            wait = self._backoff.seconds(failures, self._cluster.host.random)
            if pending and self._cluster.now() + wait >= deadline:
                break
            if pending:
                await asyncio.sleep(wait)
        return {key: results[key] for key in wanted}

    async def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        ask: AskNode[TopicPartition, R],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, R | ClientError]:
        """Each partition's leader is asked for it."""

        async def ask_round(
            pending: list[TopicPartition], deadline: float
        ) -> dict[TopicPartition, R | ClientError]:
            errors = await self._learn({each.topic for each in pending}, deadline)
            results: dict[TopicPartition, R | ClientError] = {}
            led: dict[int, list[TopicPartition]] = {}
            for each in pending:
                partition = self._cluster.metadata.partition(each)
                if each.topic in errors:
                    results[each] = error_for(errors[each.topic], f"topic {each.topic}")
                elif partition is None:
                    results[each] = error_for(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {each}"
                    )
                elif partition.leader == NO_NODE:
                    results[each] = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {each}")
                else:
                    led.setdefault(partition.leader, []).append(each)
            connect = self._cluster.connection
            return results | await self._fan_out(led, connect, ask, deadline)

        def patience(partition: TopicPartition) -> float:
            return max(_UNKNOWN_TOPIC_SECONDS, self.patience(partition.topic))

        return await self.settle(partitions, ask_round, timeout_ms=timeout_ms, patience=patience)

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
        """Each group's coordinator is asked for it, or that of each transactional id."""
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
                    self._cluster.coordinator_lost(key, kind)
            return results

        async def find(key: str, deadline: float) -> Connection | ClientError:
            try:
                async with _within(deadline - self._cluster.now()):
                    return await self._cluster.coordinator(key, kind, deadline=deadline)
            except FatalError:
                raise
            except ClientError as error:
                return error

        return await self.settle(
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
        """The broker that a key belongs to is asked for it; any, if it belongs to none."""

        async def ask_round(pending: list[K], deadline: float) -> dict[K, R | ClientError]:
            nodes: dict[int | None, list[K]] = {}
            for key in pending:
                nodes.setdefault(node_of(key), []).append(key)
            if any(node_id not in self._cluster.metadata.brokers for node_id in nodes):
                await self._learn([], deadline)
            return await self._fan_out(nodes, connect, ask, deadline)

        async def connect(node_id: int | None) -> Connection:
            if node_id is None:
                return await self._cluster.any()
            return await self._cluster.connection(node_id)

        return await self.settle(keys, ask_round, timeout_ms=timeout_ms, patience=patience)

    async def _fan_out(
        self,
        parts: dict[N, list[K]],
        connect: Callable[[N], Awaitable[Connection]],
        ask: AskNode[K, R],
        deadline: float,
    ) -> dict[K, R | ClientError]:
        """One request for each node, all at the same time. What keeps a node from answering is the
        error of all that it was asked for."""

        async def ask_one(node: N, keys: list[K]) -> dict[K, R | ClientError]:
            try:
                async with _within(deadline - self._cluster.now()):
                    connection = await connect(node)
                return await ask(connection, keys, deadline)
            except RetriableError as error:
                return dict.fromkeys(keys, error)

        results: dict[K, R | ClientError] = {}
        for part in await asyncio.gather(*(ask_one(*each) for each in parts.items())):
            results |= part
        return results

    async def _learn(self, topics: Iterable[str], deadline: float) -> dict[str, int]:
        """Asks who leads what, and which brokers there are; the codes of topics that are refused.

        What we have heard before may be as old as the mistake that made us ask."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=False,
        )
        answer = await self._cluster.ask(request, code_of=_code_of, deadline=deadline, retry=_AGAIN)
        self._cluster.metadata.update(answer)
        return {each.name: each.error_code for each in answer.topics if each.error_code}


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            yield
    except TimeoutError:
        raise RequestTimedOut("no broker could be reached within the time given") from None


def _no_answer(key: object) -> ClientError:
    return RequestTimedOut(f"the broker left out {key} in its answer")


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
    """The code of an answer, or, where each of its parts has one, that of the first part which says
    that the wrong node was asked: then no part was done."""
    code: int = getattr(answer, "error_code", 0)
    if code:
        return code
    for name in ("results", "topics", "responses", "entries", "filter_results"):
        for part in getattr(answer, name, None) or ():
            if getattr(part, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                return ErrorCode.NOT_CONTROLLER
    return 0


def _may_change(result: object, may_appear: bool) -> bool:
    """Whether asking again may bring another result."""
    if not isinstance(result, RetriableError):
        return False
    if result.code is None:  # the network's, not a broker's
        return True
    return result.code in _AGAIN or (may_appear and result.code in _UNKNOWN_TOPIC)


def is_lost(error: ClientError) -> bool:
    return error.code in _COORDINATOR_LOST or (
        error.code is None and isinstance(error, RetriableError)
    )
