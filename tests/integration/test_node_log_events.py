"""Events in the log: each is one line, whatever a client sends."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.wire import Wire, until
from headwater import (
    Acl,
    AclPattern,
    AclResource,
    Admin,
    AuthenticationFailed,
    Producer,
    blocking,
)
from headwater.broker.node_log import LOGGERS
from headwater.cli.main import main
from headwater.client.admin import ConfigResource, ResourceType, topic_config
from headwater.client.errors import AuthorizationError, ClientError
from headwater.security.operations import Operation
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "log.md"
# To forge a line, a field, or the colour of a terminal.
UNKIND = 'mallory\n2026-01-01T00:00:00.000Z INFO  allowed: principal=User:x \x1b[31m"quoted" a=b'


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "headwater.log.format": "json",
        "headwater.log.slow.ms": "1",
        "connection.failed.authentication.delay.ms": "0",
    }
    with EmbeddedBroker(settings, users={"admin": "secret", "alice": "wonderland"}) as broker:
        yield broker


def login(broker: EmbeddedBroker, user: str, password: str) -> dict[str, Any]:
    return {**broker.client_settings, "sasl_username": user, "sasl_password": password}


def events(broker: EmbeddedBroker, logger: str, message: str) -> list[dict[str, Any]]:
    """Each line is one object, and no client can make it two."""
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in broker.log_lines)
    assert all(line.isascii() and line[:-1].isprintable() for line in broker.log_lines)
    lines = [json.loads(line) for line in broker.log_lines]
    return [
        line for line in lines if line["logger"] == logger and line["message"].startswith(message)
    ]


def test_a_failed_login_is_one_line_with_who_and_why(broker: EmbeddedBroker) -> None:
    @story
    async def log_in() -> None:
        for user in ("alice", UNKIND):
            with pytest.raises(AuthenticationFailed):
                async with Admin(broker.bootstrap, **login(broker, user, "wrong")):
                    pass

    log_in()
    failed = events(broker, "headwater.authentication", "authentication failed")
    assert [line["user"] for line in failed if line["user"] == "alice"] == ["alice"]
    for line in failed:
        assert line["peer"].startswith("127.0.0.1:")
        assert line["mechanism"] == broker.client_settings["sasl_mechanism"]
        assert line["listener"]
        assert line["reason"]
        assert "wrong" not in json.dumps(line)


def test_a_denial_is_one_line_with_all_that_an_audit_asks_for(broker: EmbeddedBroker) -> None:
    @story
    async def write() -> None:
        async with Admin(broker.bootstrap, **login(broker, "admin", "secret")) as admin:
            await admin.create_topics({"orders": 1})
        settings = login(broker, "alice", "wonderland") | {"enable_idempotence": False}
        async with Producer(broker.bootstrap, **settings) as producer:
            with pytest.raises(AuthorizationError):
                await producer.send("orders", value=b"x")

    write()
    denied = events(broker, "headwater.authorizer", "authorization denied")
    line = next(line for line in denied if line["resource"] == "TOPIC:orders")
    assert line["verdict"] == "denied"
    assert line["principal"] == "User:alice"
    assert line["host"] == "127.0.0.1"
    assert line["operation"] in ("DESCRIBE", "WRITE")
    assert line["api"] in ("METADATA", "PRODUCE")
    (shown,) = re.findall(r"```json\n(.*?)\n```", PAGE.read_text())
    assert json.loads(shown).keys() == line.keys()


AUDITED = ["verdict", "principal", "operation", "resource", "host", "api"]


def test_what_is_allowed_has_the_fields_of_a_denial(broker: EmbeddedBroker) -> None:
    @story
    async def allow() -> None:
        audit = ConfigResource(ResourceType.BROKER_LOGGER, "1")
        async with Admin(broker.bootstrap, **login(broker, "admin", "secret")) as admin:
            await admin.alter_config(audit, {"headwater.authorizer": "DEBUG"})
            await admin.create_topics({"audited": 1})
            await admin.alter_config(audit, {"headwater.authorizer": None})

    allow()
    allowed = events(broker, "headwater.authorizer", "authorization allowed")
    assert [
        "allowed",
        "User:admin",
        "CREATE",
        "CLUSTER:kafka-cluster",
        "127.0.0.1",
        "CREATE_TOPICS",
    ] in [[line[name] for name in AUDITED] for line in allowed]
    for line in events(broker, "headwater.authorizer", "authorization"):
        assert list(line) == ["time", "level", "logger", "message", "node", *AUDITED]
        assert line["message"] == f"authorization {line['verdict']}"


def test_denials_come_first_where_a_request_names_more_than_the_log_shows(
    broker: EmbeddedBroker,
) -> None:
    """Otherwise a hundred names that are allowed would hide the one that is not."""

    @story
    async def describe() -> None:
        async with Admin(broker.bootstrap, **login(broker, "admin", "secret")) as admin:
            rule = Acl(AclResource.TOPIC, "own-", "User:alice", Operation.DESCRIBE)
            await admin.create_acls([replace(rule, pattern=AclPattern.PREFIXED)])
        async with Admin(broker.bootstrap, **login(broker, "alice", "wonderland")) as alice:
            names = [*(f"own-{number}" for number in range(150)), "secret"]
            await alice.describe_topics(names)

    describe()
    denied = events(broker, "headwater.authorizer", "authorization denied")
    assert any(line["resource"] == "TOPIC:secret" for line in denied)
    assert any("151 TOPIC in all, of which 1 are denied" in line["resource"] for line in denied)


def test_the_text_of_a_verdict_has_the_fields_of_its_object() -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with EmbeddedBroker(settings, users={"admin": "secret", "alice": "wonderland"}) as broker:
        with blocking.Admin(broker.bootstrap, **login(broker, "alice", "wonderland")) as alice:
            alice.create_topics({"orders": 1})
        (line,) = [line for line in broker.log_lines if "authorization" in line]
    shown = re.search(r"INFO  (authorization denied: .*)", PAGE.read_text())
    assert shown is not None
    assert line.split(" INFO  ")[1] == (
        "authorization denied: verdict=denied principal=User:alice operation=CREATE "
        "resource=TOPIC:orders host=127.0.0.1 api=CREATE_TOPICS\n"
    )
    names = re.findall(r"(\w+)=", line)
    assert names == re.findall(r"(\w+)=", shown[1]) == AUDITED


def test_a_changed_setting_and_a_slow_request_are_a_line_each(broker: EmbeddedBroker) -> None:
    @story
    async def change() -> None:
        settings = login(broker, "admin", "secret")
        async with Admin(broker.bootstrap, client_id=UNKIND, **settings) as admin:
            await admin.create_topics({"settled": 300})
            await admin.alter_config(topic_config("settled"), {"retention.ms": "1000"})

    change()
    changed = events(broker, "headwater.controller", "topic settled: retention.ms")
    assert [line["message"] for line in changed] == ["topic settled: retention.ms was set to 1000"]
    numbers = itertools.count(1)

    @story
    async def create() -> None:
        settings = login(broker, "admin", "secret")
        async with Admin(broker.bootstrap, client_id=UNKIND, **settings) as admin:
            await admin.create_topics({f"slow-{next(numbers)}": 300})

    def slow() -> list[dict[str, Any]]:
        lines = events(broker, "headwater.requests", "slow request")
        ours = [line for line in lines if line["client"] == UNKIND]
        if not ours:  # on a busy machine everything is slow, and the lines of a second are bounded
            create()
        return ours

    line = until(slow, "a line")[0]
    assert line["api"]
    assert line["principal"] == "User:admin"
    assert line["total_ms"] >= 1
    (shown,) = re.findall(r"WARN  slow request: (.*)", PAGE.read_text())
    fields = [field.partition("=")[0] for field in shown.split()]
    assert fields == [name for name in line if name in fields]
    assert line.keys() - set(fields) <= {"time", "level", "logger", "message", "node", "errors"}


def test_a_refused_connection_is_one_line_with_its_reason(broker: EmbeddedBroker) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.socket.sendall(b"\xff\xff\xff\xff" + UNKIND.encode())
        wire.wait_until_closed()
        me = "{}:{}".format(*wire.socket.getsockname()[:2])

    def refused() -> list[dict[str, Any]]:
        return events(broker, "headwater.connections", f"connection from {me} closed")

    (line,) = until(refused, "a line")
    assert "invalid frame size -1" in line["message"]
    assert line["level"] == "warn"


def test_a_hostile_name_stays_within_its_line(broker: EmbeddedBroker) -> None:
    @story
    async def administer() -> None:
        async with Admin(broker.bootstrap, **login(broker, "admin", "secret")) as admin:
            (refused,) = (await admin.create_topics({UNKIND: 1})).values()
            assert isinstance(refused, ClientError)
            await admin.set_scram(UNKIND, "password-of-mallory")

    administer()
    (line,) = events(broker, "headwater.controller", "user mallory")
    assert "\n" not in line["message"]
    assert "password-of-mallory" not in "".join(broker.log_lines)


def test_the_page_names_the_loggers_and_its_commands_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text()
    assert set(re.findall(r"`(headwater\.\w+)`", text)) == set(LOGGERS)
    commands = re.findall(r"^headwater (config .*)$", text, re.MULTILINE)
    assert len(commands) == 3
    with EmbeddedBroker() as broker:
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap)
        for command in commands:
            assert main(shlex.split(command)) == 0, (command, capsys.readouterr())
        assert any("logger headwater.requests was set to DEBUG" in x for x in broker.log_lines)
