"""`headwater quota` against a broker, and the commands of docs/quotas.md.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.wire import until
from headwater.blocking import Admin
from headwater.cli.main import main
from headwater.testing import EmbeddedBroker

Quota = Callable[..., Any]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "quotas.md"


@pytest.fixture
def quota(
    shared_broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Quota:
    """Runs `headwater quota` and gives what it prints, read as JSON if it is."""
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", shared_broker.bootstrap)

    def run(*arguments: str, code: int = 0) -> Any:
        try:
            ended = main(("quota", *arguments))
        except SystemExit as end:
            ended = int(end.code or 0)
        printed = capsys.readouterr()
        assert ended == code, printed
        return json.loads(printed.out) if "json" in arguments else printed.out + printed.err

    return run


@pytest.fixture
def alice(shared_broker: EmbeddedBroker, topic: str) -> Iterator[str]:
    """A user of this test, without quotas in the end."""
    yield topic
    with Admin(shared_broker.bootstrap) as admin:
        found = admin.describe_quotas()
        mine = {each: dict.fromkeys(found[each]) for each in found if each.user == topic}
        if mine:
            admin.alter_quotas(mine)


def test_quotas_are_set_listed_and_deleted(quota: Quota, alice: str) -> None:
    def listed() -> dict[tuple[str | None, str], float]:
        rows = quota("list", "--user", alice, "--output", "json")
        return {(row["client_id"], row["quota"]): row["value"] for row in rows}

    said = quota("set", "--user", alice, "producer_byte_rate=10MB", "consumer_byte_rate=1MiB")
    assert f"user {alice}: producer_byte_rate is 10000000 B/s" in said
    assert f"user {alice}: consumer_byte_rate is 1048576 B/s" in said
    quota("set", "--user", alice, "--client-id", "etl", "request_percentage=12.5")
    quota("set", "--user", alice, "--default-client-id", "controller_mutation_rate=5")
    expected = {
        (None, "producer_byte_rate"): 10_000_000,
        (None, "consumer_byte_rate"): 1_048_576,
        ("etl", "request_percentage"): 12.5,
        ("<default>", "controller_mutation_rate"): 5,
    }
    until(lambda: listed() == expected, "the quotas")
    assert "12.5%" in quota("list", "--user", alice, "--client-id", "etl")
    assert "nothing was deleted" in quota("delete", "--user", alice)
    assert listed() == expected
    said = quota("delete", "--user", alice, "consumer_byte_rate", "--yes")
    assert f"user {alice}: consumer_byte_rate deleted" in said
    quota("delete", "--user", alice, "--client-id", "etl", "--yes")
    quota("delete", "--user", alice, "--default-client-id", "--yes", "--output", "json")
    until(lambda: list(listed()) == [(None, "producer_byte_rate")], "what is left")
    assert "consumer_byte_rate is not set" in quota(
        "delete", "--user", alice, "consumer_byte_rate", "--yes", code=1
    )
    quota("delete", "--user", alice, "--yes")
    until(lambda: not listed(), "the end")
    assert "has no quota" in quota("delete", "--user", alice, "--yes", code=1)


def test_a_dry_run_sets_nothing(quota: Quota, alice: str) -> None:
    said = quota("set", "--user", alice, "producer_byte_rate=1MB", "--dry-run")
    assert "could be set to 1000000 B/s" in said
    assert "no quotas" in quota("list", "--user", alice)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("set", "producer_byte_rate=1"), 2, "expected --user, --client-id"),
        (("set", "--user", "a", "no_such_rate=1"), 2, "unknown quota no_such_rate"),
        (("set", "--user", "a", "producer_byte_rat=1"), 2, "did you mean producer_byte_rate?"),
        (("set", "--user", "a", "producer_byte_rate=much"), 2, "expected bytes"),
        (("set", "--user", "a", "request_percentage=1MB"), 2, "expected a number"),
        (("set", "--user", "a"), 2, "expected KEY=VALUE"),
        (("set", "--user", "", "producer_byte_rate=1"), 2, "--default-user"),
        (("set", "--user", "a", "--default-user", "producer_byte_rate=1"), 2, "not allowed"),
        (("set", "--user", "a", "--ip", "::1", "producer_byte_rate=1"), 2, "cannot be combined"),
        (("set", "--user", "a", "producer_byte_rate=0"), 1, "INVALID_REQUEST"),
        (("set", "--ip", "no address", "connection_creation_rate=1"), 1, "INVALID_REQUEST"),
        (("set", "--ip", "10.9.8.7", "producer_byte_rate=1"), 1, "INVALID_REQUEST"),
        (("delete",), 2, "expected --user"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(
    quota: Quota, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert said in quota(*arguments, code=code)


def test_the_commands_of_the_page_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with EmbeddedBroker() as broker:
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap)
        for line in script.splitlines():
            assert main(shlex.split(line)[1:]) == 0, line
    assert "user alice, client-id etl: producer_byte_rate deleted" in capsys.readouterr().out
