"""Quotas of clients as a node enforces them: what requests cost, and how long clients wait.

A request of a client with a quota is metered from its frame to its response. If it was too much,
the response tells the client how long to wait, and leaves at once; then nothing is read from the
connection for that long, so that a client that does not listen is held back, too (KIP-219). The
fetch of a consumer that has had too much brings nothing. Where no quota is set, all this costs one
look at `is_on`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from math import ceil
from typing import Any

from headwater.broker.context import Context
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock
from headwater.metadata import Image
from headwater.net import Connection
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey
from headwater.quotas.clients import NO_LIMITS, ClientQuotas, Limits
from headwater.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST
from headwater.quotas.rates import Bucket, Meter, Windows

# Requests of nodes. They are not throttled, whichever user they log in as.
_OF_NODES = frozenset(
    {
        *(key for key, api in APIS.items() if not api.on_broker),
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ENVELOPE,
    }
)
_VERIFICATION = 4  # since this version nodes ask by AddPartitionsToTxn for others
_BYTES_MAX = 2**31 - 1


class Throttling:
    """The quotas of one node, on all its listeners."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self.now = clock.monotonic
        self.quotas = ClientQuotas(
            _windows(config.value("quota.window.num"), config.value("quota.window.size.seconds")),
            _windows(
                config.value("controller.quota.window.num"),
                config.value("controller.quota.window.size.seconds"),
            ),
        )

        self.is_on = False  # whether there is any quota of clients

    def follow(self, image: Image) -> None:
        self.quotas.follow(image.client_quotas)
        self.is_on = self.quotas.is_on

    def begin(self, context: Context, size: int) -> Metered | None:
        """Begins to meter a request of some bytes; None if no quota applies to its client."""
        api = context.api
        connection = context.connection
        if api in _OF_NODES or (
            api is ApiKey.ADD_PARTITIONS_TO_TXN and context.version >= _VERIFICATION
        ):
            return None
        limits = self.quotas.limits_of(context.principal.name, context.client_id or "", self.now())
        if limits is None:
            return None
        metered = Metered(self, connection, limits, size if api is ApiKey.PRODUCE else 0)
        if limits.request is not None:
            connection.on_sent = metered.sent
        return metered

    def admit(self, host: str) -> float:
        """Counts a new connection from an address; returns for how long to hold it off."""
        return self.quotas.admit(host, self.now())

    def mutations(self, context: Context, *, strict_since: int) -> MutationQuota:
        """Returns the quota for what a request changes in the cluster. Clients of the versions
        since `strict_since` know that a change can be refused for it; others only wait."""
        bucket: Bucket | None = None
        if self.is_on and not context.is_internal:
            limits = self.quotas.limits_of(
                context.principal.name, context.client_id or "", self.now()
            )
            bucket = None if limits is None else limits.mutation
        return MutationQuota(self, bucket, is_strict=context.version >= strict_since)


def _windows(number: object, seconds: object) -> Windows:
    assert isinstance(number, int)
    assert isinstance(seconds, int)
    return Windows(number, seconds)


