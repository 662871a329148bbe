"""The code on the clients' pages stands in the examples, and those run and say what is shown."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from headwater.testing import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "README",
    "docs/clients",
    "docs/producer",
    "docs/consumer",
    "docs/admin",
    "docs/testing",
    "docs/spark",
    "docs/pipelines",
    "docs/streams",
    "docs/streams-tutorial",
    "docs/quotas",
)

_ENV = os.environ | {"PYTHONUNBUFFERED": "1"}


def page(name: str) -> str:
    return (ROOT / f"{name}.md").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_a_page_is_a_piece_of_a_program(name: str) -> None:
    programs = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    pieces = re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)
    assert pieces
    for piece in pieces:
        assert any(indent(piece, " " * by) in text for by in (0, 4, 8) for text in programs), piece


LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")


def anchors(path: Path) -> set[str]:
    """Returns the anchors of a page: one for each heading."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        if "://" not in target:
            there = path.parent / target if target else path
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), anchor


def test_the_reference_of_settings_is_what_the_node_reads() -> None:
    """`make docs` writes it anew."""
    command = [sys.executable, str(ROOT / "tools" / "docs_hooks.py"), "settings"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert page("docs/settings") == made.stdout


def run(example: str) -> list[str]:
    with EmbeddedBroker() as broker:
        command = [sys.executable, str(ROOT / "examples" / example), broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_example_of_connecting_ends_as_the_page_shows_it() -> None:
    for line in run("connecting.py"):
        assert line in page("docs/clients")


def test_the_clients_in_a_few_lines() -> None:
    stored, read, refused = run("clients.py")
    assert stored.startswith("stored as orders-")
    assert read == "b'alice' b'2 books'"
    assert refused.startswith("invalid record: a record for topic orders")


def test_the_example_of_the_admin_ends_as_the_page_shows_it() -> None:
    made, not_made, *rest = run("admin.py")
    assert f"```\n{made}\n{not_made}\n```" in page("docs/admin")
    assert rest == ["cleanup.policy is compact", "payments-0 ends at 1", "billing continues at 0"]


def test_the_example_of_quotas_is_throttled() -> None:
    assert run("quotas.py") == [
        "user alice, client-id etl: {'producer_byte_rate': 1000000.0}",
        "the broker asked for a wait",
    ]


def test_the_example_of_a_live_table_shows_what_it_has_and_what_changes() -> None:
    pytest.importorskip("pyspark")
    with EmbeddedBroker(topics={"shop-totals-changelog": 1}) as broker:
        broker.send("shop-totals-changelog", '{"orders": 1, "total": 2.5}', key="at")
        command = [sys.executable, str(ROOT / "examples/streams/live_view.py"), broker.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_ENV) as shown:
            assert shown.stdout is not None
            assert shown.stdout.readline() == "Total(orders=1, total=2.5)\n"
            assert shown.stdout.readline() == "[('at', Total(orders=1, total=2.5))]\n"
            line = ""
            printed = select.poll()  # `select` is for the first 1,024 descriptors of a process
            printed.register(shown.stdout, select.POLLIN)
            while not line:  # `changes` begins when the program asks for it
                broker.send("shop-totals-changelog", '{"orders": 2, "total": 4.0}', key="at")
                if printed.poll(1000):
                    line = shown.stdout.readline()
            assert line.startswith("at: Total(orders=")
            assert line.endswith("-> Total(orders=2, total=4.0)\n")
            shown.kill()


def test_the_example_of_dead_letters_skips_what_cannot_be_read() -> None:
    assert run("dead_letters.py") == [
        "paid 500 cents",
        "paid 250 cents",
        "dead letter b'{\"cents\": ' of payments-0 @1: value, json.decoder.JSONDecodeError",
    ]


@pytest.mark.timeout(900)  # some thirty commands, each a process
def test_the_page_of_the_command_is_a_script_that_says_what_is_shown(tmp_path: Path) -> None:
    script = ROOT / "examples" / "command.sh"
    for piece in re.findall(r"```sh\n(.*?)```", page("docs/command"), re.DOTALL):
        assert piece in script.read_text()
    (shown,) = re.findall(r"```\n(bob.*?)```", page("docs/command"), re.DOTALL)
    with EmbeddedBroker() as broker:
        done = subprocess.run(
            ["bash", str(script)],
            cwd=tmp_path,
            env=os.environ
            | {
                "HEADWATER_BOOTSTRAP": broker.bootstrap,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=840,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert set(shown.splitlines()) <= set(lines)  # between partitions there is no order
    assert any(line.startswith('{"topic": "copies"') for line in lines)
    assert "healthy               yes" in lines
    assert json.loads((tmp_path / "moved.json").read_text())["executed"]
