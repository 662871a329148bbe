"""Stories of the transaction coordinator: one shard with its log, and producers that do as told.

After each command the log is replayed into a fresh shard, which must be the shard that wrote it.
Commands (NAME is an instance of a producer; a story has one transactional id):

    settings KEY=VALUE...             before anything else; names of `TransactionSettings`
    level N                           `transaction.version` is N from now on
    epoch N                           before anything else: the id has had this many epochs
    init NAME [knows=] [2pc] [keep] [timeout_ms=] [version=]   InitProducerId; `knows` names an
                                      instance whose identity the request tells (KIP-360)
    copy NAME OTHER                   OTHER knows what NAME knows now
    add NAME PARTITIONS [version=]    AddPartitionsToTxn, `t:0,1`
    verify NAME PARTITIONS            the same, of a broker that only wants to know
    offsets NAME                      AddOffsetsToTxn
    commit|abort NAME [version=] [lost]   EndTxn; `lost`: the reply never arrives
    markers [PARTITIONS]              the markers of these partitions are written; without, of all
    advance SECONDS                   let time pass; timers fire in order
    restart                           another broker loads the shard from its log
    show                              the transactional id

The output has the reply, `log` for each record that was written, `send` for markers that the
coordinator wants to be written, and `note` for lines in the node's log. An identity is a producer
id and an epoch, `1000/0`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headwater.coordination import Decision
from headwater.errors import ErrorCode
from headwater.protocol.records.transactions import TransactionLogValue
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import SendMarkers
from headwater.transactions.transaction import Identity, State, Transaction
from tests.support.transaction_shards import TransactionDesk, tps
from tests.support.transcripts import Command, check_story, stories

_FOLDER = Path(__file__).parent / "transactions"
_BOOLEANS = ("two_phase_commit",)


class StoryDesk(TransactionDesk):
    """Says what is written and sent."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.lines: list[str] = []
        super().__init__(settings)

    def carry_out(self, decision: Decision) -> None:
        known, notes = len(self.markers), len(self.notes)
        super().carry_out(decision)
        self.lines += [f"note {note.text}" for note in self.notes[notes:] if not note.is_routine]
        self.lines += [f"  log {_show_value(record.value)}" for record in decision.records]
        self.lines += [f"  send {_show_markers(markers)}" for markers in self.markers[known:]]
        self.lines += ["  get a producer id"] * self.wanted_ids
        self.give_ids()


@dataclass(slots=True)
class TransactionStory:
    """Runs the commands of one story."""

    desk: StoryDesk = field(default_factory=StoryDesk)
    producers: dict[str, Identity] = field(default_factory=dict)

    def run(self, command: Command) -> str:
        self.desk.lines.clear()
        getattr(self, "do_" + command.name)(command)
        self.desk.tick()
        return "\n".join(self.desk.lines)

    def say(self, line: str) -> None:
        self.desk.lines.append(line)

    # The stage

    def do_settings(self, command: Command) -> None:
        settings = {
            key: value == "true" if key in _BOOLEANS else int(value)
            for key, value in command.options.items()
        }
        self.desk = StoryDesk(replace(self.desk.settings, **settings))  # type: ignore[arg-type]

    def do_level(self, command: Command) -> None:
        self.desk.set_version(int(command.words[0]))

    def do_epoch(self, command: Command) -> None:
        client = Identity(self.desk.new_id(), int(command.words[0]))
        created = Transaction.created(client, timeout_ms=60_000, now_ms=self.desk.now_ms)
        self.desk.load(created.value(self.desk.settings.transaction_version))

    def do_advance(self, command: Command) -> None:
        self.desk.advance(float(command.words[0]))

    def do_restart(self, command: Command) -> None:
        self.desk.restart()

    def do_markers(self, command: Command) -> None:
        self.desk.write_markers(tps(" ".join(command.words)) if command.words else None)

    def do_show(self, command: Command) -> None:
        found = self.desk.described()
        topics = " ".join(f"{t.topic}:{','.join(map(str, t.partitions))}" for t in found.topics)
        timeout = f"timeout {found.transaction_timeout_ms} ms"
        who = f"{found.producer_id}/{found.producer_epoch}"
        self.say(f"{found.transaction_state} {who}, {topics or 'no partitions'}, {timeout}")

    # Producers

    def do_copy(self, command: Command) -> None:
        name, other = command.words
        self.producers[other] = self.producers[name]

    def do_init(self, command: Command) -> None:
        name, options = command.words[0], command.options
        knows = options.get("knows")
        response = self.desk.init(
            self.producers[knows] if knows else None,
            timeout_ms=int(options.get("timeout_ms", 60_000)),
            version=int(options.get("version", 6)),
            enable_2pc="2pc" in command.words,
            keep="keep" in command.words,
        )
        if response.error_code:
            self.say(f"{name}: {ErrorCode(response.error_code).name}")
            return
        self.producers[name] = Identity(response.producer_id, response.producer_epoch)
        line = f"{name}: is {_show(self.producers[name])}"
        ongoing = Identity(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        self.say(line if ongoing.producer_id < 0 else f"{line}, ends that of {_show(ongoing)}")

    def do_add(self, command: Command, *, verify: bool = False) -> None:
        name, *partitions = command.words
        codes = self.desk.add(
            self.producers[name],
            " ".join(partitions),
            version=int(command.options.get("version", 5)),
            verify=verify,
        )
        if isinstance(codes, ErrorCode):
            self.say(f"{name}: {_ok(codes)}")
        else:
            self.say(f"{name}: " + ", ".join(f"{tp} {_ok(code)}" for tp, code in codes.items()))

    def do_verify(self, command: Command) -> None:
        self.do_add(command, verify=True)

    def do_offsets(self, command: Command) -> None:
        name = command.words[0]
        self.say(f"{name}: {_ok(self.desk.add_offsets(self.producers[name]))}")

    def do_commit(self, command: Command) -> None:
        name = command.words[0]
        version = int(command.options.get("version", 5))
        said = self.desk.end(self.producers[name], command.name, version=version)
        if "lost" in command.words:
            self.say(f"{name}: hears nothing")
        elif isinstance(said, ErrorCode):
            self.say(f"{name}: {_ok(said)}")
        else:
            self.producers[name] = said
            self.say(f"{name}: ok, is {_show(said)}")

    do_abort = do_commit


def _ok(code: ErrorCode) -> str:
    return code.name if code else "ok"


def _show(identity: Identity) -> str:
    return f"{identity.producer_id}/{identity.epoch}"


def _show_markers(markers: SendMarkers) -> str:
    outcome = "commit" if markers.commits else "abort"
    who = Identity(markers.producer_id, markers.producer_epoch)
    return f"{outcome} of {_show(who)}, {' '.join(map(str, markers.partitions))}"


def _show_value(value: object) -> str:
    if value is None:
        return "deleted"
    assert isinstance(value, TransactionLogValue)
    found = Transaction.of(value)
    parts = [f"{State(value.transaction_status).title} {_show(found.writer)}"]
    if found.partitions:
        parts.append(" ".join(map(str, found.partitions)))
    if found.next_producer_id >= 0:
        follows = Identity(found.next_producer_id, max(0, found.next_producer_epoch))
        parts.append(f"then {_show(follows)}")
    return ", ".join(parts)


@pytest.mark.parametrize("path", stories(_FOLDER), ids=lambda path: path.stem)
def test_the_story_is_as_it_is_written(path: Path) -> None:
    check_story(path, TransactionStory().run)
