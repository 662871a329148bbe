"""The nodes of a local cluster: their ids, their addresses, and the files they start from.

`headwater start --nodes N --data DIR` writes one `node-ID.properties` for each node, which
`headwater start --config` and Kafka take as they are, and formats `node-ID` beside it.
`cluster.properties` is written last: a folder that has it holds a complete cluster.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from headwater.cli.errors import USAGE, CommandError
from headwater.config.catalog import broker_definitions
from headwater.config.properties import parse_properties

if TYPE_CHECKING:
    from headwater.quorum import VoterSet

LISTEN_DEFAULT = "127.0.0.1:9092"
NODES_MAX = 100
_VOTERS_MAX = 5
_COPIES_MAX = 3
_PORT_MAX = 65535
_LASTING_PORTS = (12_000, 32_000)  # below net.ipv4.ip_local_port_range of Linux
_PORT_TRIES = 1000
_CLUSTER_FILE = "cluster.properties"
_LISTENER = "CONTROLLER"
_QUORUM_HOST = "127.0.0.1"  # all nodes are on this host, and nobody else talks to controllers

# What the plan decides for each node, so that one value for all of them makes no sense.
_OWN_KEYS = """
advertised.listeners broker.id controller.listener.names controller.quorum.bootstrap.servers
controller.quorum.voters headwater.metrics.listen listeners log.dir log.dirs metadata.log.dir
node.id process.roles
"""

# What differs between the files of two nodes with the same roles, or with others.
_KEYS_OF_NODE = ("node.id", "process.roles", "listeners", "log.dirs")


@dataclass(frozen=True, slots=True)
class PlannedNode:
    id: int
    host: str  # as given with --listen; empty for every interface
    port: int
    controller_port: int | None  # None for a node that is only a broker
    directory_id: bytes  # of its metadata, when it is formatted for the first time

    @property
    def listeners(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        own = f"PLAINTEXT://{host}:{self.port}"
        if self.controller_port is None:
            return own
        return f"{own},{_LISTENER}://{_QUORUM_HOST}:{self.controller_port}"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A local cluster. `folder` has its files; its nodes may still keep their data in memory."""

    folder: str
    cluster_id: str
    nodes: tuple[PlannedNode, ...]

    @property
    def voters(self) -> tuple[PlannedNode, ...]:
        return tuple(node for node in self.nodes if node.controller_port is not None)

    @property
    def initial_controllers(self) -> str:
        """The voters as `headwater format --initial-controllers` takes them."""
        from headwater.model import id_text

        return ",".join(
            f"{node.id}@{_QUORUM_HOST}:{node.controller_port}:{id_text(node.directory_id)}"
            for node in self.voters
        )

    def data(self, node_id: int) -> str:
        return f"{self.folder}/node-{node_id}"

    def config_file(self, node_id: int) -> str:
        return f"{self.folder}/node-{node_id}.properties"

    def properties(self, node: PlannedNode) -> dict[str, str]:
        count = len(self.nodes)
        copies = str(min(_COPIES_MAX, count))
        # With three nodes, what two have stored survives the loss of any one; with fewer, a second
        # copy that is required would only make the loss of a node an outage.
        in_sync = "2" if count >= _COPIES_MAX else "1"
        properties = {
            "node.id": str(node.id),
            "process.roles": "broker" if node.controller_port is None else "broker,controller",
            "listeners": node.listeners,
            "controller.listener.names": _LISTENER,
            "controller.quorum.bootstrap.servers": ",".join(
                f"{_QUORUM_HOST}:{voter.controller_port}" for voter in self.voters
            ),
            "log.dirs": self.data(node.id),
            "broker.rack": socket.gethostname(),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
        }
        if node.controller_port is not None:
            # A node that comes back with an empty directory votes again by itself.
            properties["controller.quorum.auto.join.enable"] = "true"
        known = broker_definitions()
        return {key: value for key, value in properties.items() if known[key].supported}

    def write_files(self) -> None:
        """Writes the settings of each node."""
        for node in self.nodes:
            self.write_file(node, self.properties(node))

    def write_file(self, node: PlannedNode, properties: Mapping[str, str]) -> None:
        lines = [f"# Node {node.id} of a local cluster of {len(self.nodes)} nodes."]
        lines += [f"{key}={value}" for key, value in properties.items()]
        # For its owner alone: there may be passwords in it.
        path = self.config_file(node.id)
        with open(path, "w", encoding="utf-8", opener=_private) as file:
            file.write("\n".join(lines) + "\n")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def new_plan(folder: str, count: int, listen: str | None) -> ClusterPlan:
    """Chooses ports and ids for a new cluster."""
    from headwater.io import Host
    from headwater.model import id_text

    host, first = parse_listen(listen or LISTEN_DEFAULT)
    voters = min(count, _VOTERS_MAX)
    ports = free_ports(host, first, count)
    quorum = free_ports(
        _QUORUM_HOST,
        ports[-1] + 1 if first else 0,
        voters,
        must_be_first=False,
        taken=set(ports),
    )
    random_id = Host.system().random_id
    return ClusterPlan(
        folder,
        id_text(random_id()),
        tuple(
            PlannedNode(
                number + 1,
                host,
                ports[number],
                quorum[number] if number < voters else None,
                random_id(),
            )
            for number in range(count)
        ),
    )


