"""Compares a topology with its checkpoints: which state a changed topology keeps, which it loses.

Spark continues a checkpoint if the query has the same sources and the same stateful operators in
the same order; stateless operators may change. So beside each checkpoint there is a file that
describes its query. A query is not started on the checkpoint of another one: Spark would refuse it
late, in its own terms, or continue with the wrong state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.streams.planner import Plan, QueryPlan, reached
from headwater.streams.topology import Aggregate, Keyed, Node, Rekey, Source

FILE = "headwater-topology.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Changes:
    """The effect on an app's checkpoints of starting it as it is now."""

    continued: tuple[str, ...]  # queries that go on
    new: tuple[str, ...]  # queries that read their topics from the beginning
    lost: Mapping[str, str]  # queries whose checkpoint no longer fits, and why
    left: tuple[str, ...]  # checkpoints of queries that are no longer there

    def lines(self) -> list[str]:
        """Returns the changes for people; nothing if all queries go on."""
        if not (self.lost or self.left or (self.new and self.continued)):
            return []
        found = []
        if self.continued:
            found.append(f"keeps the state and the position of {', '.join(self.continued)}")
        for name, why in self.lost.items():
            found.append(f"loses the state and the position of {name}: {why}")
        if self.new:
            found.append(f"starts {', '.join(self.new)} from the beginning")
        if self.left:
            found.append(f"no longer runs {', '.join(self.left)}, and keeps their checkpoints")
        return found


def fingerprint(query: QueryPlan) -> dict[str, Any]:
    """Returns what the checkpoint of a query depends on."""
    return {
        "version": _VERSION,
        "query": query.name,
        "sources": [_source(node) for node in query.sources],
        "state": [_state(node) for node in query.stateful],
        "mode": query.mode,
    }


def to_json(query: QueryPlan) -> str:
    return json.dumps(fingerprint(query), indent=1)


def changes(plan: Plan, known: Mapping[str, str | None]) -> Changes:
    """Compares a plan with the files of its checkpoints, by the names of their queries. None stands
    for a checkpoint without a file."""
    continued, new = [], []
    lost: dict[str, str] = {}
    for query in plan.queries:
        if query.name not in known:
            new.append(query.name)
            continue
        text = known[query.name]
        why = "it was not written by headwater streams" if text is None else _lost(query, text)
        if why is None:
            continued.append(query.name)
        else:
            lost[query.name] = why
    names = {query.name for query in plan.queries}
    return Changes(
        tuple(continued), tuple(new), lost, tuple(name for name in known if name not in names)
    )


def _lost(query: QueryPlan, text: str) -> str | None:
    """Returns why a checkpoint does not fit a query; None if it does."""
    try:
        before = json.loads(text)
        sources, states = list(before["sources"]), list(before["state"])
    except (ValueError, KeyError, TypeError):
        return f"{FILE} cannot be read"
    now = fingerprint(query)
    if sources != now["sources"]:
        return f"it read {_listed(sources)}, and now reads {_listed(now['sources'])}"
    if (change := _state_change(states, now["state"])) is not None:
        return change
    if before.get("mode") != now["mode"]:
        return f"its output mode was {before.get('mode')}, and is now {now['mode']}"
    return None


def changed_state(query: QueryPlan, text: str) -> str | None:
    """Returns how the operators of a query differ from those of a checkpoint; None if they are the
    same, or not known."""
    try:
        states = list(json.loads(text)["state"])
    except (ValueError, KeyError, TypeError):
        return None
    return _state_change(states, fingerprint(query)["state"])


def _state_change(before: Sequence[Any], now: Sequence[Any]) -> str | None:
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"its state was that of {old['operator']}, and is now {new['operator']}"
    if len(before) > len(now):
        return f"the operator {before[len(now)]['operator']} is gone"
    if len(before) < len(now):
        return f"the operator {now[len(before)]['operator']} is new"
    return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _source(node: Node) -> str:
    operation = node.operation
    assert isinstance(operation, Source)
    return ", ".join(sorted(operation.topics)) or f"/{operation.pattern}/"


def _state(node: Node) -> dict[str, str]:
    operation = node.operation
    text = str(operation)
    if isinstance(operation, Keyed) and operation.version:
        text += f" ({operation.version})"
    keys = [_key(each) for each in node.inputs]
    if any(keys):
        text += f" by {' and '.join(each or 'the key' for each in keys)}"
    if isinstance(operation, Aggregate) and node.value is not None:
        text += f": {node.value.schema.simpleString()}"
    return {"operator": text}


def _key(node: Node) -> str | None:
    """Returns what the key of the rows is made of, as far as this query sets it."""
    while True:
        if isinstance(node.operation, Rekey):
            return str(node.operation).removeprefix("key ")
        if len(node.inputs) != 1 or node in reached(node):
            return None
        if isinstance(node.operation, Source) or node.is_stateful:
            return None
        (node,) = node.inputs
