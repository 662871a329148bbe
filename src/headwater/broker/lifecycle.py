"""A broker's membership in the cluster: registration, heartbeats, controlled shutdown.

A broker registers, reads the metadata until it knows of its own registration, and is unfenced by a
heartbeat. From then on heartbeats keep its session alive. Who the active controller is, and that it
changes, is the channel's business.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from enum import IntEnum

from headwater.broker.controller_channel import ControllerChannel
from headwater.broker.metadata_log import MetadataLog
from headwater.config import NodeConfig
from headwater.config.listeners import SECURITY_PROTOCOLS
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Clock, Host
from headwater.metadata.features import (
    LEVEL_CORDONED_DIRECTORIES,
    LEVEL_DIRECTORIES,
    supported_features,
)
from headwater.observability import Log as Lines
from headwater.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headwater.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from headwater.storage import LogDirs

_REGISTRATION_SECONDS = 0.02  # the first pause before the next attempt
_REGISTRATION_SECONDS_MAX = 0.5
_UNFENCING_SECONDS = 0.01  # the first pause before the next heartbeat of a broker that starts
_UNFENCING_SECONDS_MAX = 0.5
_REPORT_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0
_SHUTDOWN_SECONDS_MAX = 300.0  # Kafka's
_SHUTDOWN_PAUSE_SECONDS = 0.05
_SHUTDOWN_PAUSE_SECONDS_MAX = 0.5
# A broker that stops does not wait longer for an answer, nor for a leader of a quorum that may have
# stopped before it.
_SHUTDOWN_SECONDS_SILENT = 3.0
_SHUTDOWN_TIMEOUT_MS = 1000

_NEVER_REGISTERED = -1

# What a repetition cannot change.
_FATAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
    }
)
_REGISTER_AGAIN = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class BrokerState(IntEnum):
    """Where a broker is between its start and its end; the numbers are Kafka's."""

    STARTING = 1
    RECOVERY = 2  # registered, and fenced
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6


