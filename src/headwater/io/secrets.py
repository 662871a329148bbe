"""The sources of config providers: the files and the environment of this process."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.config.providers import Sources


def system_sources() -> Sources:
    return Sources(lambda path: Path(path).read_bytes(), os.path.realpath, os.environ)
