"""Prints the table of a node's metrics for docs/monitoring.md: `python tools/metrics_page.py`.

Starts a node in this process and reads the families that it serves.
"""

from __future__ import annotations

import re
from http.client import HTTPConnection

from headwater.testing import EmbeddedBroker

SETTINGS = {"headwater.metrics.listen": "127.0.0.1:0"}
_HEAD = re.compile(r"# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n")


def families(path: str = "/metrics") -> dict[str, tuple[str, str]]:
    """Returns kind and meaning of each family by its name."""
    with EmbeddedBroker(SETTINGS) as broker:
        assert broker.metrics_address is not None
        connection = HTTPConnection(broker.metrics_address)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
    return {name: (kind, meaning) for name, meaning, kind in _HEAD.findall(text)}


def table() -> str:
    lines = ["| name | kind | |", "| --- | --- | --- |"]
    for name, (kind, meaning) in sorted(families().items()):
        lines.append(f"| `{name}` | {kind} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
