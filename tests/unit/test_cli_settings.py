"""Precedence of settings: the command line, the file, the default."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from headwater.cli.errors import CommandError
from headwater.cli.settings import DATA_DEFAULT, add_settings_options, check_settings, read_settings


def settings(*arguments: str, listen: str | None = None, memory: bool = False) -> dict[str, str]:
    parser = ArgumentParser()
    add_settings_options(parser)
    return read_settings(parser.parse_args(arguments), listen=listen, memory=memory)


def file_with(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return str(path)


def test_with_no_argument_data_is_kept_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings() == {"log.dirs": str(tmp_path / DATA_DEFAULT)}
    config = check_settings(settings())
    assert [str(at) for at in config.broker_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.alone


def test_set_wins_over_the_file(tmp_path: Path) -> None:
    path = file_with(tmp_path, "num.partitions=3\nlog.dirs=/a,/b\n")
    given = settings("--config", path, "--set", "num.partitions=5", "--set", "node.id=7")
    assert given == {"num.partitions": "5", "node.id": "7", "log.dirs": "/a,/b"}


def test_directories_of_a_file_are_kept_unless_data_is_given(tmp_path: Path) -> None:
    path = file_with(tmp_path, "log.dir=/kept\n")
    assert settings("--config", path) == {"log.dir": "/kept"}
    assert settings("--config", path, "--data", "/typed")["log.dirs"] == "/typed"


def test_a_value_may_have_an_equals_sign() -> None:
    assert settings("--set", "a.b=c=d")["a.b"] == "c=d"


def test_listen_takes_the_place_of_all_but_the_controllers_listeners(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        "listeners=PLAINTEXT://:9092,OTHER://:9095,CTRL://:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CTRL:PLAINTEXT\n"
        "controller.listener.names=CTRL\n",
    )
    given = settings("--config", path, listen="127.0.0.1:0")
    assert given["listeners"] == "PLAINTEXT://127.0.0.1:0,CTRL://:9093"


@pytest.mark.parametrize("listen", ["127.0.0.1:0", ":9092", "[::1]:9092", "localhost:65535"])
def test_addresses_that_can_be_listened_on(listen: str) -> None:
    assert check_settings(settings(listen=listen)).broker_listeners[0].port == int(
        listen.rpartition(":")[2]
    )


@pytest.mark.parametrize("listen", ["", "9092", "host:", "host:port", "host:70000", "host:-1"])
def test_addresses_that_cannot(listen: str) -> None:
    with pytest.raises(CommandError) as refused:
        settings(listen=listen)
    assert refused.value.code == 2


def test_in_memory_no_directory_of_the_file_is_touched(tmp_path: Path) -> None:
    path = file_with(tmp_path, "log.dirs=/a\nmetadata.log.dir=/b\n")
    assert settings("--config", path, memory=True) == {"log.dirs": "/memory"}
