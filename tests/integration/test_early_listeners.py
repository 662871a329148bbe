"""Access to listeners before a node knows the rules of its cluster (KIP-801)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.nodes import free_port
from harness.wire import Wire, until
from headwater.broker.formatting import format_directories
from headwater.config import node_config
from headwater.errors import ErrorCode
from headwater.io import Host
from headwater.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.security.acls import AclPattern, AclPermission, AclResource
from headwater.security.operations import Operation
from tests.support.processes import HEADWATER, NodeProcess


class Lonely(NodeProcess):
    """One of two voters, whose other one never comes: it knows of no rule."""

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder)
        self.ports = {name: free_port() for name in ("PLAINTEXT", "CONTROLLER", "SECOND")}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "log.dirs": str(self.data),
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER,SECOND",
            "controller.quorum.voters": (
                f"1@127.0.0.1:{self.ports['CONTROLLER']},2@127.0.0.1:{free_port()}"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "early.start.listeners": "CONTROLLER",
        } | {key.replace("_", "."): value for key, value in settings.items()}
        format_directories(Host.system(), node_config(self.settings))

    def command(self) -> list[str]:
        options = [f"--set={key}={value}" for key, value in self.settings.items()]
        return [str(HEADWATER), "start", *options]

    def is_open(self, name: str) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.ports[name])) == 0

    def answer(self) -> int:
        """The error of what it says to somebody who asks for the rules."""
        request = DescribeAclsRequest(
            resource_type_filter=AclResource.ANY,
            resource_name_filter=None,
            pattern_type_filter=AclPattern.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=AclPermission.ANY,
        )
        with Wire(f"127.0.0.1:{self.ports['CONTROLLER']}") as wire:
            code: int = wire.ask(request).error_code
            return code


@pytest.mark.parametrize("super_user", ["User:root", "User:ANONYMOUS"])
def test_before_the_rules_are_known_only_super_users_are_let_in(
    tmp_path: Path, super_user: str
) -> None:
    node = Lonely(tmp_path, super_users=super_user)
    try:
        node.launch()
        until(lambda: node.is_open("CONTROLLER"), "the early listener", 60)
        code = node.answer()
        assert not node.is_open("PLAINTEXT")
        assert not node.is_open("SECOND")
        if super_user == "User:ANONYMOUS":
            assert code == ErrorCode.NONE
        else:
            assert code == ErrorCode.UNKNOWN_SERVER_ERROR
            until(lambda: "has to be in super.users" in node.errors, "the line about it", 60)
    finally:
        node.kill()
