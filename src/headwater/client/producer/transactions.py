"""The interface of transactions. They are not supported yet, and each call says so."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import NoReturn, Self

from headwater.client.errors import UnsupportedVersion
from headwater.model import TopicPartition


def not_there_yet() -> NoReturn:
    raise UnsupportedVersion(
        "this client does not support transactions yet: enable_idempotence writes each record once "
        "and in order, but not atomically across partitions"
    )


class Transaction:
    """`async with producer.transaction():` commits at the end, aborts if the block raises."""

    async def __aenter__(self) -> Self:
        not_there_yet()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        not_there_yet()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        not_there_yet()
