"""Reads the app of a Python file, and plans it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.errors import USAGE, CommandError
from headwater.cli.pipeline_file import PipelineFile

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.planner import Plan


def file_of(path: str) -> PipelineFile:
    """Reads a file. CommandError has the line of a syntax error."""
    if not path.endswith(".py"):
        raise CommandError(f"{path}: expected a file that ends with .py", code=USAGE)
    return PipelineFile(Path(path))


def app_of(file: PipelineFile, name: str | None) -> App:
    """Runs the file, which declares the app; Spark need not run."""
    from headwater.streams.app import app_in

    found = app_in(file.execute())
    if not found:
        raise CommandError(
            f"{file.path} has no app",
            then='declare one: app = App("name")',
            code=USAGE,
        )
    names = [each.name for each in found]
    if name is None and len(found) > 1:
        raise CommandError(
            f"{file.path} has several apps: {', '.join(names)}",
            then="choose one with --app",
            code=USAGE,
        )
    if name is not None and name not in names:
        raise CommandError(
            f"--app {name}: {file.path} has {', '.join(names)}", then="choose one", code=USAGE
        )
    return found[0] if name is None else found[names.index(name)]


def planned(file: PipelineFile, app: App) -> Plan:
    from headwater.streams.errors import TopologyError

    try:
        return app.plan()
    except TopologyError as error:
        raise file.topology_refusal(error) from None
