"""Applying the log to an image, with its transactions.

What stands between Begin and End becomes visible all at once, at End; what ends in Abort never
was. A transaction may span batches, and a controller that died in one leaves it open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.metadata.delta import Delta
from headwater.metadata.image import Image
from headwater.metadata.records import RecordType

if TYPE_CHECKING:
    from headwater.protocol import Message


@dataclass(slots=True)
class Replay:
    image: Image = field(default_factory=Image)
    pending: list[Message] | None = None  # records of the open transaction

    @property
    def in_transaction(self) -> bool:
        return self.pending is not None

    def apply(self, records: Iterable[Message], delta: Delta | None = None) -> Delta:
        """Applies records in order; what became visible through them is in the delta."""
        delta = Delta() if delta is None else delta
        for record in records:
            match record.API:
                case RecordType.BEGIN_TRANSACTION:
                    assert self.pending is None, "a transaction begins inside another"
                    self.pending = []
                case RecordType.END_TRANSACTION:
                    assert self.pending is not None, "a transaction ends that never began"
                    for held in self.pending:
                        self.image.apply(held, delta)
                    self.pending = None
                case RecordType.ABORT_TRANSACTION:
                    assert self.pending is not None, "a transaction is aborted that never began"
                    self.pending = None
                case _ if self.pending is not None:
                    self.pending.append(record)
                case _:
                    self.image.apply(record, delta)
        return delta
