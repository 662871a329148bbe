"""Finds the position of each partition: committed offsets, the reset policy, new leaders.

`send_requests` starts a request for each partition that needs one; its response moves the
partition on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.client.backoff import Backoff
from headwater.client.config import ConsumerConfig
from headwater.client.config_values import duration_ms
from headwater.client.consumer.commits import Commits
from headwater.client.consumer.subscription import PartitionState, Phase, Spawn
from headwater.client.errors import (
    ClientError,
    LogTruncated,
    NoOffsetForPartition,
    OffsetOutOfRange,
    RetriableError,
    UnsupportedVersion,
)
from headwater.client.requests.list_offsets import (
    OffsetAndTimestamp,
    OffsetSpec,
    list_offsets_once,
)
from headwater.client.requests.offset_for_leader_epoch import EpochEnd, epoch_ends_once
from headwater.client.requests.routing import Router
from headwater.errors import ErrorCode
from headwater.model import NO_OFFSET, TopicPartition

_log = logging.getLogger("headwater.client")


class Positions:
    """The requests about positions, and the errors that keep partitions from being read."""

    def __init__(
        self,
        config: ConsumerConfig,
        router: Router,
        partitions: dict[TopicPartition, PartitionState],
        spawn: Spawn,
        commits: Commits | None,
        *,
        on_changed: Callable[[], None],
        retry_after: Callable[[float], None],
    ) -> None:
        # Each stays until the user seeks or the partition is removed.
        self.errors: dict[TopicPartition, ClientError] = {}
        self._config = config
        self._router = router
        self._cluster = router.cluster
        self._partitions = partitions
        self._spawn = spawn
        self._commits = commits
        self._on_changed = on_changed
        self._retry_after = retry_after
        self._read_committed = config.isolation_level == "read_committed"
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def send_requests(self) -> None:
        """Starts the requests that partitions need now."""
        now = self._cluster.now()
        committed: list[PartitionState] = []
        resets: list[PartitionState] = []
        validations: list[PartitionState] = []
        for state in self._partitions.values():
            if state.is_busy or state.retry_at > now:
                continue
            if state.phase is Phase.COMMITTED:
                committed.append(state)
            elif state.phase is Phase.RESET:
                resets.append(state)
            elif state.phase is Phase.VALIDATING or self._has_new_leader(state):
                validations.append(state)
        if committed:
            if self._commits is None:
                for state in committed:
                    self.reset(state)
                resets += [state for state in committed if state.phase is Phase.RESET]
            else:
                self._mark_busy(committed)
                self._spawn(self._fetch_committed(self._commits, committed))
        if resets:
            self._mark_busy(resets)
            self._spawn(self._find_by_time(resets))
        if validations:
            self._mark_busy(validations)
            self._spawn(self._validate(validations))

    def _has_new_leader(self, state: PartitionState) -> bool:
        if state.phase is not Phase.READING:
            return False
        partition = self._cluster.metadata.partition(state.tp)
        return partition is not None and state.on_leader_epoch(partition.leader_epoch)

    @staticmethod
    def _mark_busy(states: list[PartitionState]) -> None:
        for state in states:
            state.is_busy = True

    def clear_error(self, tp: TopicPartition) -> None:
        """Forgets the error of a partition, which has a new position or was removed."""
        self.errors.pop(tp, None)

    # Committed offsets

    async def _fetch_committed(self, commits: Commits, states: list[PartitionState]) -> None:
        versions = {state: state.position_version for state in states}
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        try:
            found = await commits.fetch([state.tp for state in states], deadline=deadline)
        except RetriableError as error:
            _log.debug("cannot fetch committed offsets: %s", error)
            for state, version in versions.items():
                self._back_off(state, version)
            return
        except ClientError as error:
            for state, version in versions.items():
                if self._is_current(state, version):
                    self._fail(state, error)
            return
        for state, version in versions.items():
            if not self._is_current(state, version):
                continue
            stored = found[state.tp]
            if stored is None:
                self.reset(state)
            else:
                state.seek(stored.offset, stored.leader_epoch)
                state.committed = stored.offset
        self._on_changed()

    # The reset policy

    def reset(self, state: PartitionState) -> None:
        """Applies auto_offset_reset to a partition without a valid position."""
        timestamp = self._reset_timestamp()
        if timestamp is not None:
            state.reset(timestamp)
            return
        group = self._config.group_id
        where = f"group {group} has no committed offset for it" if group else "it has no position"
        self._fail(
            state,
            NoOffsetForPartition(
                f'{state.tp}: {where}, and auto_offset_reset is "none"; seek, or set the policy',
                topic=state.tp.topic,
                partition=state.tp.partition,
            ),
        )

    def _reset_timestamp(self) -> int | None:
        policy = self._config.auto_offset_reset
        if policy == "none":
            return None
        if policy == "earliest":
            return OffsetSpec.EARLIEST
        if policy == "latest":
            return OffsetSpec.LATEST
        _, _, duration = policy.partition(":")
        return max(0, self._cluster.host.clock.wall_ms() - duration_ms(duration))

    async def _find_by_time(self, states: list[PartitionState]) -> None:
        asked = {state.tp: (state, state.position_version, state.reset_to) for state in states}
        wanted = {tp: timestamp for tp, (_, _, timestamp) in asked.items()}
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        results = await list_offsets_once(
            self._router, wanted, read_committed=self._read_committed, deadline=deadline
        )
        for tp, (state, version, timestamp) in asked.items():
            if not self._is_current(state, version):
                continue
            result = results[tp]
            if isinstance(result, OffsetAndTimestamp):
                if result.offset >= 0:
                    state.seek(result.offset, result.leader_epoch)
                elif timestamp >= 0:
                    state.reset(OffsetSpec.LATEST)  # no record is that recent
                else:
                    self._back_off(state, version)
            else:
                self._on_error(state, version, result)
        self._on_changed()

    def _on_error(self, state: PartitionState, version: int, error: ClientError) -> None:
        if isinstance(error, RetriableError):
            self._back_off(state, version)
        else:
            self._fail(state, error)

    # Positions that are not in the log

    def on_out_of_range(self, state: PartitionState) -> None:
        """Applies auto_offset_reset to a partition whose position is not in the log."""
        timestamp = self._reset_timestamp()
        offset = state.fetch_offset
        if timestamp is not None:
            _log.info(
                "%s: offset %s is not in the log; resetting by auto_offset_reset=%s",
                state.tp,
                offset,
                self._config.auto_offset_reset,
            )
            state.reset(timestamp)
            self._on_changed()
        elif not state.is_busy:
            state.is_busy = True
            self._spawn(self._fail_out_of_range(state, offset))

    async def _fail_out_of_range(self, state: PartitionState, offset: int) -> None:
        version = state.position_version
        first = await self._edge(state.tp, OffsetSpec.EARLIEST)
        end = await self._edge(state.tp, OffsetSpec.LATEST)
        if not self._is_current(state, version):
            return
        self._fail(
            state,
            OffsetOutOfRange(
                f"{state.tp}: offset {offset} is not in the log, which has {first} up to and not "
                f'including {end}; auto_offset_reset is "none", so seek',
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
                topic=state.tp.topic,
                partition=state.tp.partition,
                offset=offset,
            ),
        )

    async def _edge(self, tp: TopicPartition, spec: OffsetSpec) -> int | str:
        """Returns the first or the last offset of a log; "?" if it cannot be found out."""
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        results = await list_offsets_once(
            self._router, {tp: spec}, read_committed=self._read_committed, deadline=deadline
        )
        result = results[tp]
        return result.offset if isinstance(result, OffsetAndTimestamp) else "?"

    # New leaders

    async def _validate(self, states: list[PartitionState]) -> None:
        asked = {state.tp: (state, state.position_version) for state in states}
        epochs = {state.tp: state.epoch for state in states}
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        results = await epoch_ends_once(self._router, epochs, deadline=deadline)
        for tp, (state, version) in asked.items():
            if not self._is_current(state, version):
                continue
            result = results[tp]
            if isinstance(result, UnsupportedVersion):
                state.skip_validation()
            elif isinstance(result, EpochEnd):
                divergent_offset = state.on_validated(result.epoch, result.end_offset)
                if divergent_offset is not None:
                    self._on_truncated(state, divergent_offset)
            else:
                self._on_error(state, version, result)
        self._on_changed()

    def _on_truncated(self, state: PartitionState, divergent_offset: int) -> None:
        position = state.next_offset
        if divergent_offset == NO_OFFSET:
            text = f"{state.tp}: the log was truncated before position {position}"
        else:
            text = (
                f"{state.tp}: the log was truncated before position {position}, and differs from "
                f"offset {divergent_offset} on"
            )
        if self._reset_timestamp() is None:
            error = LogTruncated(
                f'{text}. auto_offset_reset is "none", so seek',
                topic=state.tp.topic,
                partition=state.tp.partition,
                offset=position,
                divergent_offset=divergent_offset,
            )
            self._fail(state, error)
        elif divergent_offset == NO_OFFSET:
            _log.warning("%s; resetting by auto_offset_reset", text)
            self.reset(state)
        else:
            _log.warning("%s; continuing there", text)
            state.seek(divergent_offset)

    # Outcomes

    def _is_current(self, state: PartitionState, version: int) -> bool:
        """Returns whether the partition still waits for the response to this request."""
        return self._partitions.get(state.tp) is state and state.position_version == version

    def _back_off(self, state: PartitionState, version: int) -> None:
        if not self._is_current(state, version):
            return
        state.is_busy = False
        wait = state.back_off(self._cluster.now(), self._backoff, self._cluster.host.random)
        self._retry_after(wait)

    def _fail(self, state: PartitionState, error: ClientError) -> None:
        state.fail()
        self.errors[state.tp] = error
        self._on_changed()
