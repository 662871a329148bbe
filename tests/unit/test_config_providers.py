"""Values of settings that stand in files, directories and the environment (KIP-297)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.broker.node_log import start_line
from headwater.cli.connection import read_client_config
from headwater.cli.errors import CommandError
from headwater.cli.main import main
from headwater.client.config import ClientConfig
from headwater.client.errors import ConfigError as ClientConfigError
from headwater.config import ConfigError, node_config
from headwater.config.describe import describe_broker
from headwater.config.providers import resolve
from headwater.io.secrets import system_sources

PACKAGE = "org.apache.kafka.common.config.provider."


def providers(**parameters: str) -> dict[str, str]:
    return {
        "config.providers": "file, dir,env",
        "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
        "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
        "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    } | {f"config.providers.{name.replace('_', '.param.', 1)}": v for name, v in parameters.items()}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "all.properties").write_text("password=hidden 1\nport=9345\nbad=hidden\n")
    (folder / "one").write_text("hidden 2\n")
    (folder / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("HIDDEN_VARIABLE", "hidden 3")
    return folder


def one(value: str, **parameters: str) -> str:
    found = resolve({"a": value} | providers(**parameters), system_sources())["a"]
    assert isinstance(found, str)
    return found


def test_values_come_from_a_file_a_directory_and_the_environment(secrets: Path) -> None:
    assert one(f"${{file:{secrets}/all.properties:password}}") == "hidden 1"
    assert one(f"${{dir:{secrets}:one}}") == "hidden 2\n"
    assert one("${env:HIDDEN_VARIABLE}") == "hidden 3"
    both = f"<${{env:HIDDEN_VARIABLE}}|${{file:{secrets}/all.properties:port}}>"
    assert one(both) == "<hidden 3|9345>"


@pytest.mark.parametrize("value", ["plain", "${other:x}", "${", "$5", "${x}", ""])
def test_what_is_no_reference_stays_as_it_is(value: str) -> None:
    assert one(value) == value


def test_without_providers_nothing_is_looked_up() -> None:
    assert resolve({"a": "${env:HOME}"}, system_sources()) == {"a": "${env:HOME}"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${file:FOLDER/all.properties:nothing}", "has no key nothing"),
        ("${file:FOLDER/missing:x}", "no such file"),
        ("${file:FOLDER/binary:x}", "not text in UTF-8"),
        ("${file:x}", "expected a path"),
        ("${file:/etc/passwd:root}", "allowed.paths"),
        ("${file:FOLDER/../outside:x}", "allowed.paths"),
        ("${file:FOLDER/link:x}", "allowed.paths"),
        ("${file:FOLDERS/x:x}", "allowed.paths"),
        ("${dir:/etc:passwd}", "allowed.paths"),
        ("${dir:FOLDER:../outside}", "a file in it"),
        ("${dir:FOLDER:missing}", "no such file"),
        ("${env:HOME}", "allowlist.pattern"),
        ("${env:HIDDEN_NOTHING}", "is not set"),
        ("${env:path:HIDDEN_VARIABLE}", "expected only the name"),
    ],
)
def test_a_reference_that_leads_nowhere_or_too_far_is_refused(
    secrets: Path, value: str, said: str
) -> None:
    (secrets.parent / "outside").write_text("x=hidden")
    (secrets / "link").symlink_to(secrets.parent / "outside")
    allowed = {
        "file_allowed.paths": str(secrets),
        "dir_allowed.paths": f"/nowhere, {secrets}",
        "env_allowlist.pattern": "HIDDEN_.*",
    }
    with pytest.raises(ConfigError, match=said) as refused:
        one(value.replace("FOLDER", str(secrets)), **allowed)
    assert "hidden" not in str(refused.value)


def test_only_the_three_providers_of_kafka_are_taken() -> None:
    with pytest.raises(ConfigError, match=r"a\.class=.*expected one of"):
        resolve(
            {"config.providers": "a", "config.providers.a.class": "evil.Provider"},
            system_sources(),
        )
    with pytest.raises(ConfigError, match="allowlist"):
        one("${env:HOME}", **{"env_allowlist.pattern": "("})


def node_properties(secrets: Path) -> dict[str, str]:
    given = providers() | {
        "log.dirs": "/d",
        "num.partitions": f"${{file:{secrets}/all.properties:port}}",
        "ssl.key.password": f"${{dir:{secrets}:one}}",
        "broker.rack": "${env:HIDDEN_VARIABLE}",
    }
    return resolve(given, system_sources())


def test_a_node_uses_the_values_and_shows_their_references(secrets: Path) -> None:
    config = node_config(node_properties(secrets))
    assert config.value("num.partitions") == 9345
    assert config.value("broker.rack") == "hidden 3"
    again = node_config(config.properties, dynamic_default={"log.retention.ms": "1"})
    shown = {each.name: each for each in describe_broker(again.layers)}
    assert shown["broker.rack"].value == "${env:HIDDEN_VARIABLE}"
    assert shown["broker.rack"].synonyms[0].value == "${env:HIDDEN_VARIABLE}"
    assert shown["num.partitions"].value == f"${{file:{secrets}/all.properties:port}}"
    assert shown["ssl.key.password"].value is None
    line = start_line(config)
    assert "broker.rack=${env:HIDDEN_VARIABLE}" in line
    assert "hidden 3" not in line
    assert not [each for each in config.warnings if "config.providers" in each]


def test_an_invalid_value_is_refused_by_its_reference(secrets: Path) -> None:
    reference = f"${{file:{secrets}/all.properties:bad}}"
    for key in ("num.partitions", "log.retention.ms", "log.cleaner.enable", "process.roles"):
        given = providers() | {"log.dirs": "/d", key: reference}
        with pytest.raises(ConfigError) as refused:
            node_config(resolve(given, system_sources()))
        assert "hidden" not in str(refused.value), key


def test_the_file_of_a_node_may_have_references(
    secrets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    lines = providers() | {"broker.rack": f"${{file:{secrets}/missing:x}}"}
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    assert main(["format", "--config", str(file), "--data", str(tmp_path / "d")]) == 2
    said = capsys.readouterr().err
    assert "broker.rack=" in said
    assert "no such file" in said


def test_clients_take_references_from_a_dict_and_from_a_file(secrets: Path, tmp_path: Path) -> None:
    given = providers() | {
        "sasl.password": "${env:HIDDEN_VARIABLE}",
        "request.timeout.ms": f"${{file:{secrets}/all.properties:port}}",
    }
    config = ClientConfig.build("localhost:9092", config=given)
    assert (config.sasl_password, config.request_timeout_ms) == ("hidden 3", 9345)
    with pytest.raises(ClientConfigError, match="is not set"):
        ClientConfig.build("localhost:9092", config=given | {"client.id": "${env:HIDDEN_NOT}"})
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    assert read_client_config(str(file)) == {
        "sasl.password": "hidden 3",
        "request.timeout.ms": "9345",
    }
    file.write_text("config.providers=x\n" + os.linesep)
    with pytest.raises(CommandError, match="expected one of"):
        read_client_config(str(file))
