"""`headwater user` against a broker.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.blocking import Admin
from headwater.cli.main import main
from headwater.testing import EmbeddedBroker

User = Callable[..., Any]


@pytest.fixture
def user(
    shared_broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> User:
    """Runs `headwater user` and gives what it prints, read as JSON if it is."""
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", shared_broker.bootstrap)

    def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Any:
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.StringIO(stdin))
        assert main(("user", *arguments)) == code, capsys.readouterr()
        printed = capsys.readouterr()
        return json.loads(printed.out) if "json" in arguments else printed.out + printed.err

    return run


@pytest.fixture
def alice(shared_broker: EmbeddedBroker, topic: str) -> Iterator[str]:
    """A user of this test; gone afterwards."""
    yield topic
    with Admin(shared_broker.bootstrap) as admin:
        found = admin.describe_scram([topic])[topic]
        assert isinstance(found, tuple)
        for each in found:
            admin.delete_scram({topic: each.mechanism})  # type: ignore[dict-item]  # a Literal


def test_a_user_is_added_listed_changed_and_deleted(user: User, alice: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wonder land\nnot this line\n")
    assert "SCRAM-SHA-512" in user("add", alice, "--password-file", str(secret))
    narrow = ("--mechanism", "SCRAM-SHA-256", "--iterations", "5000")
    user("add", alice, *narrow, stdin="wonderland\n")
    user("add", alice, "--password-file", "-", stdin="another\n")
    rows = user("list", alice, "--output", "json")
    assert {(row["user"], row["mechanism"], row["iterations"]) for row in rows} == {
        (alice, "SCRAM-SHA-256", 5000),
        (alice, "SCRAM-SHA-512", 4096),
    }
    assert any(row["user"] == alice for row in user("list", "--output", "json"))
    assert "nothing was deleted" in user("delete", alice)
    assert len(user("list", alice, "--output", "json")) == 2
    user("delete", alice, "--mechanism", "SCRAM-SHA-256", "--yes")
    assert [row["mechanism"] for row in user("list", alice, "--output", "json")] == [
        "SCRAM-SHA-512"
    ]
    user("delete", alice, "--yes")
    assert f"user {alice} has no SCRAM credential" in user("list", alice, code=1)
    assert "no such credential" in user("delete", alice, "--yes", code=1)


def test_a_password_is_required_and_never_shown(user: User, alice: str, tmp_path: Path) -> None:
    assert "standard input is closed" in user("add", alice, code=2)
    assert "is empty: expected the password" in user("add", alice, code=2, stdin="\n")
    missing = str(tmp_path / "missing")
    assert missing in user("add", alice, "--password-file", missing, code=2)
    refused = user("add", alice, "--iterations", "5", code=1, stdin="hidden\n")
    assert "UNACCEPTABLE_CREDENTIAL" in refused
    assert "hidden" not in refused
