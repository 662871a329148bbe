"""Plans the queries of an app: what of its topology runs in which query of Spark.

A query has at most one *head*, a stateful operator, together with stateful operators before it that
Spark accepts in the same query. What follows the head without state is evaluated on the rows of
each micro-batch, so that any number of outputs costs the state once. Where Spark refuses a chain of
stateful operators, or where the rows of one are used twice, the planner cuts: the rows go through
an internal topic into another query. Stateless parts of the topology are queries without a head.

Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from headwater.streams.errors import TopologyError
from headwater.streams.topology import (
    Aggregate,
    Call,
    ForeignKeyJoin,
    Frame,
    GlobalJoin,
    Keyed,
    Node,
    OnError,
    Repartition,
    Sink,
    Source,
    StreamJoin,
    ancestors,
)

if TYPE_CHECKING:
    from headwater.streams.app import App

Mode = Literal["append", "update"]
_STATEFUL_IN_QUERY_MAX = 2


@dataclass(frozen=True, slots=True)
class Topic:
    """An internal topic."""

    name: str
    compacted: bool
    partitions: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """One query of Spark. `stateful` has its stateful operators, the head last. `starts` are the
    nodes behind which it works on micro-batches: the head, or what stands for its sources."""

    app: str
    name: str
    head: Node | None
    starts: tuple[Node, ...]
    stateful: tuple[Node, ...]
    sources: tuple[Node, ...]
    ends: tuple[Node, ...]
    mode: Mode
    real_time: bool = False
    why: str = ""  # why it begins behind a cut

    @property
    def fans_out(self) -> bool:
        """Whether some rows are used more than once behind the head."""
        return (
            len(self.ends) > 1
            or any(len(consumers) > 1 for consumers in self.consumers().values())
            # For each micro-batch it is looked up how far a table is to be read.
            or any(isinstance(each.operation, GlobalJoin) for each in self.behind())
        )

    def consumers(self) -> dict[Node, list[Node]]:
        """Returns who reads each node behind the head (or the sources), as far as this query
        goes."""
        behind = self.behind()
        found: dict[Node, list[Node]] = {}
        for node in behind:
            for each in node.inputs:
                if each in behind or each in self.starts:
                    found.setdefault(each, []).append(node)
        return found

    def behind(self) -> list[Node]:
        """Returns the stateless nodes behind the head, or behind the sources if there is none."""
        return [
            node
            for node in ancestors(self.ends)
            if not is_border(node) and any(each in self.starts for each in reached(node))
        ]

    def evaluated(self) -> list[Node]:
        """Returns all nodes that run in this query, sources included."""
        found: dict[Node, None] = dict.fromkeys(self.sources)

        def walk(node: Node) -> None:
            if node in found:
                return
            if is_border(node) and node not in self.stateful:
                return
            found[node] = None
            for each in node.inputs:
                walk(each)

        for node in (*self.stateful, *self.ends):
            walk(node)
        return list(found)

    @property
    def watermarked(self) -> bool:
        return any(needs_watermark(node) for node in self.stateful)

    @property
    def topics_read(self) -> tuple[str, ...]:
        found: list[str] = []
        for node in self.sources:
            operation = node.operation
            assert isinstance(operation, Source)
            found += operation.topics or (f"/{operation.pattern}/",)
        return tuple(dict.fromkeys(found))

    @property
    def topics_written(self) -> tuple[str, ...]:
        found = []
        for node in self.ends:
            if isinstance(node.operation, Sink):
                to = node.operation.to
                found.append(to if isinstance(to, str) else str(node.operation))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All queries of an app, in the order in which records flow."""

    app: App
    queries: tuple[QueryPlan, ...]
    cuts: dict[Node, Node]  # a node whose rows go through an internal topic -> the source there
    topics: tuple[Topic, ...]
    notes: tuple[str, ...] = ()

    def owner(self, node: Node) -> QueryPlan:
        """Returns the query that reports the records for which a node fails: the first one that
        runs it."""
        for query in self.queries:
            if node in query.evaluated():
                return query
        raise AssertionError(node)

    def query(self, name: str) -> QueryPlan | None:
        return next((each for each in self.queries if each.name == name), None)

    @property
    def dead_letters(self) -> str:
        return self.app.dead_letters

    @property
    def global_tables(self) -> tuple[Node, ...]:
        """The sources that are not read by a query, but copied into its workers."""
        nodes = ancestors([end for query in self.queries for end in query.ends])
        tables = [each.operation.table for each in nodes if isinstance(each.operation, GlobalJoin)]
        return tuple(dict.fromkeys(tables))

    def on_error(self, node: Node) -> OnError:
        """Returns what happens if this operator fails for a record."""
        if node.on_error is not None:
            return node.on_error
        if isinstance(node.operation, Source):
            return self.app.on_deserialization_error
        if isinstance(node.operation, Sink):
            return self.app.on_production_error
        return self.app.on_processing_error


