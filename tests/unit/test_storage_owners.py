"""Objects of the log layer change their own fields: nobody else assigns to them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "headwater"
MODULES = sorted(
    [
        *(SOURCE / "storage").glob("*.py"),
        *(SOURCE / "replication").glob("*.py"),
        *(
            SOURCE / "broker" / f"{name}.py"
            for name in ("cleaning", "housekeeping", "log_moves", "partition", "partitions")
        ),
    ]
)


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    match node:
        case ast.Assign(targets=targets):
            found: list[ast.expr] = list(targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            found = [target]
        case _:
            return
    for each in found:
        parts = each.elts if isinstance(each, ast.Tuple) else [each]
        yield from (part for part in parts if isinstance(part, ast.Attribute))


def own_names(tree: ast.Module) -> set[str]:
    """The fields that the classes of a module declare."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in ast.walk(node):
                for target in assigned(field):
                    if isinstance(target.value, ast.Name) and target.value.id == "self":
                        names.add(target.attr)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    names.add(field.target.id)
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_fields_are_assigned_where_they_are_declared(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path))
    own = own_names(tree)
    foreign = [
        f"{path.name}:{target.lineno}: {ast.unparse(target)}"
        for node in ast.walk(tree)
        for target in assigned(node)
        if not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
        and target.attr not in own
    ]
    assert not foreign
