"""Reads pipeline files: SQL scripts, and Python files with functions under @pipeline."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from headwater.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from headwater.spark.pipeline import Pipeline, PipelineError
    from headwater.spark.pipeline_sql import Statement
    from headwater.streams.errors import TopologyError

_MODULE = "headwater_pipeline"


class PipelineFile:
    """A file whose syntax is correct. A Python file is not run before `pipelines` is called."""

    def __init__(self, path: Path) -> None:
        """Reads a file. CommandError has the line of a syntax error."""
        self.path = path
        self.folder = str(path.resolve().parent)
        self._statements: list[Statement] | None = None
        self._code: CodeType | None = None
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file in UTF-8"
            raise CommandError(f"{path}: {reason.lower()}", code=USAGE) from None
        if path.suffix == ".sql":
            self._statements = self._parse(text)
        elif path.suffix == ".py":
            self._code = self._compile(text)
        else:
            raise CommandError(f"{path}: expected a file that ends with .py or .sql", code=USAGE)

    @property
    def needs_session(self) -> bool:
        """Whether a Spark session must exist before the file is run: at module level a Python file
        may make UDFs, whose types Spark parses."""
        return self._code is not None

    def pipelines(self, name: str | None) -> list[Pipeline]:
        """Returns the pipelines of the file; with `name` the only one, under that name."""
        from headwater.spark.pipeline import declared_in

        if self._statements is not None:
            from headwater.spark.pipeline_query import sql_pipelines

            found = sql_pipelines(self._statements)
        else:
            found = declared_in(self.execute())
        if not found:
            what = "a function with @pipeline" if self._code else "an INSERT INTO TOPIC"
            raise CommandError(f"{self.path} has no pipeline: expected {what}", code=USAGE)
        names = [each.name for each in found]
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise CommandError(
                f"{self.path}: two pipelines are called {twice}: give one a name", code=USAGE
            )
        if name is None:
            return found
        if len(found) > 1:
            raise CommandError(f"--name: {self.path} has several: {', '.join(names)}", code=USAGE)
        return [found[0].with_name(name)]

    def refusal(self, error: PipelineError) -> CommandError:
        """Returns the error of the command, with the place in the file."""
        return CommandError(error.in_file(str(self.path)), code=USAGE)

    def shown(self, text: str) -> str:
        """Returns a text with the path of the file as the user wrote it."""
        return text.replace(str(self.path.resolve()), str(self.path))

    def _parse(self, text: str) -> list[Statement]:
        from headwater.spark.pipeline import PipelineError
        from headwater.spark.pipeline_sql import parse

        try:
            return parse(text)
        except PipelineError as error:
            raise self.refusal(error) from None

    def _compile(self, text: str) -> CodeType:
        try:
            # Its own __future__ imports count, and not those of this module.
            return compile(text, str(self.path.resolve()), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise self._failed(error) from None

    def execute(self) -> dict[str, Any]:
        """Runs a Python file. It is not a module that workers could import, so its functions travel
        to them by value; what it imports from beside it must be on their path."""
        from pyspark import cloudpickle

        from headwater.spark.pipeline import PipelineError
        from headwater.streams.errors import TopologyError

        assert self._code is not None
        sys.path.insert(0, self.folder)
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{self.folder}{os.pathsep}{known}" if known else self.folder
        # Dataclasses look their module up, and so does code that reads annotations.
        module = ModuleType(_MODULE)
        module.__file__ = str(self.path)
        sys.modules[_MODULE] = module
        pickler: Any = cloudpickle
        pickler.register_pickle_by_value(module)
        try:
            exec(self._code, module.__dict__)
        except CommandError:
            raise
        except PipelineError as error:
            raise self._failed(error, what=error.text) from None
        except TopologyError as error:
            raise self.topology_refusal(error) from None
        except Exception as error:
            raise self._failed(error) from None
        return module.__dict__

    def topology_refusal(self, error: TopologyError) -> CommandError:
        """Returns the error of the command, with the place where the operator was declared."""
        where = str(self.path)
        if error.place is not None and error.place[0].startswith(self.folder):
            where = f"{error.place[0]}, line {error.place[1]}"
        return CommandError(self.shown(f"{where}: {error}"), code=USAGE)

    def _failed(self, error: Exception, what: str | None = None) -> CommandError:
        from headwater.spark.failures import frames_of, place_in

        if isinstance(error, SyntaxError) and error.lineno is not None:
            place: tuple[str, int] | None = (error.filename or str(self.path), error.lineno)
            what = f"{type(error).__name__}: {error.msg}"
        else:
            place = place_in(self.folder, frames_of(error))
            what = what or f"{type(error).__name__}: {error}"
        where = str(self.path) if place is None else f"{place[0]}, line {place[1]}"
        return CommandError(self.shown(f"{where}: {what}"), code=USAGE)
