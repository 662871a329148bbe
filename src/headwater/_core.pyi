"""The Rust core: pure functions over bytes, for what is done to every record.

No files, no threads, no policy. Whatever takes longer than a batch releases the GIL. All
functions take any contiguous buffer (bytes, bytearray, memoryview, mmap). The plain Python twin
in `tests/reference/` is the judge of every function here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NoReturn, Protocol, final

from typing_extensions import Buffer, TypeVar

_K = TypeVar("_K", default=Any)
_V = TypeVar("_V", default=Any)

# Codec numbers are those of a batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.

VERSION: str  # of the package, from rust/Cargo.toml

class CorruptBatch(ValueError):
    """Bytes that are not a record batch. `args` is (reason, position).

    The reason is one of a fixed set: "truncated", "length", "magic N", "crc", "codec N",
    "record count", "offset deltas", "record length", "record cut short", "varint too long",
    "key length", "value length", "header count", "header key length", "header value length",
    "trailing bytes", or one that begins with the codec: "gzip data", "snappy data", "lz4 data",
    "lz4 linked blocks", "lz4 trailing bytes", "zstd data", "zstd window". Inside compressed data
    the position is where the data starts."""

    reason: str
    position: int

class OutputTooLarge(CorruptBatch):
    """Decompression would pass its bound; found before the memory is taken. The reason is
    "output too large"."""

@final
class Batch:
    """The header of one record batch, and what a deep look found inside."""

    position: int  # where it starts in the buffer that was looked at
    size: int  # whole length in bytes, header included
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    codec: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    last_offset: int  # base_offset + last_offset_delta
    is_transactional: bool
    is_control: bool
    is_log_append_time: bool
    has_delete_horizon: bool
    # Set by `validate` only:
    found_max_timestamp: int  # the largest timestamp of the records themselves; -1 if none
    found_max_timestamp_delta: int  # offset delta of the first record that has it; -1 if none
    keyless: tuple[int, ...]  # indexes of records without a key, if asked for; at most 100
    out_of_time: tuple[int, ...]  # indexes of records outside the time bounds; at most 100

def validate(
    data: Buffer,
    *,
    position: int = 0,
    timestamp_min: int = -(2**63),
    timestamp_max: int = 2**63 - 1,
    keys_required: bool = False,
    output_bytes_max: int = 0,
) -> Batch:
    """Checks one whole batch at `position` in one pass: length, magic, CRC-32C, attributes,
    record count, every record's varints, offset deltas 0,1,2..., header bounds; decompresses if
    needed, never past `output_bytes_max` (0: the larger of 64 MiB and 100 times the compressed
    size). Raises CorruptBatch with the reason and the byte position."""

def scan(
    data: Buffer, *, position: int = 0, check_crc: bool = True, batches_max: int = 0
) -> tuple[list[Batch], int, str | None]:
    """The headers of consecutive batches from `position`; how far whole batches reach; and why it
    stopped there: None at the end of data, "truncated" when the last batch is cut short,
    otherwise what is wrong (bad CRC, bad length, bad magic)."""

def restamp(
    data: Buffer,
    *,
    position: int = 0,
    base_offset: int,
    leader_epoch: int,
    log_append_time: int | None = None,
    max_timestamp: int | None = None,
) -> None:
    """Writes base offset and leader epoch into the batch header, in place (the buffer must be
    writable: TypeError if not). With `log_append_time`, sets the timestamp type and the max
    timestamp too and computes a new CRC; `max_timestamp` alone corrects that field, takes a
    LogAppendTime bit away, and corrects the CRC."""

def encode(
    records: Sequence[
        tuple[Buffer | None, Buffer | None, Sequence[tuple[str, Buffer | None]], int]
    ],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    offset_deltas: Sequence[int] | None = None,
) -> bytes:
    """A batch of (key, value, headers, timestamp in ms) records. `level` is Kafka's for the codec:
    gzip -1 to 9, lz4 1 to 17 (9 is the fast compressor), zstd -131072 to 22. ValueError for no
    records, a bad codec or level, or offset deltas that do not increase."""

@final
class Record:
    """One record, immutable and hashable. Header keys that are no UTF-8 have U+FFFD in them."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

def decode(
    data: Buffer,
    *,
    position: int = 0,
    from_offset: int = 0,
    output_bytes_max: int = 0,
    check_crc: bool = True,
) -> list[Record]:
    """Every record of every whole batch in the buffer at or after `from_offset`. Control batches
    are included: a reader that does not want them looks at `scan`. A cut last batch is ignored."""

