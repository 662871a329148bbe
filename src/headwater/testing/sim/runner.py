"""One seed from beginning to end, and how it went."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from headwater.testing.sim.fleet_history import FleetHistory, Play
from headwater.testing.sim.fleet_records import RecordsPlay
from headwater.testing.sim.history import History
from headwater.testing.sim.log_history import LogHistory
from headwater.testing.sim.transaction_play import TransactionPlay
from headwater.testing.sim.violation import Violation
from headwater.testing.sim.world import burial

_LOG_STEPS = 150
KINDS = ("node", "log", "cluster", "transactions")


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    digest: str
    failure: str | None  # what was broken, with the last events
    events: list[str]
    sometimes: Counter[str]
    acknowledged: int = 0
    virtual_seconds: float = 0.0


def history_of(
    seed: int, kind: str, rounds: int | None = None, faults: Collection[str] = ()
) -> LogHistory | FleetHistory | History:
    if kind == "log":
        return LogHistory(seed)
    if kind in ("cluster", "transactions"):
        play: type[Play] = TransactionPlay if kind == "transactions" else RecordsPlay
        rounds = 5 if rounds is None else rounds
        return FleetHistory(seed, rounds=rounds, faults=faults, play=play)
    return History(seed, rounds=8 if rounds is None else rounds)


def run_seed(
    seed: int, *, kind: str = "node", rounds: int | None = None, faults: Collection[str] = ()
) -> Result:
    """Runs a history; a broken promise is in the result, not raised. `faults` limits what may
    happen to a cluster."""
    history = history_of(seed, kind, rounds, faults)
    failure: str | None = None
    acknowledged = 0
    try:
        if isinstance(history, LogHistory):
            history.run(_LOG_STEPS)
        else:
            acknowledged = history.run().acknowledged
    except Violation as violation:
        failure = "\n".join([str(violation), *getattr(violation, "__notes__", ())])
        if violation.__cause__ is not None:
            failure += "\n" + "".join(traceback.format_exception(violation.__cause__))
    except Exception:
        failure = f"seed {seed}: {traceback.format_exc()}"
    world = history.world
    result = Result(
        seed,
        world.digest(),
        failure,
        list(world.events) if failure is not None else [],
        world.sometimes,
        acknowledged,
        world.loop.time(),
    )
    with burial():  # of what the traceback of a failure has kept
        del history, world
    return result
