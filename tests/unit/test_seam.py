"""The one seam to the host: nobody but `io/` and the entrances touches clock, chance, net or disk.

A whole cluster runs in one thread on one seed only as long as this holds. The imports of a module
and the calls it makes are read from its source, so nothing has to run for a breach to be found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "headwater"

# The seam itself, and the entrances, which are programs and not parts of a node.
OUTSIDE = ("io/", "cli/", "testing/", "_blocking/", "blocking.py")

# Machines are stricter still: they may not even wait.
MACHINES = (
    "config",
    "records",
    "protocol",
    "metadata",
    "quorum",
    "replication",
    "controller",
    "coordination",
    "groups",
    "share",
    "transactions",
    "quotas",
    "telemetry",
)
MACHINES_IMPORT_NO = {"asyncio", "socket", "time", "os", "logging", "threading"}

FORBIDDEN_IMPORTS = {
    "time",
    "socket",
    "threading",
    "multiprocessing",
    "subprocess",
    "uuid",
    "secrets",
}
FORBIDDEN_CALLS = {
    "open",
    "datetime.now",
    "datetime.datetime.now",
    "datetime.utcnow",
    "asyncio.open_connection",
    "asyncio.start_server",
    "asyncio.to_thread",
}
# A machine takes a `Random` in its constructor; the module's own functions are one generator that
# everybody shares. Waiting on the loop is fine: the simulator's loop has the simulator's time.
RANDOM_ALLOWED = {"Random"}
OS_ALLOWED = {"fspath", "PathLike", "path", "sep"}

# (file, what): why this one is right.
ALLOWED: dict[tuple[str, str], str] = {
    ("client/deserializers.py", "import uuid"): "the type of what is read, and none is made up",
    ("spark/files.py", "open()"): "files of another process's node, in a worker of Spark's",
    ("spark/errors.py", "os.environ"): "whether Spark shows traces, in a worker of Spark's",
    ("spark/ranges.py", "os.cpu_count"): "how many tasks are worthwhile, on Spark's driver",
    ("spark/__init__.py", "os.environ"): "where Spark looks for the interpreter of its workers",
    ("spark/session.py", "os.environ"): "where Spark looks for its home",
    ("streams/topology_test.py", "os.pathsep"): "what Spark's workers of a test may import",
    ("streams/types.py", "import uuid"): "the type of a field, and none is made up",
}


def breaches(path: Path) -> Iterator[str]:
    """Returns the uses of the host that only the seam may have, each as `line: use`."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        for what in _forbidden(node):
            if (path.relative_to(SOURCE).as_posix(), what) not in ALLOWED:
                yield f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}: {what}"


def _forbidden(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"import {n.name}" for n in names if _top(n.name) in FORBIDDEN_IMPORTS)
            # `from random import Random` is how a machine names the type of what it is given.
            yield from ("import random" for n in names if n.name == "random")
        case ast.ImportFrom(module=str(module), names=names, level=0):
            if _top(module) in FORBIDDEN_IMPORTS:
                yield f"import {module}"
            if module == "random":
                yield from (f"random.{n.name}" for n in names if n.name not in RANDOM_ALLOWED)
            if module == "os":
                yield from (f"os.{n.name}" for n in names if n.name not in OS_ALLOWED)
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in OS_ALLOWED:
            yield f"os.{name}"
        case ast.Call(func=function) if ast.unparse(function) in FORBIDDEN_CALLS:
            yield f"{ast.unparse(function)}()"


def _top(module: str) -> str:
    return module.partition(".")[0]


def _modules() -> list[Path]:
    return sorted(
        path
        for path in SOURCE.rglob("*.py")
        if not path.relative_to(SOURCE).as_posix().startswith(OUTSIDE)
    )


def _name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_a_module_reaches_the_host_only_through_the_seam(path: Path) -> None:
    assert list(breaches(path)) == []


def _parts(machine: str) -> list[Path]:
    return [*SOURCE.glob(f"{machine}.py"), *sorted((SOURCE / machine).rglob("*.py"))]


@pytest.mark.parametrize("machine", [name for name in MACHINES if _parts(name)])
def test_a_machine_imports_nothing_that_waits_or_writes(machine: str) -> None:
    found = []
    for path in _parts(machine):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            match node:
                case ast.Import(names=names):
                    tops = {_top(name.name) for name in names}
                case ast.ImportFrom(module=str(module), level=0):
                    tops = {_top(module)}
                case _:
                    continue
            found += [f"{_name(path)}:{node.lineno}: {top}" for top in tops & MACHINES_IMPORT_NO]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from random import choice",
        "from datetime import datetime; datetime.now()",
        "open('x')",
        "import os; os.replace('a', 'b')",
        "import uuid",
        "async def f(): await asyncio.to_thread(print)",
    ],
)
def test_the_check_sees_a_breach(line: str) -> None:
    assert [what for node in ast.walk(ast.parse(line)) for what in _forbidden(node)]


def test_every_exception_is_still_needed() -> None:
    used = {
        (_name(path), what)
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        for what in _forbidden(node)
    }
    assert set(ALLOWED) <= used
