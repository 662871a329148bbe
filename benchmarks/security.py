"""The cost of protection: TLS, logins, rules.

Both brokers run at once and are measured in turn, on listeners of the same kind, with the same
certificates and cipher suites. Kafka has the key on its classpath as PEM, as we do.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import hmac
import itertools
import resource
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.clients import (
    consumer_performance,
    create_topic,
    librdkafka_readers,
    producer_performance,
)
from benchmarks.rows import (
    Goal,
    Measurement,
    Session,
    at_least,
    at_most,
    value_at_least,
    value_at_most,
)
from benchmarks.wire import Wire, pipelined_produce
from harness.nodes import Flavour, Kafka, Node, free_port
from headwater import Admin
from headwater.client.admin import Acl, AclPattern, AclResource
from headwater.security.dev_certificates import issue, new_authority
from headwater.security.operations import Operation
from headwater.security.sasl.scram import salted_password

_SCRAM: Final = "SCRAM-SHA-256"
_HANDSHAKE, _AUTHENTICATE = 17, 36
_USER, _PASSWORD, _ITERATIONS = "alice", "wonderland", 4096
_RULES = 1000
CONNECTIONS, _WINDOW = 8, 16
_API_VERSIONS_FRAME = struct.pack(">ihhih", 10, 18, 0, 7, -1)
_WARM_UP_CONNECTIONS = 300

Pair = tuple[Measurement, Measurement]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A node with a listener of each kind."""

    node: Node
    ports: dict[str, int]

    @property
    def bootstrap(self) -> str:
        """The address of the listener with TLS."""
        return f"localhost:{self.ports['SSL']}"


def security(session: Session, kafka: Flavour, subject: Flavour) -> Iterator[Pair]:
    """TLS and SCRAM, on both brokers in turn."""
    folder = session.folder / "certificates"
    folder.mkdir(exist_ok=True)
    authority = _certificates(folder)
    nodes = [_guarded(session, flavour, folder) for flavour in (kafka, subject)]
    try:
        if session.wants_below("tls"):
            yield from _throughput(session, nodes, authority)
        if session.wants_below("logins"):
            yield from _logins(session, nodes)
        if session.wants_below("tls"):
            yield from _connections(session, nodes)
    finally:
        for guarded in nodes:
            guarded.node.remove()


def _certificates(folder: Path) -> str:
    """Makes an authority and a server's certificate; returns the path of the authority."""
    now = datetime.datetime.now(datetime.UTC)
    authority = new_authority("benchmarks", now=now, days=1)
    ca = folder / "ca.pem"
    ca.write_text(authority.certificate)
    server = issue(authority, "localhost", ("localhost", "127.0.0.1"), now=now, days=1)
    (folder / "server.pem").write_text(server.pem)
    return str(ca)


def _guarded(session: Session, flavour: Flavour, folder: Path) -> Guarded:
    node = session.fresh_node(flavour)
    ports = {"SSL": free_port(), "SASL_PLAINTEXT": free_port()}
    listeners = [f"PLAINTEXT://{node.bootstrap}"]
    listeners += [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    advertised = [listeners[0], f"SSL://localhost:{ports['SSL']}", listeners[2]]
    if isinstance(flavour, Kafka):  # a node of ours needs none for itself
        listeners.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
    protocols = ("PLAINTEXT", *ports)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    node.settings |= {
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in protocols)]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "sasl.enabled.mechanisms": _SCRAM,
        f"listener.name.sasl_plaintext.{_SCRAM.lower()}.sasl.jaas.config": scram,
        "group.initial.rebalance.delay.ms": "0",
    }
    node.start()

    async def add_user() -> None:
        async with Admin(node.bootstrap) as admin:
            await admin.set_scram(_USER, _PASSWORD, mechanism=_SCRAM, iterations=_ITERATIONS)

    asyncio.run(add_user())
    return Guarded(node, ports)


def _pairs(
    key: str,
    what: str,
    unit: str,
    samples: list[list[float]],
    goal: Goal | None,
    *,
    more_is_better: bool,
) -> Pair:
    theirs, ours = (
        Measurement(key, what, unit, tuple(each), goal, more_is_better=more_is_better)
        for each in samples
    )
    return theirs, ours


# Throughput over TLS


