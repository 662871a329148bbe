"""The settings of the transaction coordinator, taken from a node's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from headwater.config.node import NodeConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits and intervals, with Kafka's defaults."""

    # The finalized level of the feature `transaction.version`: which records are written, and how
    # the coordinator ends transactions that no client ends. Clients are served by the versions of
    # their requests.
    transaction_version: int = 2
    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    # How often transactions that have timed out are looked for, and ids that have expired.
    timeout_check_interval_ms: int = 10_000
    expiration_check_interval_ms: int = 60 * 60 * 1000
    two_phase_commit: bool = False

    @classmethod
    def of(cls, config: NodeConfig, *, transaction_version: int) -> TransactionSettings:
        def number(key: str) -> int:
            return cast(int, config.value(key))

        return cls(
            transaction_version=transaction_version,
            timeout_ms_max=number("transaction.max.timeout.ms"),
            id_expiration_ms=number("transactional.id.expiration.ms"),
            timeout_check_interval_ms=number(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ),
            expiration_check_interval_ms=number(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            two_phase_commit=cast(bool, config.value("transaction.two.phase.commit.enable")),
        )