@final
class ArrowRecords:
    """Columns that pyarrow.record_batch() takes without a copy, as often as it likes: offset
    int64, partition int32, timestamp timestamp[us, UTC], key binary, value binary, headers
    list<element: struct<key: string, value: binary>>: the types of a Spark data source."""

    next_offset: int  # where to read on: past the last whole batch, also past what was left out

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> Any: ...
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

def decode_arrow(
    data: Buffer,
    *,
    partition: int = 0,
    from_offset: int = 0,
    to_offset: int = 2**63 - 1,
    output_bytes_max: int = 0,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
) -> ArrowRecords:
    """The same as columns, from `from_offset` up to but not including `to_offset`. Control batches
    and transactional batches of `aborted` (producer id, first offset) are left out."""

# What a consumer hands to its user.

@final
class ConsumedRecord(Generic[_K, _V]):
    """A record as a consumer returns it; immutable, can be pickled, and hashed if its key and value
    can. `timestamp` is in milliseconds; `timestamp_type` is 0 (set by the producer) or 1 (set by
    the broker). Key and value are bytes unless the consumer has deserializers; a key or value that
    the record does not have is None, whatever its type says."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: _K
    value: _V
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: _K = ...,
        value: _V = ...,
        headers: tuple[tuple[str, bytes | None], ...] | None = None,
        leader_epoch: int = -1,
    ) -> None: ...
    def with_content(self, key: Any, value: Any) -> ConsumedRecord:
        """The same record with another key and value."""

@final
class FetchedRecords:
    """The records of one partition in a fetch response, decoded in slices. Keeps the buffer alive.

    Control batches, transactional batches of `aborted` (producer id, first offset) and records
    before `from_offset` are left out; a cut last batch is the end. A batch is checked and
    decompressed when its first record is asked for, never past `output_bytes_max` (see
    `validate`). A slice ends before a batch that is corrupt: the call after it raises
    CorruptBatch, and so does every later one."""

    next_offset: int  # behind all that was taken or passed over
    end_offset: int  # behind the last whole batch, by what the headers say
    leader_epoch: int  # of the batch that was looked at last; -1 at first
    is_done: bool

    def __init__(
        self,
        data: Buffer,
        *,
        topic: str,
        partition: int,
        from_offset: int = 0,
        aborted: Sequence[tuple[int, int]] = (),
        output_bytes_max: int = 0,
        check_crc: bool = True,
    ) -> None: ...
    def take(self, records_max: int) -> list[ConsumedRecord]:
        """The next records, fewer only at the end or before a corrupt batch."""

    def take_arrow(self, rows_max: int) -> ArrowRecords:
        """The next records as columns; fewer also when they would have more than a GiB."""

def extent(data: Buffer, *, from_offset: int = 0) -> tuple[int, int, int]:
    """Returns the extent of whole batches: their bytes, the offset to read next, and the timestamp
    types that they have from `from_offset` on: 1 for CreateTime, 2 for LogAppendTime, 3 for both,
    0 for no batch. Raises CorruptBatch."""

def recompress(
    data: Buffer,
    *,
    position: int = 0,
    codec: int,
    level: int | None = None,
    output_bytes_max: int = 0,
) -> bytes:
    """The batch at `position` with the same records and header, under another codec."""

def compress(codec: int, data: Buffer, level: int | None = None) -> bytes: ...
def decompress(codec: int, data: Buffer, output_bytes_max: int) -> bytes:
    """Raises OutputTooLarge rather than produce more than the bound."""

def unfilled(size: int) -> bytearray:
    """Returns an uninitialised bytearray: the caller must fill all of it before it is read."""

def crc32c(data: Buffer, value: int = 0) -> int: ...
def murmur2(data: Buffer) -> int:
    """Signed 32-bit, as Java's partitioner computes it."""

# Compaction. (producer id, first offset, offset of the abort marker, last stable offset) of each
# aborted transaction, as a transaction index has it:
_Aborted = tuple[int, int, int, int]

@final
class Transactions:
    """Follows the transactions of a log while it is read from one end to the other, for one pass
    of `KeyMap.learn` or of `Retainer.retain`."""

    def __init__(self, aborted: Sequence[_Aborted], /) -> None: ...
    def take_needed(self) -> list[_Aborted]:
        """The aborted transactions whose marker was passed since the last call and of which
        batches are still there: what the new transaction index must have."""