def plan_on_disk(folder: str, count: int, listen: str | None) -> ClusterPlan:
    """Returns the cluster in `folder`, which is made and formatted if there is none."""
    found = count_of_cluster(folder)
    if found is None:
        _require_unused(folder)
        plan = new_plan(folder, count, listen)
        os.makedirs(folder, exist_ok=True)
        plan.write_files()
        for node in plan.nodes:
            _format(plan, node, is_new=True)
        _write_cluster_file(plan)
        return plan
    if found != count:
        raise CommandError(
            f"{folder} has a cluster of {found} nodes, not of {count}",
            then=_how_to_change(_recorded_plan(folder, found), count),
        )
    plan = _continued(_recorded_plan(folder, count), listen)
    for node in plan.nodes:
        if not os.path.exists(f"{plan.data(node.id)}/meta.properties"):
            _format(plan, node, is_new=False)
    return plan


def count_of_cluster(folder: str) -> int | None:
    """Returns how many nodes the local cluster in a folder has, or None if it has no cluster."""
    try:
        with open(f"{folder}/{_CLUSTER_FILE}", encoding="utf-8") as file:
            return int(parse_properties(file.read())["nodes"])
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise CommandError(f"{folder}/{_CLUSTER_FILE} is malformed: {error}") from None


def _require_unused(folder: str) -> None:
    if os.path.exists(f"{folder}/meta.properties"):
        raise CommandError(
            f"{folder} has the data of a single node",
            then="start that node without --nodes, or choose another directory with --data",
        )
    if os.path.exists(f"{folder}/node-1") or os.path.exists(f"{folder}/node-1.properties"):
        raise CommandError(
            f"{folder} has no {_CLUSTER_FILE}: its first start was interrupted",
            then="remove it, or choose another directory with --data",
        )


def _how_to_change(plan: ClusterPlan, asked: int) -> str:
    """Returns the commands that add a node to a cluster that runs, or remove one."""
    found = len(plan.nodes)
    is_added = asked > found
    commands = _adding(plan) if is_added else _removing(plan)
    now = found + 1 if is_added else found - 1
    commands += [f"sed -i 's/^nodes=.*/nodes={now}/' {quote(f'{plan.folder}/{_CLUSTER_FILE}')}"]
    what = f"add node {now}" if is_added else f"remove node {found} once its process has ended"
    return "\n    ".join(
        (f"continue it with --nodes {found}; to {what}, while the others run:", *commands)
    )


def _adding(plan: ClusterPlan) -> list[str]:
    first, node_id = plan.nodes[0], len(plan.nodes) + 1
    used = {port for node in plan.nodes for port in (node.port, node.controller_port)}
    last = max(port for port in used if port is not None)
    votes = node_id <= _VOTERS_MAX
    port, *others = free_ports(first.host, last + 1, 1 + votes, must_be_first=False)
    node = PlannedNode(node_id, first.host, port, others[0] if votes else None, first.directory_id)
    new = plan.properties(node)
    changes = [f"s|^{key}=.*|{key}={new[key]}|" for key in _KEYS_OF_NODE]
    if not votes:
        changes.append("/^controller.quorum.auto.join.enable=/d")
    path = quote(plan.config_file(node_id))
    return [
        f"sed {quote('; '.join(changes))} {quote(plan.config_file(1))} > {path}",
        f"headwater format --config {path} --cluster-id {plan.cluster_id} --no-initial-controllers",
        f"headwater start --config {path}",
    ]


def _removing(plan: ClusterPlan) -> list[str]:
    *others, node = plan.nodes
    at = f"--bootstrap {others[0].host or _QUORUM_HOST}:{others[0].port} --yes"
    commands = [f"headwater cluster unregister {node.id} {at}"]
    if node.controller_port is not None:
        commands.insert(0, f"headwater cluster quorum remove {node.id} {at}")
    return commands


def _cluster_id(folder: str) -> str:
    with open(f"{folder}/{_CLUSTER_FILE}", encoding="utf-8") as file:
        return parse_properties(file.read()).get("cluster.id", "")


def _recorded_plan(folder: str, count: int) -> ClusterPlan:
    """Reads the files of a cluster."""
    from headwater.config.listeners import parse_listeners
    from headwater.io import Host

    protocols = {"PLAINTEXT": "PLAINTEXT", _LISTENER: "PLAINTEXT"}
    nodes = []
    for node_id in range(1, count + 1):
        path = f"{folder}/node-{node_id}.properties"
        try:
            with open(path, encoding="utf-8") as file:
                given = parse_properties(file.read())
            listeners = parse_listeners("listeners", given["listeners"].split(","), protocols)
            at = {listener.name: listener for listener in listeners}
            own, quorum = at["PLAINTEXT"], at.get(_LISTENER)
        except (KeyError, ValueError) as error:
            raise CommandError(f"{path}: {error}") from None
        port = None if quorum is None else quorum.port
        nodes.append(PlannedNode(node_id, own.host, own.port, port, Host.system().random_id()))
    return ClusterPlan(folder, _cluster_id(folder), tuple(nodes))


