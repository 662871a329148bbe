"""The rows of a micro-batch with few records, which the driver writes itself.

A shuffle to one writer for each partition and a second pass through workers of Python take longer
than all else that is done for a few records. So their rows come to the driver, which owns the
transaction. What a batch has read is known before it runs; how much comes of it is not: tasks pass
on no more than the driver has room for, and a batch of which that is not all is written the other
way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from headwater.spark.offsets import Offsets, waiting_count
from headwater.spark.sink import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RECORDS_MAX = 1000  # that a batch has read
_ROWS_MAX = 1000  # of a task
_ROW_BYTES_MAX = 8 * 1024
_BYTES_MAX = 32 * 1024 * 1024  # of all tasks, if all their rows are as large as they may be
_TASKS_MAX = 32
_PAUSE_MAX = 64

# Of a row, in its partition; the bits above are the number of the partition.
_NUMBER = f"(monotonically_increasing_id() & {(1 << 33) - 1})"


@dataclass(slots=True)
class SmallBatches:
    """Tells which micro-batches of a query are small."""

    records_max: int = RECORDS_MAX
    _pause: int = 0  # batches that are not tried
    _misses: int = 0  # in a row

    def is_small(self, start: Offsets | None, end: Offsets | None) -> bool:
        """Whether few records were read between two offsets; None: not known for all sources."""
        if start is None or end is None or waiting_count(start, end) > self.records_max:
            return False
        self._pause = max(0, self._pause - 1)
        return not self._pause

    def found(self, *, fits: bool) -> None:
        """Notes whether a batch that seemed small had few rows. A batch that does not fit is
        evaluated twice, so after each miss the next attempt comes later."""
        self._misses = 0 if fits else self._misses + 1
        self._pause = 0 if fits else min(_PAUSE_MAX, 2**self._misses)


def few_rows(frame: DataFrame, columns: Sequence[str]) -> list[pa.RecordBatch] | None:
    """Returns the rows of a frame with these columns, as far as they are of records; None if there
    are too many rows, or if one is too large. The whole frame is evaluated in any case, so that its
    state is complete."""
    import pyarrow as pa

    if max(Counter(name.lower() for name in columns).values()) > 1:
        return None  # the name would be ambiguous in SQL
    tasks = _tasks_of(frame)
    if tasks is None or tasks > _TASKS_MAX:
        return None
    row_bytes_max = min(_ROW_BYTES_MAX, _BYTES_MAX // (_ROWS_MAX * max(1, tasks)))
    wanted = [name for name in columns if name in COLUMNS]
    row = f"struct({', '.join(f'`{name}`' for name in wanted)})"
    size = f"octet_length(cast({row} as string))"
    cut = frame.where(f"{_NUMBER} <= {_ROWS_MAX}").selectExpr(
        # A list, which is empty for a row that is too large: columns may not be nullable.
        f"slice(array({row}), 1, if({size} > {row_bytes_max}, 0, 1)) as rows",
        f"{_NUMBER} as number",
    )
    found = cut.toArrow()
    rows = [chunk.flatten() for chunk in found["rows"].chunks]
    if sum(map(len, rows)) < found.num_rows or _ROWS_MAX in found["number"].to_pylist():
        return None
    return [pa.RecordBatch.from_struct_array(each) for each in rows]


def _tasks_of(frame: DataFrame) -> int | None:
    """Returns how many tasks the rows come from; None if only a run of stages would tell."""
    execution = frame._jdf.queryExecution()
    try:
        # Of a micro-batch as it is. This is much quicker than to plan what was made of it.
        return int(execution.logical().rdd().getNumPartitions())
    except Py4JError:
        if "Exchange" in execution.executedPlan().toString():
            return None  # with adaptive execution, its stages run to find their number
        return int(execution.toRdd().getNumPartitions())
