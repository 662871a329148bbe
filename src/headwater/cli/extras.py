"""The command that installs what an optional part of the package needs.

It names the requirements themselves: `pip install 'headwater[spark]'` asks a package index, which
need not have the release that runs here, such as one from a wheel or a clone.
"""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, requires


def install_command(extra: str, missing: str) -> str:
    """Returns the command for an extra; without the package's metadata, for the missing module
    alone."""
    try:
        declared = requires("headwater") or []
    except PackageNotFoundError:
        declared = []
    wanted = [
        requirement.strip()
        for requirement, _, marker in (line.partition(";") for line in declared)
        if marker.replace("'", '"').replace(" ", "") == f'extra=="{extra}"'
    ]
    return "pip install " + " ".join(shlex.quote(each) for each in wanted or [missing])