def _throughput(session: Session, nodes: list[Guarded], authority: str) -> Iterator[Pair]:
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
    }
    rdkafka = {"security.protocol": "SSL", "ssl.ca.location": authority}
    size, records = 1000, session.size(400_000, 150_000)
    rounds = session.samples(3, 2)
    for guarded in nodes:
        create_topic(guarded.node, "warm")
        create_topic(guarded.node, "bytes")
        producer_performance(
            session.jars, guarded, "warm", records=records // 2, size=size, security=java
        )
    produced: list[list[float]] = [[], []]
    by_java: list[list[float]] = [[], []]
    by_librdkafka: list[list[float]] = [[], []]
    cpu_in: list[list[float]] = [[], []]
    cpu_out: list[list[float]] = [[], []]
    gigabytes = records * size / 1e9
    for number in range(rounds):
        for which in _order(number):
            before = nodes[which].node.cpu_seconds()
            done = producer_performance(
                session.jars, nodes[which], "bytes", records=records, size=size, security=java
            )
            produced[which].append(done.megabytes_per_second)
            cpu_in[which].append((nodes[which].node.cpu_seconds() - before) / gigabytes)
    for number in range(rounds):
        for which in _order(number):
            read = consumer_performance(
                session.jars, nodes[which], "bytes", records=records, security=java
            )
            by_java[which].append(read.megabytes_per_second)
    for number in range(rounds):
        for which in _order(number):
            before = nodes[which].node.cpu_seconds()
            read = librdkafka_readers(
                nodes[which], "bytes", partitions=1, records=records, readers=1, security=rdkafka
            )
            by_librdkafka[which].append(read.megabytes_per_second)
            cpu_out[which].append((nodes[which].node.cpu_seconds() - before) / gigabytes)
    for key, what, samples in (
        ("tls.produce", "produce 1000 B over TLS", produced),
        ("tls.consume.java", "consume 1000 B over TLS, ConsumerPerformance", by_java),
        ("tls.consume.librdkafka", "consume 1000 B over TLS, librdkafka", by_librdkafka),
    ):
        yield _pairs(key, what, "MB/s", samples, at_least(1.0), more_is_better=True)
    # Less noisy than rates, where the clients take most of the machine.
    for key, what, samples in (
        ("tls.cpu.in", "broker CPU for each GB in over TLS", cpu_in),
        ("tls.cpu.out", "broker CPU for each GB out over TLS", cpu_out),
    ):
        yield _pairs(key, what, "s/GB", samples, None, more_is_better=False)


def _order(number: int) -> tuple[int, int]:
    return (0, 1) if number % 2 else (1, 0)


# Connections with TLS


def _connections(session: Session, nodes: list[Guarded]) -> Iterator[Pair]:
    """Memory of idle connections, and how quickly they come."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    count, churn = session.size(3000, 1000), session.size(3000, 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * count)), hard))
    rates: list[list[float]] = [[], []]
    idle: list[list[float]] = [[], []]
    for guarded in nodes:
        for _ in range(_WARM_UP_CONNECTIONS):
            _secure(guarded, context).close()
    for number in range(2):
        for which in _order(number):
            started = time.monotonic()
            for _ in range(churn // 2):
                _secure(nodes[which], context).close()
            rates[which].append(churn // 2 / (time.monotonic() - started))
    for which, guarded in enumerate(nodes):
        before = guarded.node.resident_bytes()
        held = [_secure(guarded, context) for _ in range(count)]
        idle[which].append((guarded.node.resident_bytes() - before) / count / 1000)
        for each in held:
            each.close()
    yield _pairs(
        "tls.connections.rate",
        "TLS connections one after another",
        "connections/s",
        rates,
        None,
        more_is_better=True,
    )
    yield _pairs(
        "tls.connections.idle",
        "memory of an idle TLS connection",
        "KB",
        idle,
        at_most(1.0),
        more_is_better=False,
    )


def _secure(guarded: Guarded, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", guarded.ports["SSL"]), timeout=30)
    secured = context.wrap_socket(plain, server_hostname="localhost")
    secured.sendall(_API_VERSIONS_FRAME)
    assert secured.recv(4), "the connection was closed"
    return secured


# Logins


def _logins(session: Session, nodes: list[Guarded]) -> Iterator[Pair]:
    count = session.size(8000, 3000)
    rates: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    for guarded in nodes:  # a JVM compiles this path only after some thousand logins
        _log_in(guarded.ports["SASL_PLAINTEXT"], count)
    for number in range(session.samples(3, 2)):
        for which in _order(number):
            node = nodes[which].node
            before, started = node.cpu_seconds(), time.monotonic()
            _log_in(nodes[which].ports["SASL_PLAINTEXT"], count)
            rates[which].append(count / (time.monotonic() - started))
            cpu[which].append((node.cpu_seconds() - before) / count * 1e6)
    yield _pairs(
        "logins.scram",
        f"{_SCRAM} logins, 16 at a time",
        "logins/s",
        rates,
        at_least(1.0),
        more_is_better=True,
    )
    yield _pairs(
        "logins.scram.cpu",
        f"broker CPU for a {_SCRAM} login",
        "µs",
        cpu,
        None,
        more_is_better=False,
    )


Keys = dict[bytes, tuple[bytes, bytes]]  # of a user, by the salt


def _log_in(port: int, count: int, at_once: int = 16) -> None:
    """Logs in repeatedly, over a few sockets at a time. What follows from the password is computed
    once: clients do that, too, and the measurement is of the broker."""
    keys: Keys = {}
    begun = finished = 0
    selector = selectors.DefaultSelector()
    while finished < count:
        while begun < count and len(selector.get_map()) < at_once:
            peer = socket.create_connection(("127.0.0.1", port), timeout=30)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            steps = _scram(f"nonce{begun}x", keys)
            peer.sendall(next(steps))
            selector.register(peer, selectors.EVENT_READ, steps)
            begun += 1
        for key, _events in selector.select(30.0):
            assert isinstance(key.fileobj, socket.socket)
            peer = key.fileobj
            answer = peer.recv(4096)
            assert len(answer) == 4 + int.from_bytes(answer[:4]), "an answer came in pieces"
            try:
                peer.sendall(key.data.send(answer))
            except StopIteration:
                selector.unregister(peer)
                peer.close()
                finished += 1


def _scram(nonce: str, keys: Keys) -> Generator[bytes, bytes, None]:
    """Yields the requests of one login; takes the responses."""
    mechanism = _SCRAM.encode()
    yield _frame(_HANDSHAKE, struct.pack(">h", len(mechanism)) + mechanism)
    bare = f"n={_USER},r={nonce}"
    first = _token((yield _authenticate(f"n,,{bare}"))).decode()
    fields = dict(part.split("=", 1) for part in first.split(","))
    salt = base64.b64decode(fields["s"])
    if salt not in keys:
        salted = salted_password(_SCRAM, _PASSWORD, salt, int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        keys[salt] = client_key, hashlib.sha256(client_key).digest()
    client_key, stored_key = keys[salt]
    final = f"c=biws,r={fields['r']}"
    signature = hmac.digest(stored_key, f"{bare},{first},{final}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    said = f"{final},p={base64.b64encode(proof).decode()}"
    assert _token((yield _authenticate(said))).startswith(b"v="), "the broker proved nothing"


def _authenticate(said: str) -> bytes:
    return _frame(_AUTHENTICATE, struct.pack(">i", len(said)) + said.encode())


def _frame(api: int, body: bytes) -> bytes:
    frame = struct.pack(">hhih", api, 1, 7, -1) + body
    return struct.pack(">i", len(frame)) + frame


def _token(answer: bytes) -> bytes:
    """Returns what the broker says in a response to SaslAuthenticate."""
    error, message = struct.unpack_from(">hh", answer, 8)
    assert error == 0, f"the login was refused with error {error}"
    at = 12 + max(0, message)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


# Rules


def rules(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Requests per second with an authorizer and a thousand rules, to a node without one, which is
    measured in turn."""
    guarded = session.fresh_node(flavour)
    guarded.settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The node itself needs rights, and no rule is about the cluster.
        "allow.everyone.if.no.acl.found": "true",
    }
    nodes = [session.fresh_node(flavour).start(), guarded.start()]
    try:
        for node in nodes:
            create_topic(node, "many", CONNECTIONS)
        _add_rules(guarded)
        rates, cpu = requests_in_turn(session, nodes)
    finally:
        for node in nodes:
            node.remove()
    yield Measurement(
        "rules.requests",
        f"requests/s with {_RULES:,} rules, to those without an authorizer",
        "times",
        tuple(with_ / without for without, with_ in zip(*rates, strict=True)),
        value_at_least(0.95),
        more_is_better=True,
    )
    yield Measurement(
        "rules.cpu",
        f"broker CPU for a request with {_RULES:,} rules, to that without an authorizer",
        "times",
        tuple(with_ / without for without, with_ in zip(*cpu, strict=True)),
        value_at_most(1.05),
    )