@final
class KeyMap:
    """The last offset of each key of a stretch of a log, in at most so much memory (24 bytes for a
    key; while it grows, half as much again)."""

    latest_offset: int  # all keys up to here are in it; -1 at first
    keys_max: int

    def __init__(self, memory_bytes: int, *, load_factor: float = 0.9) -> None:
        """ValueError if that does not hold a key."""

    def learn(self, data: Buffer, transactions: Transactions, from_offset: int) -> tuple[int, bool]:
        """Takes in the keys of whole batches at or after `from_offset`, but those of aborted
        transactions. Gives how many bytes were read and whether it is full: then the batch after
        those bytes is not in it. Raises CorruptBatch."""

    def reach(self, offset: int) -> None:
        """Nothing more comes up to this offset, inclusive."""

    def get(self, key: Buffer) -> int:
        """The last offset of a key, -1 if it is not there."""

    def __len__(self) -> int: ...

@final
class Retainer:
    """Writes what compaction leaves of a log, as Kafka's cleaner does (KIP-534)."""

    max_timestamp: int  # of what was written since `begin`; -1 if nothing was
    offset_of_max_timestamp: int
    records_read: int
    records_kept: int
    keyless: int  # records that were dropped because they have no key

    def __init__(
        self,
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
        producers: Sequence[tuple[int, int, int]],
    ) -> None:
        """`upper_bound` is where the round ends: the batch that ends there stays, even if it is
        empty, and so does the last one of each of `producers` (producer id, last offset of its
        data or -1, epoch)."""

    def begin(self, base_offset: int, index_interval_bytes: int) -> None:
        """Starts a new segment for everything that is written from here on."""

    def retain(
        self, data: Buffer, keys: KeyMap, transactions: Transactions
    ) -> tuple[int, bytes, list[tuple[int, int, int, int]]]:
        """Goes through the whole batches of `data`. Gives how many bytes were read, what is left
        of them, and the index entries that are due: (position in the segment, last offset of the
        batch there, largest timestamp so far, its offset). Raises CorruptBatch."""

# The producer. A waiter is told the outcome of one record; the core only keeps it.
_Waiter = Any

