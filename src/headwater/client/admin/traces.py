"""Following requests live, at brokers of Headwater."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.client.admin.results import check
from headwater.client.connection_pool import FOLLOWING
from headwater.client.errors import (
    BrokersUnavailable,
    ClientError,
    RetriableError,
    UnsupportedVersion,
)
from headwater.io.tasks import background_task
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest

if TYPE_CHECKING:
    from headwater.client.admin import Admin

# The tagged field of DescribeCluster that carries a trace (`broker/request_trace`).
_TAG = 0x4857
_WAIT_MS = 1000
_LOOK_SECONDS = 30.0  # for brokers that have joined
_QUEUED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request that a broker has answered. Times are milliseconds: `queue_ms` from its arrival
    until the broker began with it, `local_ms` the work on the broker's event loop, `wait_ms` the
    rest until the answer was ready (other replicas, the disk, new records), `throttle_ms` what the
    client was asked to wait afterwards because of a quota. `errors` names the error codes of the
    answer, as in `NOT_LEADER_OR_FOLLOWER*3`."""

    node: int
    time_ms: int  # since 1970, when the answer was ready
    api: str
    version: int
    client_id: str
    principal: str
    peer: str
    listener: str
    request_bytes: int
    response_bytes: int
    queue_ms: float
    local_ms: float
    wait_ms: float
    throttle_ms: int
    errors: str
    topics: tuple[str, ...]  # at most five of `topics_total`
    topics_total: int


@dataclass(frozen=True, slots=True)
class MissedRequests:
    """Requests that a broker has seen and not kept, because they came too fast."""

    node: int
    count: int


async def trace_requests(
    admin: Admin,
    *,
    client_id: str | None = None,
    api: str | None = None,
    principal: str | None = None,
    topic: str | None = None,
    nodes: frozenset[int] | None = None,
) -> AsyncGenerator[TracedRequest | MissedRequests, None]:
    """Yields the requests that brokers answer from now on, for as long as it is iterated over. All
    filters apply together; `client_id` may end in `*`. Without `nodes` it follows all brokers, also
    those that join. It takes ALTER on the cluster, and brokers of Headwater."""
    filters = {"client_id": client_id, "api": api, "principal": principal, "topic": topic}
    question = json.dumps(
        {**{name: text for name, text in filters.items() if text is not None}, "wait_ms": _WAIT_MS}
    ).encode()
    found: asyncio.Queue[TracedRequest | MissedRequests] = asyncio.Queue(_QUEUED_MAX)
    followers: dict[int, asyncio.Task[None]] = {}
    following = background_task(_follow_all(admin, question, nodes, found, followers))
    try:
        while True:
            taken = background_task(found.get())
            await asyncio.wait((taken, following), return_when=asyncio.FIRST_COMPLETED)
            if not taken.done():
                taken.cancel()
                following.result()  # raises
                return
            yield taken.result()
    finally:
        tasks = [following, *followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow_all(
    admin: Admin,
    question: bytes,
    nodes: frozenset[int] | None,
    found: asyncio.Queue[TracedRequest | MissedRequests],
    followers: dict[int, asyncio.Task[None]],
) -> None:
    """Follows each broker; raises what one of them says that trying again does not change."""
    cluster = admin._cluster
    if unknown := (nodes or frozenset()) - cluster.metadata.brokers.keys():
        raise BrokersUnavailable(f"node {min(unknown)} is not among the live brokers")
    while True:
        for node_id in cluster.metadata.brokers if nodes is None else nodes:
            if node_id not in followers:
                followers[node_id] = background_task(_follow(admin, node_id, question, found))
        done, _ = await asyncio.wait(
            followers.values(), timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()  # raises
        cluster.need_update()


async def _follow(
    admin: Admin,
    node_id: int,
    question: bytes,
    found: asyncio.Queue[TracedRequest | MissedRequests],
) -> None:
    cluster = admin._cluster
    failures = 0
    while True:
        try:
            connection = await cluster.connection(node_id, FOLLOWING)
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            request.unknown_tags = {_TAG: question}
            answer = await connection.ask(request)
        except RetriableError:
            failures += 1
            await asyncio.sleep(min(1.0, 0.1 * failures))
            continue
        failures = 0
        check(answer.error_code, "the trace", answer.error_message)
        told = (answer.unknown_tags or {}).get(_TAG)
        if told is None:
            raise UnsupportedVersion(
                f"node {node_id} at {connection.address} does not know traces: it is not a broker "
                "of Headwater, or an older one"
            )
        for each in _read(told):
            await found.put(each)


def _read(told: bytes) -> list[TracedRequest | MissedRequests]:
    try:
        answer: dict[str, Any] = json.loads(told)
        node = answer["node"]
        requests: list[TracedRequest | MissedRequests] = [
            TracedRequest(
                node=node,
                topics=tuple(each["topics"]),
                **{name: each[name] for name in _PLAIN},
            )
            for each in answer["requests"]
        ]
        if answer["missed"]:
            requests.insert(0, MissedRequests(node, answer["missed"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(f"a broker's trace cannot be read: {error!r}") from None
    return requests


_PLAIN = tuple(name for name in TracedRequest.__slots__ if name not in ("node", "topics"))