def plan(app: App) -> Plan:
    """TopologyError names the operator that cannot be run, and the way out."""
    ends = list(app.ends)
    topics: list[Topic] = []
    stores = [node for node in app.nodes if node.store is not None]
    for node in stores:
        assert node.store is not None
        name = f"{app.name}-{node.store}-changelog"
        topics.append(Topic(name, compacted=True))
        ends.append(_internal_sink(node, name, compacted=True))
    if not ends:
        raise TopologyError(
            f"app {app.name}", "it writes nothing", then='end a stream with .to("topic")'
        )
    known = ancestors(ends)
    _check_used(app, known)
    for node in known:
        _check(node)
    uses = _uses(ends, known)
    cuts: dict[Node, Node] = {}
    why: dict[Node, str] = {}
    chains: dict[Node, tuple[Node, ...]] = {}  # stateful operators of the query with this head
    for node in known:
        if isinstance(node.operation, Repartition):
            _cut(app, node, node.inputs[0], cuts, topics, ends)
            why[node] = "repartition"
        elif node.is_stateful:
            chain: tuple[Node, ...] = ()
            for before in reached(node):
                if not before.is_stateful:
                    continue
                reason = _refused(before, node, uses[before], chains[before] + chain)
                if reason is None:
                    chain = chains[before] + chain
                elif before not in cuts:
                    _cut(app, before, before, cuts, topics, ends)
                    why[before] = reason
            chains[node] = (*chain, node)
    queries = _queries(app, ends, known, chains, cuts, why)
    made = Plan(app, tuple(queries), cuts, tuple(topics))
    if app.latency == "real-time":
        _check_real_time(made)
        # The only mode there; without state it is no other than append.
        queries = [replace(each, mode="update", real_time=True) for each in made.queries]
        made = replace(made, queries=tuple(queries))
    return made


# Where rows come from


def is_border(node: Node) -> bool:
    """Whether a walk over stateless operators ends here."""
    return node.is_stateful or isinstance(node.operation, Source | Repartition)


def reached(node: Node) -> list[Node]:
    """Returns where the rows of a node come from: the next sources, stateful operators and
    repartitions before it."""
    found: dict[Node, None] = {}

    def walk(of: Node) -> None:
        for each in of.inputs:
            if is_border(each):
                found[each] = None
            else:
                walk(each)

    walk(node)
    return list(found)


def sources_of(node: Node, cuts: dict[Node, Node], chain: tuple[Node, ...]) -> Iterator[Node]:
    """Yields the sources that a node of a query reads from."""
    for each in reached(node):
        if each in chain:
            yield from sources_of(each, cuts, chain)
        else:
            yield cuts.get(each, each)


def needs_watermark(node: Node) -> bool:
    match node.operation:
        case Aggregate(window=window):
            return window is not None
        case StreamJoin():
            return True
        case Keyed(time=time):
            return time in ("event", "both")
        case _:
            return False


def lateness(node: Node) -> timedelta:
    """Returns how much later than others the rows of a node may come, in event time."""
    match node.operation:
        case Source(late=late):
            return late
        case _:
            found = max((lateness(each) for each in node.inputs), default=timedelta())
    match node.operation:
        case StreamJoin(before=before, after=after):
            return found + before + after
        case Aggregate(window=window) if window is not None:
            return found + window.size + window.grace
        case _:
            return found


def grace(nodes: tuple[Node, ...]) -> timedelta:
    """Returns the longest grace of built-in windows: for Spark, part of the watermark."""
    found = timedelta()
    for node in nodes:
        if isinstance(node.operation, Aggregate) and node.operation.window is not None:
            found = max(found, node.operation.window.grace)
    return found


# Cuts


def _uses(ends: list[Node], known: list[Node]) -> dict[Node, list[Node]]:
    """Returns for each stateful node who uses its rows: stateful nodes, repartitions, and ends."""
    found: dict[Node, list[Node]] = {node: [] for node in known if node.is_stateful}
    for node in known:
        if not is_border(node) and node not in ends:
            continue
        for before in reached(node):
            if before.is_stateful:
                found[before].append(node)
    return found


