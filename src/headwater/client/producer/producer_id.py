"""Obtains the producer's id: asks any broker, and retries until one grants or refuses it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from headwater.client.cluster import RETRIED, Cluster
from headwater.client.config import ProducerConfig
from headwater.client.errors import (
    ClientError,
    FatalError,
    RetriableError,
    error_for,
)
from headwater.errors import ErrorCode
from headwater.io.tasks import background_task
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest

_WITHOUT = "; a producer with enable_idempotence=False needs no id, but may write a record twice"
_RETRIED = RETRIED | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CONCURRENT_TRANSACTIONS}


class ProducerIdKeeper:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        granted: Callable[[int, int], None],
        refused: Callable[[ClientError], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._granted = granted
        self._refused = refused
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Asks once. A refusal is raised; a transient error is left to `want`."""
        with contextlib.suppress(RetriableError):
            await self._ask()

    def want(self) -> None:
        """Asks in the background, unless a request is already running."""
        if self._task is None and not self._cluster.is_closed:
            self._task = background_task(self._keep_asking())

    async def _keep_asking(self) -> None:
        try:
            while not self._cluster.is_closed:
                try:
                    await self._ask()
                    return
                except RetriableError:
                    continue  # `ask` has waited between its attempts
        except ClientError as error:
            self._refused(error)
        finally:
            self._task = None

    async def _ask(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=self._config.transaction_timeout_ms
        )
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        try:
            answer: Any = await self._cluster.ask(
                request, code_of=_code, deadline=deadline, retry=_RETRIED
            )
        except FatalError as error:
            raise _explained(error) from None
        if answer.error_code:
            raise _explained(error_for(answer.error_code, "a producer id"))
        self._granted(answer.producer_id, answer.producer_epoch)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))


def _explained(error: ClientError) -> ClientError:
    return type(error)(f"{error}{_WITHOUT}", code=error.code)


def _code(answer: Any) -> int:
    code: int = answer.error_code
    return code
