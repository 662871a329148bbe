"""Finding where to read: the group's offsets, the reset policy, and the check after a new leader.

`drive` starts a question for each partition that waits for one; its answer moves the partition on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.config_values import duration_ms
from headwater.client.consumer.commits import Commits
from headwater.client.consumer.partition import PartitionState, Phase
from headwater.client.consumer.tasks import Tasks
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
    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        partitions: dict[TopicPartition, PartitionState],
        tasks: Tasks,
        router: Router,
        commits: Commits | None,
        *,
        changed: Callable[[], None],
        look_again: Callable[[float], None],
    ) -> None:
        # What keeps a partition from being read, until the user seeks or it is taken away.
        self.problems: dict[TopicPartition, ClientError] = {}
        self._config = config
        self._cluster = cluster
        self._partitions = partitions
        self._tasks = tasks
        self._router = router
        self._read_committed = config.isolation_level == "read_committed"
        self._commits = commits
        self._changed = changed
        self._look_again = look_again
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def drive(self) -> None:
        now = self._cluster.now()
        committed: list[PartitionState] = []
        resets: list[PartitionState] = []
        checks: list[PartitionState] = []
        for state in self._partitions.values():
            if state.is_busy or state.retry_at > now:
                continue
            if state.phase is Phase.COMMITTED:
                committed.append(state)
            elif state.phase is Phase.RESET:
                resets.append(state)
            elif state.phase is Phase.VALIDATING or self._has_new_leader(state):
                checks.append(state)
        if committed:
            if self._commits is None:
                for state in committed:
                    self.reset(state)
                resets += [state for state in committed if state.phase is Phase.RESET]
            else:
                self._begin(committed)
                self._tasks.spawn(self._fetch_committed(self._commits, committed))
        if resets:
            self._begin(resets)
            self._tasks.spawn(self._find_by_time(resets))
        if checks:
            self._begin(checks)
            self._tasks.spawn(self._validate(checks))

    def _has_new_leader(self, state: PartitionState) -> bool:
        if state.phase is not Phase.READING:
            return False
        partition = self._cluster.metadata.partition(state.tp)
        return partition is not None and state.on_leader_epoch(partition.leader_epoch)

    @staticmethod
    def _begin(states: list[PartitionState]) -> None:
        for state in states:
            state.is_busy = True

    def solved(self, state: PartitionState) -> None:
        """The user has said where to go on."""
        self.problems.pop(state.tp, None)

    def removed(self, tp: TopicPartition) -> None:
        self.problems.pop(tp, None)

    # The group's offsets

    async def _fetch_committed(self, commits: Commits, states: list[PartitionState]) -> None:
        changes = [state.changes for state in states]
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        try:
            found = await commits.fetch([state.tp for state in states], deadline=deadline)
        except RetriableError as error:
            _log.debug("committed offsets: %s", error)
            for state, before in zip(states, changes, strict=True):
                self._try_later(state, before)
            return
        except ClientError as error:
            for state, before in zip(states, changes, strict=True):
                if self._is_current(state, before):
                    self._give_up(state, error)
            return
        for state, before in zip(states, changes, strict=True):
            if not self._is_current(state, before):
                continue
            stored = found[state.tp]
            if stored is None:
                self.reset(state)
            else:
                state.seek(stored.offset, stored.leader_epoch)
                state.committed = stored.offset
        self._changed()

    # The reset policy

    def reset(self, state: PartitionState) -> None:
        """Nothing is known: as auto_offset_reset says."""
        timestamp = self._reset_timestamp()
        if timestamp is not None:
            state.reset(timestamp)
            return
        group = self._config.group_id
        where = f"group {group} has no offset for it" if group else "it was given no offset"
        self._give_up(
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
        asked = {state.tp: (state, state.changes, state.reset_to) for state in states}
        wanted = {tp: timestamp for tp, (_, _, timestamp) in asked.items()}
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        answers = await list_offsets_once(
            self._router, wanted, read_committed=self._read_committed, deadline=deadline
        )
        for tp, (state, before, timestamp) in asked.items():
            if not self._is_current(state, before):
                continue
            answer = answers[tp]
            if isinstance(answer, OffsetAndTimestamp):
                if answer.offset >= 0:
                    state.seek(answer.offset, answer.leader_epoch)
                elif timestamp >= 0:
                    state.reset(OffsetSpec.LATEST)  # nothing is as young as that
                else:
                    self._try_later(state, before)
            else:
                self._not_found(state, before, answer)
        self._changed()

    def _not_found(self, state: PartitionState, before: int, error: ClientError) -> None:
        if isinstance(error, RetriableError):
            self._try_later(state, before)
        else:
            self._give_up(state, error)

    # Positions that are not in the log

    def out_of_range(self, state: PartitionState) -> None:
        timestamp = self._reset_timestamp()
        offset = state.fetch_offset
        if timestamp is not None:
            _log.info(
                "%s: offset %s is not in the log; auto_offset_reset=%s",
                state.tp,
                offset,
                self._config.auto_offset_reset,
            )
            state.reset(timestamp)
            self._changed()
        elif not state.is_busy:
            state.is_busy = True
            self._tasks.spawn(self._tell_range(state, offset))

    async def _tell_range(self, state: PartitionState, offset: int) -> None:
        before = state.changes
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        ends = [
            (
                await list_offsets_once(
                    self._router,
                    {state.tp: spec},
                    read_committed=self._read_committed,
                    deadline=deadline,
                )
            )[state.tp]
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]
        if not self._is_current(state, before):
            return
        first, end = (each.offset if isinstance(each, OffsetAndTimestamp) else "?" for each in ends)
        self._give_up(
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

    # New leaders

    async def _validate(self, states: list[PartitionState]) -> None:
        asked = {state.tp: (state, state.changes) for state in states}
        wanted = {state.tp: state.epoch for state in states}
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        answers = await epoch_ends_once(self._router, wanted, deadline=deadline)
        for tp, (state, before) in asked.items():
            if not self._is_current(state, before):
                continue
            answer = answers[tp]
            if isinstance(answer, UnsupportedVersion):
                state.phase = Phase.READING  # the broker is older than the check
                state.is_busy = False
            elif isinstance(answer, EpochEnd):
                parted = state.on_validated(answer.epoch, answer.end_offset)
                if parted is not None:
                    self._truncated(state, parted)
            else:
                self._not_found(state, before, answer)
        self._changed()

    def _truncated(self, state: PartitionState, parted: int) -> None:
        where = "no record before it is" if parted == NO_OFFSET else f"from {parted} on it differs"
        text = f"{state.tp}: the log was cut before position {state.position}; {where}"
        if self._reset_timestamp() is None:
            error = LogTruncated(
                f'{text}. auto_offset_reset is "none", so seek',
                topic=state.tp.topic,
                partition=state.tp.partition,
                offset=state.position,
                divergent_offset=parted,
            )
            self._give_up(state, error)
            return
        _log.warning("%s; reading on from there", text)
        if parted == NO_OFFSET:
            self.reset(state)
        else:
            state.seek(parted)

    # Later, or never

    def _is_current(self, state: PartitionState, before: int) -> bool:
        """Whether the partition still waits for the answer to this question."""
        return self._partitions.get(state.tp) is state and state.changes == before

    def _try_later(self, state: PartitionState, before: int) -> None:
        if not self._is_current(state, before):
            return
        state.is_busy = False
        state.failures += 1
        wait = self._backoff.seconds(state.failures, self._cluster.host.random)
        state.retry_at = self._cluster.now() + wait
        self._look_again(wait)

    def _give_up(self, state: PartitionState, error: ClientError) -> None:
        state.fail()
        self.problems[state.tp] = error
        self._changed()