def _refused(before: Node, node: Node, uses: list[Node], chain: tuple[Node, ...]) -> str | None:
    """Returns why the rows of a stateful operator cannot stay in the query of the next one."""
    others = [each.name for each in uses if each is not node]
    if others:
        return f"{', '.join(others)} reads {before.name} as well"
    if (failing := _failing(before, node)) is not None:
        return f"records for which {failing.name} fails could not leave the query in between"
    if len(chain) >= _STATEFUL_IN_QUERY_MAX:
        return f"there are {len(chain)} stateful operators before {node.name} already"
    match before.operation, node.operation:
        case StreamJoin(), Aggregate(window=window, final=True) if window is not None:
            if window.kind in ("tumbling", "hopping"):
                return None
        case StreamJoin(how="inner" | "semi"), Aggregate(window=None):
            return None
        case Keyed(time="none"), Keyed(time="none"):
            return None
        case Keyed(time="none"), Aggregate(window=None):
            return None
        case _:
            pass
    return f"Spark does not run {node.name} behind {before.name} in one query"


def _failing(before: Node, node: Node) -> Node | None:
    """Returns an operator that calls functions of the user for records, from one stateful operator
    to right before the next one."""
    operation = before.operation
    if isinstance(operation, Frame | ForeignKeyJoin) or (
        isinstance(operation, Keyed) and operation.can_fail
    ):
        return before
    for each in node.inputs:
        if each is before or is_border(each):
            continue
        if isinstance(each.operation, Call):
            return each
        if (found := _failing(before, each)) is not None:
            return found
    return None


def _cut(
    app: App,
    node: Node,
    written: Node,
    cuts: dict[Node, Node],
    topics: list[Topic],
    ends: list[Node],
) -> None:
    """Has the rows of a node go through an internal topic: its changelog, if it has one."""
    if node.store is not None:
        name = f"{app.name}-{node.store}-changelog"
    else:
        name = f"{app.name}-{node.name}-repartition"
        partitions = None
        if isinstance(node.operation, Repartition):
            partitions = node.operation.partitions
        topics.append(Topic(name, compacted=False, partitions=partitions))
        ends.append(_internal_sink(written, name, partitions=partitions))
    cuts[node] = replace(
        node,
        name=name,
        operation=Source(topics=(name,), internal=True, late=lateness(node)),
        inputs=(),
        store=None,
    )


def _internal_sink(
    node: Node, topic: str, *, compacted: bool = False, partitions: int | None = None
) -> Node:
    operation = Sink(to=topic, compacted=compacted, internal=True, partitions=partitions)
    return replace(node, name=topic, operation=operation, inputs=(node,), store=None)


# Queries


def _queries(
    app: App,
    ends: list[Node],
    known: list[Node],
    chains: dict[Node, tuple[Node, ...]],
    cuts: dict[Node, Node],
    why: dict[Node, str],
) -> list[QueryPlan]:
    stateless: list[QueryPlan] = []
    heads: dict[Node, QueryPlan] = {}
    names: set[str] = set()
    for head, chain in chains.items():
        own = tuple(end for end in ends if head in reached(end))
        if not own:
            continue  # part of the chain of another head
        sources = tuple(dict.fromkeys(sources_of(head, cuts, chain)))
        reasons = [why[each] for each in cuts if cuts[each] in sources and each in why]
        heads[head] = QueryPlan(
            app=app.name,
            name=_unique(head.store or (head.name if head.is_named else _name(own, head)), names),
            head=head,
            starts=(head,),
            stateful=chain,
            sources=sources,
            ends=own,
            mode=_mode(chain),
            why="; ".join(reasons),
        )
    for group, starts in _stateless_groups(ends):

        def part(starts: tuple[Node, ...], own: tuple[Node, ...]) -> QueryPlan:
            sources = tuple(cuts.get(each, each) for each in starts)
            return QueryPlan(app.name, "", None, starts, (), sources, own, "append")

        parts = [part(starts, group)]
        if len(starts) > 1 and parts[0].fans_out:
            parts = [
                part((start,), tuple(end for end in group if start in reached(end)))
                for start in starts
            ]
        stateless += [replace(each, name=_unique(_name(each.ends, None), names)) for each in parts]
    return _in_order([*stateless, *heads.values()])


