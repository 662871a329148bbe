"""Keys and trust of a node that change while it runs, and those that would cut it off."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from headwater.broker.node_security import NodeSecurity
from headwater.broker.plugins import PrincipalBuilders
from headwater.config import ConfigError, node_config
from headwater.io import Host
from headwater.io.clock import SystemClock
from headwater.io.memory import MemoryDisk
from headwater.metadata import Image
from headwater.observability import Log
from headwater.security.dev_certificates import Authority, issue, new_authority

NOW = datetime.now(UTC)
OLD, NEW = (new_authority(name, now=NOW, days=1) for name in ("old", "new"))
QUORUM = {"process.roles": "broker,controller", "node.id": "1"} | {
    "controller.quorum.voters": "1@localhost:9093,2@localhost:9094",
    "controller.listener.names": "CONTROLLER",
    "listeners": "NODES://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "NODES:SSL,CLIENTS:SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "NODES",
}


class Keys:
    """A node's keys and trust, in files that are replaced."""

    def __init__(self, folder: Path, settings: dict[str, str], trusted: Authority = OLD) -> None:
        self.own, self.trusted = folder / "server.pem", folder / "ca.pem"
        self.trust(trusted)
        self.be_issued_by(OLD)
        self.lines: list[str] = []
        self.settings = settings | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
        }
        config = node_config(self.settings)
        clock = SystemClock()
        host = Host(clock, Random(1), MemoryDisk(), None, None)  # type: ignore[arg-type]  # unused
        builders = PrincipalBuilders(config, lambda *_: None)
        self.node = NodeSecurity(host, config, Log(clock, self.lines.append), Image, builders)

    def be_issued_by(self, authority: Authority) -> None:
        names = ("localhost", "127.0.0.1")
        self._write(self.own, issue(authority, "node", names, now=NOW, days=1).pem)

    def trust(self, *authorities: Authority) -> None:
        self._write(self.trusted, "".join(each.certificate for each in authorities))

    def follow(self) -> str:
        """Returns the line that the node writes about its changed files."""
        self.node.follow_files()
        return self.lines.pop()

    @staticmethod
    def _write(file: Path, text: str) -> None:
        new = file.with_suffix(".new")
        new.write_text(text)
        new.replace(file)


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_certificates_move_to_another_authority_in_the_right_order_only(
    tmp_path: Path, client_auth: str
) -> None:
    keys = Keys(tmp_path, QUORUM | {"ssl.client.auth": client_auth})
    keys.be_issued_by(NEW)
    assert "add its authority to the trust stores of all nodes first" in keys.follow()
    keys.be_issued_by(OLD)
    assert "in use" in keys.follow()
    keys.trust(NEW)  # nodes with the old certificates would be refused
    assert "accept on listener NODES" in keys.follow()
    keys.trust(OLD, NEW)
    assert "in use" in keys.follow()
    keys.be_issued_by(NEW)
    assert "new certificate of NODES, CLIENTS" in keys.follow()
    keys.trust(NEW)
    assert "in use" in keys.follow()


def test_a_request_cannot_cut_a_node_off_either(tmp_path: Path) -> None:
    keys = Keys(tmp_path, QUORUM)
    foreign = issue(NEW, "node", ("localhost", "127.0.0.1"), now=NOW, days=1)

    def change(listener: str) -> None:
        start = f"listener.name.{listener}.ssl.keystore"
        changes = {f"{start}.key": foreign.key, f"{start}.certificate.chain": foreign.certificate}
        keys.node.check(node_config(keys.settings, dynamic_broker=changes))

    change("clients")  # they may trust whom they like
    with pytest.raises(ConfigError, match="nodes with the old and with the new trust store"):
        change("nodes")


def test_a_node_by_itself_is_trusted_by_whom_it_likes(tmp_path: Path) -> None:
    keys = Keys(
        tmp_path, {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    )
    keys.be_issued_by(NEW)
    assert "new certificate of SSL" in keys.follow()


def test_where_nodes_do_not_trust_each_other_any_change_may_help(tmp_path: Path) -> None:
    keys = Keys(tmp_path, QUORUM, trusted=NEW)
    keys.be_issued_by(NEW)
    assert "new certificate of NODES, CLIENTS" in keys.follow()