class Metered:
    """One request of a client with a quota."""

    __slots__ = (
        "_began",
        "_connection",
        "_fetch_wait",
        "_limits",
        "_produced",
        "_seconds",
        "_throttling",
    )

    def __init__(
        self, throttling: Throttling, connection: Connection, limits: Limits, produced: int
    ) -> None:
        self._throttling = throttling
        self._connection = connection
        self._limits = limits
        self._produced = produced  # bytes
        self._fetch_wait = 0.0
        self._seconds = 0.0  # of the loop's time, since they were last counted
        self._began = throttling.now()

    def exempt(self) -> None:
        """Lets the request go: it comes from a node of the cluster."""
        self._limits = NO_LIMITS

    # The loop's time

    def enter(self) -> None:
        """The loop begins, or goes on, to work for this request."""
        self._began = self._throttling.now()

    def leave(self) -> None:
        """The loop turns to other work."""
        self._seconds += self._throttling.now() - self._began

    def sent(self, seconds: float) -> None:
        """Sending a response took some time."""
        request = self._limits.request
        if request is not None:
            request.carry(seconds)

    def encoded(self) -> None:
        """The response is ready. What it took to encode and send it counts with the next one."""
        self.leave()
        self.sent(self._seconds)
        self._seconds = 0.0

    # Fetches

    def fetch_bytes_max(self) -> int:
        """Returns how much a fetch may bring without exceeding the quota for it alone."""
        fetch = self._limits.fetch
        if fetch is None:
            return _BYTES_MAX
        return int(min(_BYTES_MAX, max(1.0, fetch.room(self._throttling.now()))))

    def holds_fetch(self, size: int | None = None) -> bool:
        """Returns whether a fetch must bring nothing: before it has read anything, or when its
        response would have `size` bytes, which count if it may leave."""
        fetch = self._limits.fetch
        if fetch is None:
            return False
        now, who = self._throttling.now(), self._connection
        wait = fetch.wait(now, who) if size is None else fetch.offer(size, now, who)
        self._fetch_wait = wait
        return wait > 0

    # The end

    def settle(self, message: Message | None) -> None:
        """Counts the request, and has its client wait if it was too much; None is a request without
        a response."""
        limits, quotas = self._limits, self._throttling.quotas
        now = self._throttling.now()
        wait, key = self._fetch_wait, FETCH
        limit: Meter | None = limits.fetch
        if limits.produce is not None and self._produced:
            limit = limits.produce
            wait, key = limit.take(self._produced, now), PRODUCE
            self._produced = 0
        if limits.request is not None:
            seconds, self._seconds = self._seconds, 0.0
            because_of_time = min(limits.request.take(seconds, now), quotas.request_wait_max)
            if because_of_time > wait:
                wait, key, limit = because_of_time, REQUEST, limits.request
        wait_ms = ceil(wait * 1000)
        if wait_ms > 0:
            quotas.note(key, wait, limit, now)
        told_ms: int | None = getattr(message, "throttle_time_ms", None)
        if told_ms is not None:
            # The controller may have set a longer one, for what the request changes.
            wait_ms = max(wait_ms, told_ms)
            message.throttle_time_ms = wait_ms  # type: ignore[union-attr]
        if wait_ms > 0:
            self._connection.throttle(wait_ms / 1000)


class Steps:
    """Wraps the awaitable of a handler and counts the loop's time for each step."""

    __slots__ = ("_handled", "_metered")

    def __init__(self, handled: Awaitable[Message | None], metered: Metered) -> None:
        self._handled = handled
        self._metered = metered

    def __await__(self) -> Generator[Any, Any, Message | None]:
        metered = self._metered
        steps: Any = self._handled.__await__()
        thrown: BaseException | None = None
        while True:
            metered.enter()
            try:
                waits_for = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as done:
                result: Message | None = done.value
                return result
            finally:
                metered.leave()
            try:
                yield waits_for
                thrown = None
            except BaseException as error:  # the task is cancelled
                thrown = error


class MutationQuota:
    """The quota of one request that creates or deletes topics or partitions (KIP-599)."""

    __slots__ = ("_bucket", "_is_strict", "_throttling", "_wait")

    def __init__(self, throttling: Throttling, bucket: Bucket | None, *, is_strict: bool) -> None:
        self._throttling = throttling
        self._bucket = bucket
        self._is_strict = is_strict
        self._wait = 0.0

    def take(self, partitions: int) -> None:
        """Counts partitions that are created or deleted; raises ApiError if they may not be now."""
        bucket = self._bucket
        if bucket is None:
            return
        now = self._throttling.now()
        if not self._is_strict:
            self._wait = bucket.take(partitions, now)
            return
        self._wait = bucket.wait(now)
        if self._wait > 0:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"controller_mutation_rate is exceeded; try again in {self._wait:.1f} s",
            )
        bucket.take(partitions, now)

    def wait_ms(self) -> int:
        """Returns how long the client has to wait; notes it."""
        if self._wait > 0:
            throttling = self._throttling
            throttling.quotas.note(MUTATION, self._wait, self._bucket, throttling.now())
        return ceil(self._wait * 1000)