def _stateless_groups(
    ends: list[Node],
) -> list[tuple[tuple[Node, ...], tuple[Node, ...]]]:
    """Returns ends that share sources (or repartitions), together with those."""
    groups: list[tuple[list[Node], dict[Node, None]]] = []
    for end in ends:
        starts = dict.fromkeys(each for each in reached(end) if not each.is_stateful)
        if not starts:
            continue
        joined: tuple[list[Node], dict[Node, None]] = ([], {})
        rest = []
        for group in groups:
            if group[1].keys() & starts.keys():
                joined[0].extend(group[0])
                joined[1].update(group[1])
            else:
                rest.append(group)
        joined[0].append(end)
        joined[1].update(starts)
        groups = [*rest, joined]
    return [(tuple(own), tuple(starts)) for own, starts in groups]


def _mode(chain: tuple[Node, ...]) -> Mode:
    mode: Mode = "append"
    for node in chain:
        match node.operation:
            case Aggregate(final=False) | Keyed() | ForeignKeyJoin() | Frame():
                mode = "update"
            case _:
                pass
    return mode


def _name(ends: tuple[Node, ...], head: Node | None) -> str:
    for end in ends:
        if end.is_named:
            return end.name
    for end in ends:
        operation = end.operation
        if isinstance(operation, Sink) and isinstance(operation.to, str):
            return operation.to
    return head.name if head is not None else ends[0].name


def _unique(name: str, names: set[str]) -> str:
    found, number = name, 1
    while found in names:
        number += 1
        found = f"{name}-{number}"
    names.add(found)
    return found


def _in_order(queries: list[QueryPlan]) -> list[QueryPlan]:
    """Sorts queries so that the writers of internal topics come before their readers."""
    left, found = list(queries), []
    while left:
        writes = {topic for each in left for topic in each.topics_written}
        ready = [
            each
            for each in left
            if not any(topic in writes - set(each.topics_written) for topic in each.topics_read)
        ]
        ready = ready or left[:1]  # a loop through topics: in the order of declaration
        found += ready
        left = [each for each in left if each not in ready]
    return found


# Refusals


def _check_used(app: App, known: list[Node]) -> None:
    tables = {node.operation.table for node in known if isinstance(node.operation, GlobalJoin)}
    read = {each for node in app.nodes for each in node.inputs}
    for node in app.nodes:
        if node not in known and node not in tables and node not in read:
            raise TopologyError(
                node.name,
                "nothing reads its rows",
                then='add .to("topic"), .foreach(function), or name= if it is a table',
                place=node.place,
            )


def _check(node: Node) -> None:
    match node.operation:
        case Aggregate(window=window, final=final) if window is not None:
            if window.kind == "sliding" or (window.kind == "session" and not final):
                then = "use .aggregate(...) or .reduce(...) with Python functions"
                if window.kind == "session":
                    then = f"call .final(), or {then}"
                raise TopologyError(
                    node.name,
                    f"Spark has no early results of columns in {window.kind} windows",
                    then=then,
                    place=node.place,
                )
        case _:
            pass


def _check_real_time(made: Plan) -> None:
    """TopologyError says why the topology cannot run in real time."""
    for query in made.queries:
        for node in [*query.stateful, *query.behind(), *ancestors(query.ends)]:
            reason = _no_real_time(node)
            if reason is not None:
                raise TopologyError(
                    node.name,
                    f'latency="real-time" is not possible: {reason}',
                    then="use columns (f.…) instead, or leave out latency=",
                    place=node.place,
                )
        if query.head is not None:
            for node in (*query.sources, *query.stateful):
                if made.on_error(node) == "dead_letter":
                    which = "deserialization" if node in query.sources else "processing"
                    option = f'on_{which}_error="continue"'
                    raise TopologyError(
                        node.name,
                        'latency="real-time" is not possible: dead letters beside an aggregation '
                        "would have its topic read twice",
                        then=f'give it on_error("continue"), or the app {option}',
                        place=node.place,
                    )
        if query.fans_out:
            raise TopologyError(
                query.name,
                'latency="real-time" is not possible: its rows are used more than once',
                then="make an app of each output, or leave out latency=",
            )


def _no_real_time(node: Node) -> str | None:
    operation = node.operation
    match operation:
        case Call():
            return f"{operation} is a Python function, which Spark does not support there"
        case Keyed() | ForeignKeyJoin() | GlobalJoin():
            return f"{operation} runs in Python, which Spark does not support there"
        case StreamJoin():
            return "Spark does not support joins of two streams there"
        case Aggregate(final=True):
            return "final() needs output mode append, and only update is allowed there"
        case Aggregate(window=window) if window is not None and window.kind == "session":
            return "Spark does not support session windows there"
        case Frame():
            return "the effect of a DataFrame function is unknown"
        case Sink(to=to) if callable(to) and not isinstance(to, str):
            return "a Python function chooses the topic, which Spark does not support there"
        case _:
            return None