@final
class Sealed:
    """Bytes that never change, to be sent without a copy."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Outgoing:
    """A batch of one partition that takes no more records."""

    topic: str
    partition: int
    count: int
    cost: int  # bytes of the intake's buffer that it holds; 0 once released
    size: int  # bytes to send; before it is sealed, bytes before compression
    max_timestamp: int
    awaited: int  # records that have a waiter
    records: Sealed | None  # once it is sealed
    waiters: list[tuple[_Waiter, int, int, int, int]]
    # waiter, index in the batch, timestamp, bytes of key and of value (-1: none)
    @staticmethod
    def resumed(topic: str, partition: int, records: bytes) -> Outgoing:
        """A batch that another process has sealed, without waiters; `stamp` makes it this
        producer's. Raises CorruptBatch unless it is a whole batch."""

    def seal(
        self,
        codec: int = 0,
        level: int | None = None,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> None:
        """Compresses, writes the header and the checksum. ValueError for a bad codec or level,
        or if it is sealed."""

    def stamp(self, *, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Gives a sealed batch another producer state, in a copy: what is on its way stays."""

    def split(self, bytes_max: int, /) -> list[Outgoing]:
        """The records of a sealed batch in order, with their waiters, in batches that are not
        sealed and not above so many bytes; a larger record stands alone."""

HELD: int  # `Intake.add`: the record waits for its topic to be known
NO_ROOM: int  # `Intake.add`: the buffer is full

class IntakeCalls(Protocol):
    """Callbacks of an `Intake`: for a batch, for a topic, or to refuse; never for each record."""

    def opened(self, topic: str, partition: int, /) -> None:
        """A batch got its first record."""

    def closed(self, outgoing: Outgoing, /) -> None:
        """A batch is full; the record that did not fit follows."""

    def switch(self, topic: str, /) -> int:
        """Returns where records without a key go next. Called for the first one, and when a batch
        ends after `sticky_bytes` since the last time."""

    def unknown(self, topic: str, /) -> None:
        """A first record is held until `know` or `abandon`."""

    def full(self, size: int, /) -> None:
        """Makes room for so many bytes, or raises."""

    def timestamp(self, given: Any, /) -> int:
        """Returns the milliseconds of a timestamp that is not an int, or raises."""

    def too_large(self, topic: str, size: int, /) -> NoReturn:
        """Raises: the record exceeds a limit."""

    def no_partition(self, topic: str, partition: int, partitions: int, /) -> NoReturn:
        """Raises: the topic has only so many partitions."""

    def refused(self, field: str, topic: str, cause: Exception, /) -> NoReturn:
        """Raises: the key, value, headers or timestamp cannot be used."""

@final
class Intake:
    """Takes a producer's records in: chooses the partition, writes the record behind the others
    of its batch, keeps account of the memory. One thread at a time."""

    used_bytes: int
    held: list[tuple[str, int]]  # topics that are not known yet, and how many records wait

    def __init__(
        self,
        calls: IntakeCalls,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        record_bytes_max: int,
        sticky_bytes: int = 16384,
        ignore_keys: bool = False,
        choose: Callable[[str, Any, Any], int] | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        """`choose(topic, key, value)` takes the place of hash and stickiness. `wall_ms` gives the
        time of records that have none; without it, the machine's clock."""

    def submit(
        self,
        topic: str,
        value: Buffer | str | None = None,
        *,
        key: Buffer | str | None = None,
        headers: Any = None,
        timestamp: Any = None,
        partition: int | None = None,
        on_delivery: _Waiter | None = None,
    ) -> None:
        """Takes a record in. Headers are a dict or pairs of names and values."""

    def add(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        timestamp: Any,
        partition: int | None,
        waiter: _Waiter | None,
    ) -> tuple[int, bool]:
        """Takes a record in for a caller that can wait: returns its partition, and whether the
        record opened a batch (`opened` is not called then). In place of the partition: `HELD` while
        the topic is not known, `NO_ROOM` if the buffer is full (`full` is not called)."""

    def know(self, topic: str, partitions: int) -> list[tuple[_Waiter | None, BaseException]]:
        """A topic has so many partitions. What was held of it is taken in; those that could not
        be are given back, with the reason."""

    def abandon(self, topic: str) -> list[_Waiter | None]:
        """Gives up what was held of a topic: a waiter, or None, for each record."""

    def forget(self, topic: str) -> None:
        """The topic is not known any more; what comes now is held."""

    def partitions(self, topic: str) -> int:
        """Returns its number of partitions; 0 if unknown."""

    def take(self, topic: str, partition: int) -> Outgoing | None:
        """Closes the open batch of a partition, if there is one."""

    def release(self, batch: Outgoing) -> None:
        """Gives back the memory of a batch."""

    def charge(self, batch: Outgoing) -> None:
        """Takes the memory of a batch that came from a split."""

@final
class Handover:
    """Records on their way from the threads that give them to an intake, in order. The thread that
    makes it takes them; all others give."""

    waiting_bytes: int

    def __init__(self, calls: Any, *, bytes_max: int, small_bytes: int) -> None:
        """It calls, in the thread that gives: `first()` when nobody is taking yet; `full()` when
        more than `bytes_max` waits, to come back when less does; `apart(record)` with a record that
        could be refused, or has `small_bytes` or more; `refused()`, which has to raise, in the
        thread that takes, in a fork, and once it is closed."""

    def submit(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        partition: int | None = None,
        on_delivery: _Waiter | None = None,
    ) -> None:
        """Gives a record."""

    def pass_on(
        self, intake: Intake, records_max: int, /
    ) -> tuple[int, list[tuple[_Waiter | None, BaseException]]]:
        """Has an intake take so many records in, until there is no room: how many it were, and
        those that were refused, with the reason."""

    def pop(self) -> tuple[str, Any, Any, Any, int | None, int | None, _Waiter | None] | None:
        """The next record, as arguments of `Intake.add`. With None the taking is over: the next
        record calls `first`."""

    def close(self) -> None:
        """No record can be given any more."""

def submit_arrow(
    intake: Intake, rows: object, *, topic: str | None = None, start: int = 0
) -> tuple[int, str | None]:
    """Takes the rows of an Arrow record batch in from `start` on, by its columns key, value, topic,
    partition, headers and timestamp; `topic` is for all rows. Ends before the first row for which
    there is no room, or whose topic is not known: answers its number, and that topic. TypeError
    and ValueError name the column, and the row if it is one."""