def _continued(plan: ClusterPlan, listen: str | None) -> ClusterPlan:
    """Brings the files of a cluster up to date: another --listen moves the nodes to other ports."""
    nodes = plan.nodes
    if listen is not None:
        host, first = parse_listen(listen)
        if (host, first) != (nodes[0].host, nodes[0].port):
            taken = {node.controller_port for node in nodes}
            ports = free_ports(host, first, len(nodes), taken=taken)
            moved = tuple(
                PlannedNode(node.id, host, port, node.controller_port, node.directory_id)
                for node, port in zip(nodes, ports, strict=True)
            )
            plan = ClusterPlan(plan.folder, plan.cluster_id, moved)
    for node in plan.nodes:
        given = _recorded(plan, node)
        placed = {"listeners": node.listeners, "log.dirs": plan.data(node.id)}
        # The folder or the ports have changed, or a release before this one wrote fewer settings.
        wanted = plan.properties(node) | given | placed
        if wanted != given:
            plan.write_file(node, wanted)
    return plan


def _recorded(plan: ClusterPlan, node: PlannedNode) -> dict[str, str]:
    with open(plan.config_file(node.id), encoding="utf-8") as file:
        return dict(parse_properties(file.read()))


def _format(plan: ClusterPlan, node: PlannedNode, *, is_new: bool) -> None:
    """Formats a node's directory. One that is lost later gets another id: with the old one, a voter
    that has forgotten its vote would count."""
    from headwater.broker.formatting import InitialQuorum, format_directories
    from headwater.config import node_config
    from headwater.io import Host

    quorum = InitialQuorum(listed=_voter_set(plan)) if is_new else InitialQuorum()
    config = node_config(plan.properties(node))
    format_directories(Host.system(), config, cluster_id=plan.cluster_id, quorum=quorum)


def _voter_set(plan: ClusterPlan) -> VoterSet:
    from headwater.broker.formatting import parse_voters

    return parse_voters(plan.initial_controllers, _LISTENER)


def _write_cluster_file(plan: ClusterPlan) -> None:
    text = f"cluster.id={plan.cluster_id}\nnodes={len(plan.nodes)}\n"
    path = f"{plan.folder}/{_CLUSTER_FILE}"
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)


# Settings and ports


def check_shared(settings: Mapping[str, str]) -> None:
    """Refuses settings that differ from node to node."""
    for key, value in settings.items():
        if key in _OWN_KEYS.split():
            raise CommandError(
                f"{key}={value}: --nodes sets it for each node",
                then="leave it out, or start each node with a file of its own (--config)",
                code=USAGE,
            )


def parse_listen(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or "://" in host or not port.isdigit() or int(port) > _PORT_MAX:
        raise CommandError(
            f"--listen {listen}: expected HOST:PORT such as 127.0.0.1:9092, "
            "127.0.0.1:0 for any free port, or :9092 for every interface",
            code=USAGE,
        )
    return host.strip("[]"), int(port)


def free_ports(
    host: str,
    first: int,
    count: int,
    *,
    must_be_first: bool = True,
    taken: set[int | None] | None = None,
) -> list[int]:
    """Returns `first` and the next free ports, or any free ports for 0. They are not held: a node
    that finds its port in use says so."""
    if first == 0:
        return _any_free_ports(host, count, taken or set())
    found: list[int] = []
    for port in range(first, _PORT_MAX + 1):
        if port not in (taken or ()) and _is_free(host, port):
            found.append(port)
        elif port == first and must_be_first:
            raise CommandError(
                f"{host}:{first} is in use by another process",
                then="stop that process, or choose another port with --listen HOST:PORT "
                "(port 0 picks free ports)",
            )
        if len(found) == count:
            return found
    raise CommandError(f"there are no {count} free ports from {first} on")


def _any_free_ports(host: str, count: int, taken: set[int | None]) -> list[int]:
    """Returns ports that the kernel does not give to outgoing connections, if there are any: while
    a node is down, somebody's connection must not take its port."""
    ports: set[int] = set()
    for _ in range(_PORT_TRIES):
        port = random.randrange(*_LASTING_PORTS)
        if port not in taken and _is_free(host, port):
            ports.add(port)
        if len(ports) == count:
            return list(ports)
    held = [_bound(host, 0) for _ in range(count)]
    found = [sock.getsockname()[1] for sock in held]
    for sock in held:
        sock.close()
    return found


def _is_free(host: str, port: int) -> bool:
    try:
        _bound(host, port).close()
    except OSError:
        return False
    return True


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
