"""The cluster that a command talks to, and its errors when the peer is not what it expects."""

from __future__ import annotations

import socket
import struct
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headwater.cli.connection import (
    BOOTSTRAP_DEFAULT,
    BOOTSTRAP_VARIABLE,
    CONFIG_VARIABLE,
    cluster_of,
    explained,
    open_admin,
)
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.main import main
from headwater.client.errors import RequestTimedOut


@contextmanager
def peer(*answers: bytes) -> Iterator[str]:
    """Somebody who answers whatever is asked with these bytes, and then hangs up, each time."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        for answer in answers:
                            connection.recv(1 << 16)
                            connection.sendall(answer)
                        connection.recv(1 << 16)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def refusal(address: str) -> CommandError:
    options = Namespace(bootstrap=address, start_timeout_ms=300)
    with pytest.raises(CommandError) as caught, open_admin(options):
        pass
    assert "\n" not in caught.value.what
    return caught.value


def test_a_dead_address_says_how_to_run_a_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = refusal(f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}: connection refused" in error.what
    assert "headwater start" in (error.then or "")


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "speaks TLS"),
        (b"\xff\xff\xff\xff or other", "not Kafka's protocol"),
        (struct.pack(">ii", 7, 0) + b"\x00\x00\x7f", "not Kafka's protocol"),
    ],
)
def test_a_peer_with_another_protocol_is_recognized(answer: bytes, what: str) -> None:
    with peer(answer) as address:
        error = refusal(address)
    assert what in error.what
    assert address in error.what


def test_a_peer_that_hangs_up_is_reported() -> None:
    with peer() as address:
        error = refusal(address)
    assert address in error.what
    assert "closed the connection" in error.what


def test_a_silent_peer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert address in refusal(address).what


@pytest.mark.parametrize("address", ["host:", ":9092", "host:none", "host:70000", "host:0"])
def test_an_invalid_address_is_a_usage_error(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("group", "list", "--bootstrap", address)) == USAGE
    assert address in capsys.readouterr().err


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    assert cluster_of(Namespace(bootstrap=None)).bootstrap == BOOTSTRAP_DEFAULT
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "one:1")
    assert cluster_of(Namespace(bootstrap=None)).bootstrap == "one:1"
    assert cluster_of(Namespace(bootstrap="two:2")).bootstrap == "two:2"


def test_where_the_settings_of_clients_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in (BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, "HEADWATER_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HEADWATER_PROFILES", str(tmp_path / "profiles.json"))
    names = ("typed", "of-the-profile", "of-the-shell")
    typed, profile, shell = (str(tmp_path / name) for name in names)
    for path in (typed, profile, shell):
        Path(path).write_text(
            f"bootstrap.servers=in-{Path(path).name}:1\nsasl.username={Path(path).name}\n"
            "linger.ms=5\nclient.id=mine\n"
        )

    def found(**options: str | None) -> tuple[str, str | None]:
        given = {"bootstrap": None, "profile": None, "client_config": None, **options}
        cluster = cluster_of(Namespace(**given))
        # What is for producers, or what a command says itself, is left out.
        assert set(cluster.settings) <= {"sasl.username"}
        return cluster.bootstrap, cluster.settings.get("sasl.username")

    assert main(("profile", "add", "secure", "secure:2", "--client-config", profile)) == 0
    assert main(("profile", "add", "plain", "plain:3")) == 0
    assert found() == (BOOTSTRAP_DEFAULT, None)
    assert found(profile="secure") == ("secure:2", "of-the-profile")
    assert found(profile="secure", client_config=typed) == ("secure:2", "typed")
    assert found(profile="plain") == ("plain:3", None)
    assert found(client_config=typed) == ("in-typed:1", "typed")
    assert found(client_config=typed, bootstrap="one:1") == ("one:1", "typed")
    monkeypatch.setenv(CONFIG_VARIABLE, shell)
    assert found() == ("in-of-the-shell:1", "of-the-shell")
    assert found(profile="plain") == ("plain:3", "of-the-shell")
    assert found(profile="secure") == ("secure:2", "of-the-profile")
    capsys.readouterr()
    assert main(("profile", "list", "--output", "json")) == 0
    assert f'"client_config": "{profile}"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"secruity.protocol=SSL", "unknown setting secruity.protocol"),
    ],
)
def test_an_invalid_file_of_client_settings_is_a_usage_error(
    content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    assert main(("topic", "list", "--client-config", str(path))) == USAGE
    printed = capsys.readouterr().err
    assert str(path) in printed
    assert said in printed


def test_who_gets_no_answer_is_told_where_to_look() -> None:
    error = explained(RequestTimedOut("CreateTopics: no answer from the controller"))
    assert error.then is not None
    assert "headwater cluster status" in error.then
