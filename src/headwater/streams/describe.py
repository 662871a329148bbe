"""Draws a plan as text: queries, where their rows come from and go, operators, state, cuts."""

from __future__ import annotations

from typing import Any

from headwater.streams.planner import Plan, QueryPlan, grace, is_border, lateness
from headwater.streams.topology import (
    Aggregate,
    Call,
    ForeignKeyJoin,
    Frame,
    GlobalJoin,
    Keyed,
    Node,
    Sink,
    Source,
    StreamJoin,
)
from headwater.streams.windows import readable


def drawing(plan: Plan) -> str:
    """Returns the plan for people, one query after the other."""
    app = plan.app
    count = len(plan.queries)
    lines = [
        f"app {app.name}: {count} {'query' if count == 1 else 'queries'}, "
        + ("at least once, real-time" if app.latency == "real-time" else "exactly once")
    ]
    for query in plan.queries:
        lines += ["", *_query(plan, query)]
    if plan.topics:
        lines += ["", "internal topics"]
        for topic in plan.topics:
            kind = "compacted" if topic.compacted else "repartition"
            lines.append(f"  {topic.name} ({kind})")
    lines += ["", f"dead letters: {plan.dead_letters}"]
    return "\n".join(lines)


def as_dict(plan: Plan) -> dict[str, Any]:
    """Returns the plan for programs."""
    return {
        "app": plan.app.name,
        "latency": plan.app.latency,
        "dead_letters": plan.dead_letters,
        "queries": [
            {
                "name": query.name,
                "mode": query.mode,
                "reads": list(query.topics_read),
                "writes": list(query.topics_written),
                "cut": query.why or None,
                "watermark": _watermark(query),
                "operators": [
                    {
                        "name": node.name,
                        "operation": str(node.operation),
                        "runs": runs_as(node),
                        "stateful": node.is_stateful,
                        "after": [_before(plan, query, each).name for each in node.inputs],
                    }
                    for node in _nodes(plan, query)
                ],
            }
            for query in plan.queries
        ],
        "topics": [
            {"name": each.name, "compacted": each.compacted, "partitions": each.partitions}
            for each in plan.topics
        ],
    }


def runs_as(node: Node) -> str:
    """Says what Spark runs for an operator."""
    match node.operation:
        case Source():
            return "MicroBatchScan"
        case Call():
            return "mapInArrow"
        case Keyed() | ForeignKeyJoin():
            return "transformWithState"
        case GlobalJoin():
            return "mapInArrow, with a copy of the table in each worker"
        case Aggregate(window=window) if window is not None and window.kind == "session":
            return "session window aggregation"
        case Aggregate():
            return "aggregation"
        case StreamJoin():
            return "stream-stream join"
        case Frame():
            return "your DataFrame"
        case Sink():
            return "one transaction for each micro-batch"
        case _:
            return "projection"


def _query(plan: Plan, query: QueryPlan) -> list[str]:
    nodes = _nodes(plan, query)
    title = f"query {query.name} (output mode {query.mode}"
    watermark = _watermark(query)
    if watermark is not None:
        title += f", watermark {watermark}"
    lines = [title + ")"]
    if query.why:
        lines.append(f"  behind a cut: {query.why}")
    width = max((len(each.name) for each in nodes), default=0)
    for node in nodes:
        inputs = ", ".join(_before(plan, query, each).name for each in node.inputs)
        mark = "[state] " if node in query.stateful else ""
        store = f" = table {node.store}" if node.store is not None else ""
        after = f"  <- {inputs}" if inputs else ""
        lines.append(
            f"  {node.name:<{width}}  {mark}{node.operation}{store}{after}  ({runs_as(node)})"
        )
    return lines


def _nodes(plan: Plan, query: QueryPlan) -> list[Node]:
    """Returns the nodes of a query, inputs first; a cut is the source behind it."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in found:
            return
        for each in node.inputs:
            before = _before(plan, query, each)
            if before in query.sources or not is_border(before) or before in query.stateful:
                visit(before)
        found[node] = None

    if query.head is not None:
        visit(query.head)
    for end in query.ends:
        visit(end)
    return list(found)


def _before(plan: Plan, query: QueryPlan, node: Node) -> Node:
    """Returns what stands for an input in this query."""
    if node in query.stateful:
        return node
    return plan.cuts.get(node, node)


def _watermark(query: QueryPlan) -> str | None:
    if not query.watermarked:
        return None
    late = max((lateness(each) for each in query.sources), default=None)
    assert late is not None
    return readable(late + grace(query.stateful))
