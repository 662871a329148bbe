"""The state of a producer's transaction: what may be done now, and what an error leads to.

A machine. The driver (`transactions`) tells it what was asked and answered; it says whether records
may be added and sent, what the coordinator must be asked to end a transaction, and what a call
raises. Three rules hold whatever is lost on the way:

- a transaction in which anything failed can only be aborted;
- once the coordinator was asked to commit, nothing but the commit may be asked again, until the
  answer is known: it may be committed already;
- a batch that was sent and has no outcome may arrive at any time, so the next transaction begins
  under another epoch: in the second generation always, in the first by asking for one (KIP-360).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from headwater.client.errors import (
    AbortableError,
    ClientError,
    FatalError,
    InvalidTransactionState,
    RetriableError,
)
from headwater.client.requests.transactions import (
    PreparedTransaction,
    TransactionHandle,
    Verdict,
    abortable,
    verdict,
)
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey


class Phase(Enum):
    UNINITIALIZED = "the producer is not started"
    READY = "no transaction is open"
    ACTIVE = "a transaction is open"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    PREPARED = "the transaction is prepared"
    ABORTABLE = "the transaction has to be aborted"
    FATAL = "the producer cannot continue"


class EndStep(Enum):
    """The steps that end a transaction, in this order."""

    TELL = "ask the coordinator to end it"
    RENEW = "ask the coordinator for another epoch"
    DONE = "nothing is left to ask"


_OPEN = frozenset({Phase.ACTIVE, Phase.COMMITTING, Phase.ABORTABLE, Phase.PREPARED})


class TransactionState:
    def __init__(self) -> None:
        self.phase = Phase.UNINITIALIZED
        self.serial = 0  # the number of the transaction
        self.is_joined = False  # another process has begun it and will end it
        self.prepared: PreparedTransaction | None = None
        self.error: ClientError | None = None  # in ABORTABLE and FATAL
        self._handle: TransactionHandle | None = None
        self._is_known = False  # the coordinator may have this transaction
        self._is_end_asked = False
        self._needs_epoch = False
        # The first generation: partitions are added before anything is written to them.
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._unanswered = 0  # requests that may have begun it at the coordinator

    @property
    def handle(self) -> TransactionHandle:
        assert self._handle is not None, "the producer has no id yet"
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open that this producer can end."""
        return self.phase in _OPEN and not self.is_joined

    @property
    def is_commit_unknown(self) -> bool:
        """Whether the coordinator was asked to commit, and the answer is not known."""
        return self.phase is Phase.COMMITTING and self._is_end_asked

    # The beginning

    def initialized(
        self, handle: TransactionHandle, prepared: PreparedTransaction | None = None
    ) -> None:
        """Takes the id of a producer that starts; `prepared` was left by the one before it."""
        assert self.phase is Phase.UNINITIALIZED
        self._handle = handle
        if prepared is None:
            self.phase = Phase.READY
        else:
            self.phase, self.prepared, self._is_known = Phase.PREPARED, prepared, True
            self.serial += 1

    def joined(self, handle: TransactionHandle) -> None:
        """Takes part in a transaction that another process has begun."""
        assert self.phase is Phase.UNINITIALIZED or (self.is_joined and self.phase is Phase.ACTIVE)
        self._handle = handle
        self.is_joined = True
        self._added.clear()
        self._wanted.clear()
        self.serial += 1
        self.phase = Phase.ACTIVE

    def check_ready(self) -> None:
        """Raises unless a transaction may begin; first `needs_epoch` must be served."""
        if self.phase is not Phase.READY:
            raise self.refusal("begin a transaction")

    @property
    def needs_epoch(self) -> bool:
        """Whether the coordinator must grant another epoch before the next transaction."""
        return self._needs_epoch

    def begin(self) -> None:
        self.check_ready()
        assert not self._needs_epoch
        self.serial += 1
        self.phase = Phase.ACTIVE

    # Records and offsets

    def check_writable(self, serial: int | None = None) -> None:
        """Raises unless records may be added; with `serial`, to that transaction."""
        if self.phase is not Phase.ACTIVE:
            raise self.refusal("send a record")
        if serial is not None and serial != self.serial:
            raise InvalidTransactionState(
                "the transaction ended while the record waited for room in the buffer"
            )

    def write(self, tp: TopicPartition) -> bool:
        """Notes that a batch for the partition is begun; returns whether the partition has to be
        added first."""
        if self.handle.uses_v2:
            self._is_known = True
            return False
        if tp in self._added or tp in self._wanted:
            return False
        self._wanted[tp] = None
        return True

    def may_send(self, tp: TopicPartition) -> bool:
        if self.phase not in (Phase.ACTIVE, Phase.COMMITTING):
            return False
        return self.handle.uses_v2 or tp in self._added

    def take_wanted(self) -> list[TopicPartition]:
        """Returns the partitions to add; `on_added` or `on_failed` follows."""
        wanted = list(self._wanted)
        if wanted:
            self._unanswered += 1
        return wanted

    def on_added(self, partitions: Iterable[TopicPartition]) -> None:
        self._unanswered -= 1
        self._is_known = True
        for tp in partitions:
            self._wanted.pop(tp, None)
            self._added.add(tp)

    def send_offsets(self) -> None:
        """Notes that offsets are sent; `on_offsets` or `on_failed` follows. Raises if they may not
        be."""
        if self.phase is not Phase.ACTIVE:
            raise self.refusal("send offsets")
        self._unanswered += 1

    def on_offsets(self) -> None:
        self._unanswered -= 1
        self._is_known = True

    # Errors

    def on_failed(self, error: ClientError) -> None:
        """Notes that a request of the transaction failed, with what `client.requests.transactions`
        raises. Whether the coordinator knows the transaction is as unknown as before."""
        if isinstance(error, RetriableError):
            error = abortable(error)  # it was retried for as long as the settings allow
        if not isinstance(error, AbortableError):
            self._fail(error)
        elif self.phase in (Phase.ACTIVE, Phase.COMMITTING, Phase.PREPARED):
            self._is_end_asked = False
            self.phase, self.error = Phase.ABORTABLE, error

    def on_record_failed(self, error: ClientError, *, was_sent: bool) -> None:
        """Notes that records failed. `was_sent`: their batch has a sequence, so that the next one
        under this epoch would leave a gap, or repeat it."""
        if was_sent:
            self._needs_epoch = True
        if error.code is not None:
            is_fatal = verdict(ApiKey.PRODUCE, error.code) is Verdict.FAIL
        else:
            is_fatal = isinstance(error, FatalError)
        self.on_failed(error if is_fatal else abortable(error))

    def _fail(self, error: ClientError) -> None:
        if self.phase is not Phase.FATAL:
            self.phase, self.error = Phase.FATAL, error

    def refusal(self, doing: str) -> ClientError:
        """Returns what a call raises that the phase does not allow."""
        error = self.error
        if self.phase in (Phase.ABORTABLE, Phase.FATAL):
            assert error is not None
            fresh = type(error)(str(error), code=error.code)
            fresh.__cause__ = error.__cause__
            return fresh
        why = self.phase.value
        if self.is_commit_unknown:
            why = "the outcome of the commit is not known yet; commit again"
        elif self.is_joined:
            why = "another process has begun the transaction and ends it"
        return InvalidTransactionState(f"cannot {doing}: {why}")

    # The end

    def begin_commit(self) -> None:
        """From here on no record is added. A commit without an answer may begin again."""
        if self.is_joined or self.phase not in (Phase.ACTIVE, Phase.PREPARED, Phase.COMMITTING):
            raise self.refusal("commit")
        self.phase = Phase.COMMITTING

    def begin_abort(self) -> None:
        if self.is_joined or self.is_commit_unknown:
            raise self.refusal("abort")
        if self.phase is not Phase.ABORTING and self.phase not in _OPEN:
            raise self.refusal("abort")
        self.phase, self.error = Phase.ABORTING, None

    def prepare(self) -> PreparedTransaction:
        """Notes that all is written and the transaction can be committed."""
        if self.is_joined or self.phase is not Phase.COMMITTING or self._is_end_asked:
            raise self.refusal("prepare the transaction")
        handle = self.handle
        self.prepared = PreparedTransaction(handle.producer_id, handle.producer_epoch)
        self.phase = Phase.PREPARED
        return self.prepared

    def next_step(self) -> EndStep:
        """Returns what is to be asked next, when no batch is in flight. Raises what keeps the
        transaction from being committed."""
        if self.phase not in (Phase.COMMITTING, Phase.ABORTING):
            raise self.refusal("commit")
        if self._is_known or self._unanswered:
            return EndStep.TELL
        renews = self.phase is Phase.ABORTING and self._needs_epoch
        return EndStep.RENEW if renews else EndStep.DONE

    def on_end_asked(self) -> None:
        """Notes that the coordinator is about to be asked; `on_ended` or `on_failed` follows, or
        the outcome stays unknown."""
        assert self.phase in (Phase.COMMITTING, Phase.ABORTING)
        self._is_end_asked = True

    def on_ended(self, handle: TransactionHandle) -> None:
        """Notes that the coordinator has ended the transaction; the handle is for the next."""
        assert self.phase in (Phase.COMMITTING, Phase.ABORTING)
        if handle != self.handle:
            self._needs_epoch = False  # the next transaction has an epoch of its own
        self._handle = handle
        self._is_known = self._is_end_asked = False
        self._unanswered = 0

    @property
    def may_be_unknown(self) -> bool:
        """Whether the coordinator may know nothing of the transaction. In the first generation it
        refuses to abort such a one, with INVALID_TXN_STATE."""
        return not self._is_known and not self.handle.uses_v2

    def on_never_begun(self) -> None:
        """Notes that the coordinator knows nothing of the transaction. What would have begun it may
        still arrive, so the next one has another epoch."""
        assert self.phase is Phase.ABORTING
        self._needs_epoch = True
        self._is_end_asked = False
        self._unanswered = 0

    def on_upgrade(self) -> None:
        """Notes that the next transaction can be of the second generation. A late request of the
        first must not find its epoch there, so it begins with another one."""
        self._needs_epoch = True

    def on_renewed(self, handle: TransactionHandle) -> None:
        """Notes the next epoch."""
        self._handle = handle
        self._needs_epoch = False
        self._is_known = False
        self._unanswered = 0

    def finish(self) -> None:
        """Ends the transaction when nothing is left to ask."""
        assert self.next_step() is EndStep.DONE
        self.phase = Phase.READY
        self.prepared = self.error = None
        self._is_end_asked = False
        self._added.clear()
        self._wanted.clear()