class Lifecycle:
    def __init__(
        self,
        config: NodeConfig,
        channel: ControllerChannel,
        metadata: MetadataLog,
        log_dirs: LogDirs,
        host: Host,
        lines: Lines,
        *,
        cluster_id: str,
    ) -> None:
        self._config = config
        self._channel = channel
        self._metadata = metadata
        self._log_dirs = log_dirs
        self._host = host
        self._lines = lines
        self._cluster_id = cluster_id
        self.incarnation_id = host.random_id()
        self._addresses: dict[str, Address] = {}
        self.broker_epoch = _NEVER_REGISTERED
        self._is_fenced = True
        self._leaving = False
        self._has_moved = False  # the addresses are not those that are registered
        self._turn = asyncio.Lock()  # a heartbeat that got lost must not arrive after the last one
        self._beat = asyncio.Event()  # set when the next heartbeat should not wait

    def state(self) -> BrokerState:
        own = self._metadata.image.brokers.get(self._config.node_id)
        if self._leaving:
            return BrokerState.PENDING_CONTROLLED_SHUTDOWN
        if own is None or own.epoch != self.broker_epoch:
            return BrokerState.STARTING
        return BrokerState.RECOVERY if own.fenced else BrokerState.RUNNING

    # Joining

    async def register(self, addresses: dict[str, Address]) -> None:
        """Registers the broker with the addresses for clients, and gets it unfenced. Raises
        ApiError, with a message for the operator, if that is refused or takes too long."""
        self._addresses = addresses
        limit_ms = self._config.value("initial.broker.registration.timeout.ms")
        assert isinstance(limit_ms, int)
        deadline = self._now() + limit_ms / 1000
        waits = _Waits(self._host.clock, self._lines)
        pause = _REGISTRATION_SECONDS
        while True:
            left_ms = int((deadline - self._now()) * 1000)
            try:
                if left_ms <= 0:
                    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, waits.reason)
                timeout_ms = min(left_ms, int(_REPORT_SECONDS * 1000))
                response = await self._ask_registration(timeout_ms)
            except ApiError as refusal:
                if refusal.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise self._refused(refusal.code, refusal.message) from None
                if self._now() >= deadline:
                    raise ApiError(
                        refusal.code,
                        f"broker {self._config.node_id} could not register within {limit_ms} ms "
                        f"(initial.broker.registration.timeout.ms): {refusal.message}",
                    ) from None
                waits.report(f"the broker is not registered: {refusal.message}")
                continue
            code = ErrorCode(response.error_code)
            if not code:
                break
            if code in _FATAL:
                raise self._refused(code, None)
            waits.report(self._why_not_registered(code))
            await asyncio.sleep(min(pause, max(0.0, left_ms / 1000)))
            pause = min(2 * pause, _REGISTRATION_SECONDS_MAX)
        self.broker_epoch = response.broker_epoch
        await self._until_unfenced(waits)

    async def _ask_registration(self, timeout_ms: int) -> BrokerRegistrationResponse:
        config = self._config
        response = await self._channel.ask(
            BrokerRegistrationRequest(
                broker_id=config.node_id,
                cluster_id=self._cluster_id,
                incarnation_id=self.incarnation_id,
                listeners=list(self._listeners()),
                features=[
                    Feature(
                        name=name,
                        min_supported_version=levels.low,
                        max_supported_version=levels.high,
                    )
                    for name, levels in supported_features().items()
                ],
                rack=config.broker_rack,
                log_dirs=sorted(d.id for d in self._log_dirs.directories if d.health.is_online),
                previous_broker_epoch=self._previous_epoch(),
            ),
            timeout_ms=timeout_ms,
        )
        assert isinstance(response, BrokerRegistrationResponse)
        return response

    def _listeners(self) -> Iterable[Listener]:
        for at in self._config.broker_listeners:
            if at.name not in self._addresses:
                continue  # it could not be opened
            found = self._config.reachable(
                at, port=self._addresses[at.name].port, host_name=self._host.network.host_name
            )
            yield Listener(
                name=found.name,
                host=found.host,
                port=found.port,
                security_protocol=SECURITY_PROTOCOLS.index(found.protocol),
            )

    def _previous_epoch(self) -> int:
        """Returns the broker epoch of the last run if it stopped cleanly in every directory, or -1;
        in a run that registers again, the epoch it had."""
        if self.broker_epoch != _NEVER_REGISTERED:
            return self.broker_epoch
        epochs = {d.broker_epoch_at_stop if d.was_clean else -1 for d in self._log_dirs.directories}
        return epochs.pop() if len(epochs) == 1 else -1

    def _why_not_registered(self, code: ErrorCode) -> str:
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return (
                f"the controller knows a live broker {self._config.node_id}: if that is an earlier "
                "run of this node, its session ends within "
                f"{self._config.broker_session_timeout_ms} ms; if it is another node, give one of "
                "the two another node.id"
            )
        return f"the controller refused the registration: {code.name}"

    def _refused(self, code: ErrorCode, detail: str | None) -> ApiError:
        """Returns the reason why this broker can never be registered as it is."""
        leader = self._metadata.leader
        there = "the active controller" if leader is None else f"controller {leader.node_id}"
        me = f"broker {self._config.node_id}"
        match code:
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                text = (
                    f"{me} belongs to cluster {self._cluster_id}, and {there} to another one; "
                    "check controller.quorum.voters and controller.quorum.bootstrap.servers, or "
                    "use a directory that was formatted for that cluster"
                )
            case ErrorCode.UNSUPPORTED_VERSION:
                levels = ", ".join(
                    f"{name} {level}" for name, level in self._metadata.image.features.items()
                )
                text = (
                    f"{me} does not support the feature levels of {there} ({levels}), or speaks no "
                    "common version with it; upgrade this node, or downgrade the features with "
                    "`kafka-features downgrade`"
                )
            case ErrorCode.INVALID_REGISTRATION:
                directories = ", ".join(d.path for d in self._log_dirs.directories)
                text = (
                    f"{there} does not accept the directories of {me} ({directories}): another "
                    "broker has one with the same directory.id in meta.properties, which happens "
                    "when a directory is copied; format a new directory for this node"
                )
            case _:
                text = f"{there} refused {me}: {code.name}"
        return ApiError(code, f"{text}: {detail}" if detail else text)

    async def _until_unfenced(self, waits: _Waits) -> None:
        """Sends heartbeats until the broker is unfenced and this node knows it, so that a client
        does not find a cluster without it."""
        pause = _UNFENCING_SECONDS
        while True:
            try:
                response = await self._heartbeat(timeout_ms=int(_REPORT_SECONDS * 1000))
            except ApiError as refusal:
                waits.report(f"the broker is still fenced: {refusal.message}")
                continue
            if ErrorCode(response.error_code) in _REGISTER_AGAIN:
                await self._register_again(ErrorCode(response.error_code))
            own = self._metadata.image.brokers.get(self._config.node_id)
            if not response.error_code and not response.is_fenced:
                if own is not None and own.epoch == self.broker_epoch and not own.fenced:
                    self._is_fenced = False
                    return
                waits.report("the broker is unfenced, but the metadata here does not say so yet")
            else:
                waits.report("the broker is still fenced: its metadata is behind the controller")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _UNFENCING_SECONDS_MAX)

    # Staying

    async def run(self) -> None:
        """Sends heartbeats until it is cancelled, or the broker leaves: one more would unfence
        it."""
        interval = self._config.broker_heartbeat_interval_ms / 1000
        timeout_ms = max(1, self._config.broker_session_timeout_ms // 2)
        is_answered = True
        while True:
            if is_answered:  # otherwise at once: the session may be about to expire
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await self._beat.wait()
            if self._leaving:
                return
            self._beat.clear()
            try:
                async with self._turn:
                    response = await self._heartbeat(timeout_ms=timeout_ms)
            except ApiError as refusal:
                if is_answered:
                    self._lines.warn(f"heartbeats are not answered: {refusal.message}")
                is_answered = False
                continue
            if not is_answered:
                self._lines.info("heartbeats are answered again")
            is_answered = True
            code = ErrorCode(response.error_code)
            if code in _REGISTER_AGAIN:
                await self._register_again(code)
            elif code:
                self._lines.warn(f"the controller refused a heartbeat: {code.name}")
            else:
                self._note_fenced(response.is_fenced)
                if self._is_registered_without_directories():
                    await self._amend("directories", because="metadata.version was raised")
                if self._has_moved:
                    self._has_moved = False  # first: they may change again meanwhile
                    if not await self._amend("listeners", because="listeners were changed"):
                        self._has_moved = True

    def reconfigure(self, config: NodeConfig) -> None:
        self._config = config

    def move(self, addresses: dict[str, Address]) -> None:
        """Registers other addresses for clients, soon."""
        self._addresses = addresses
        self._has_moved = True
        self.beat_now()

    def beat_now(self) -> None:
        """Sends the next heartbeat at once, for instance to report a failed directory."""
        self._beat.set()

    def _note_fenced(self, is_fenced: bool) -> None:
        if is_fenced is self._is_fenced or self._leaving:
            return
        self._is_fenced = is_fenced
        if is_fenced:
            self._lines.warn("the controller has fenced this broker")
            self._beat.set()
        else:
            self._lines.info("the controller has unfenced this broker")

    async def _register_again(self, code: ErrorCode) -> None:
        """Registers again, in the same incarnation: the broker was unregistered, or the controller
        took it for dead and knows another one with its id."""
        try:
            response = await self._ask_registration(self._config.broker_session_timeout_ms)
        except ApiError as refusal:
            self._lines.warn(f"this broker cannot register again: {refusal.message}")
            return
        if response.error_code:
            reason = self._why_not_registered(ErrorCode(response.error_code))
            self._lines.warn(f"this broker cannot register again: {reason}")
            return
        self.broker_epoch = response.broker_epoch
        self._is_fenced = True
        self._beat.set()
        self._lines.warn(f"registered again in epoch {self.broker_epoch} after {code.name}")

    def _is_registered_without_directories(self) -> bool:
        """Returns whether this broker registered at a level of metadata.version that knows no
        directories, and the level has been raised since."""
        image = self._metadata.image
        own = image.brokers.get(self._config.node_id)
        return (
            image.metadata_version >= LEVEL_DIRECTORIES
            and own is not None
            and own.epoch == self.broker_epoch
            and not own.log_dirs
        )

    async def _amend(self, what: str, *, because: str) -> bool:
        """Registers again, in the same incarnation and epoch; returns whether that succeeded. A
        failure is repeated after the next heartbeat."""
        try:
            response = await self._ask_registration(self._config.broker_session_timeout_ms)
        except ApiError as refusal:
            self._lines.warn(f"the {what} cannot be registered: {refusal.message}")
            return False
        if response.error_code:
            name = ErrorCode(response.error_code).name
            self._lines.warn(f"the {what} cannot be registered: {name}")
            return False
        self._lines.info(f"registered the {what}: {because}")
        return True

    async def _heartbeat(
        self, *, timeout_ms: int, want_shut_down: bool = False
    ) -> BrokerHeartbeatResponse:
        response = await self._channel.ask(
            BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._metadata.applied - 1,
                want_fence=False,
                want_shut_down=want_shut_down,
                offline_log_dirs=sorted(d.id for d in self._log_dirs.offline()),
                cordoned_log_dirs=self._cordoned(),
            ),
            timeout_ms=timeout_ms,
        )
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    def _cordoned(self) -> list[bytes] | None:
        """Returns the directories that get no new replicas, or None below the level that knows
        them: older versions of the heartbeat cannot carry them."""
        if self._metadata.image.metadata_version < LEVEL_CORDONED_DIRECTORIES:
            return None
        known = self._log_dirs
        return sorted(d.id for d in known.directories if known.is_cordoned(d))

    # Leaving

    async def shut_down(self) -> None:
        """Requests a controlled shutdown: leadership moves to other brokers first, where there are
        any. Gives up after a while; then the controller notices by the missing heartbeats. A second
        call does nothing."""
        if self._leaving:
            return
        self._leaving = True
        self._beat.set()
        if self._config.value("controlled.shutdown.enable"):
            async with self._turn:
                await self._shut_down()

    async def _shut_down(self) -> None:
        deadline = self._now() + _SHUTDOWN_SECONDS_MAX
        answered = self._now()
        pause = _SHUTDOWN_PAUSE_SECONDS
        why = "it did not let this broker go in time"
        while self._now() < deadline:
            try:
                response = await self._heartbeat(
                    timeout_ms=_SHUTDOWN_TIMEOUT_MS, want_shut_down=True
                )
            except ApiError as refusal:
                why = refusal.message or refusal.code.name
                if self._metadata.leader is None or self._is_silent(since=answered):
                    break
                continue
            answered = self._now()
            if response.should_shut_down:
                return
            if response.error_code:
                why = ErrorCode(response.error_code).name
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SHUTDOWN_PAUSE_SECONDS_MAX)
        self._lines.warn(f"the controller did not confirm the shutdown ({why}); stopping anyway")

    def _is_silent(self, *, since: float) -> bool:
        return self._now() - since >= _SHUTDOWN_SECONDS_SILENT

    def _now(self) -> float:
        return self._host.clock.monotonic()


class _Waits:
    """Logs what a starting broker waits for: after a moment, when it changes, and every ten
    seconds."""

    def __init__(self, clock: Clock, lines: Lines) -> None:
        self.reason = "no controller answered"
        self._clock = clock
        self._lines = lines
        self._since = clock.monotonic()
        self._said_at = self._since - _REPORT_SECONDS
        self._said = ""

    def report(self, reason: str) -> None:
        self.reason = reason
        now = self._clock.monotonic()
        if now - self._since < _PATIENCE_SECONDS:
            return
        if reason != self._said or now - self._said_at >= _REPORT_SECONDS:
            self._said, self._said_at = reason, now
            self._lines.info(f"not ready yet: {reason}")
