"""The files of docs/security.md, as somebody would use them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.nodes import HEADWATER
from headwater.config.properties import parse_properties
from headwater.testing import EmbeddedBroker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "security"


def main(arguments: list[str]) -> int:
    return subprocess.run([str(HEADWATER), *arguments], timeout=60, check=False).returncode


def placed(name: str, folder: Path) -> str:
    """The text of an example whose certificates are in this folder."""
    return (EXAMPLES / name).read_text().replace("certificates/", f"{folder}/")


@pytest.mark.parametrize(
    ("node", "client"),
    [
        ("node.properties", "client.properties"),
        ("mutual-tls.properties", "mutual-tls-client.properties"),
    ],
)
def test_the_files_of_the_documentation_work(tmp_path: Path, node: str, client: str) -> None:
    assert main(["cert", "dev", str(tmp_path)]) == 0
    settings = parse_properties(placed(node, tmp_path))
    settings["listeners"] = settings["listeners"].replace(":9092", ":0")
    (tmp_path / "client.properties").write_text(placed(client, tmp_path))
    with EmbeddedBroker(settings) as broker:
        aimed = ["--bootstrap", broker.bootstrap]
        aimed += ["--client-config", str(tmp_path / "client.properties")]
        assert main(["topic", "create", "orders", *aimed]) == 0
        assert not [line for line in broker.log_lines if "no effect" in line]


def test_certificates_are_renewed_by_the_same_authority(tmp_path: Path) -> None:
    assert main(["cert", "dev", str(tmp_path), "--host", "b.example", "--client", "alice"]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"ca.pem", "ca-key.pem", "server.pem", "client-alice.pem"}
    for name in ("ca-key.pem", "server.pem", "client-alice.pem"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    assert main(["cert", "dev", str(tmp_path), "--client", "alice"]) == 0
    assert (tmp_path / "ca.pem").read_bytes() == before["ca.pem"]
    assert (tmp_path / "server.pem").read_bytes() != before["server.pem"]
    (tmp_path / "ca-key.pem").unlink()
    assert main(["cert", "dev", str(tmp_path)]) == 1