def requests_in_turn(
    session: Session, nodes: list[Node]
) -> tuple[list[list[float]], list[list[float]]]:
    """Returns samples of two nodes with the topic `many`, measured in turn: produce requests a
    second, and the CPU of the broker for each."""
    rates: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    seconds = session.size(4, 2)
    for number in itertools.count(-2):  # the first two warm up
        for which in _order(number):
            ends, before = _ends(nodes[which], CONNECTIONS), nodes[which].cpu_seconds()
            rate = pipelined_produce(
                nodes[which].port,
                "many",
                seconds=seconds,
                connections=CONNECTIONS,
                window=_WINDOW,
                value=b"x" * 100,
            )
            appended = _ends(nodes[which], CONNECTIONS) - ends
            assert appended > 0, "nothing was appended"
            if number >= 0:
                rates[which].append(rate)
                cpu[which].append((nodes[which].cpu_seconds() - before) / appended)
        if number + 1 == session.samples(5, 3):
            break
    return rates, cpu


def _ends(node: Node, partitions: int) -> int:
    wire = Wire.connect(node.port)
    found = sum(wire.log_end("many", number) for number in range(partitions))
    wire.close()
    return found


def _add_rules(node: Node) -> None:
    """Adds the rule that lets the producer in, and many others about topics and users."""

    def rule(user: str, name: str, pattern: AclPattern) -> Acl:
        return Acl(AclResource.TOPIC, name, f"User:{user}", Operation.WRITE, pattern=pattern)

    made = [rule("ANONYMOUS", "many", AclPattern.LITERAL)]
    for number in range(1, _RULES):
        pattern = AclPattern.PREFIXED if number % 2 else AclPattern.LITERAL
        made.append(rule(f"user{number % 50}", "many"[: number % 5] + f"{number}", pattern))

    async def add() -> None:
        async with Admin(node.bootstrap) as admin:
            for first in range(0, _RULES, 200):
                await admin.create_acls(made[first : first + 200])

    asyncio.run(add())
