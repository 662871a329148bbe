"""Ships this package to executors that do not have it: on standalone, YARN and Kubernetes.

Spark unpacks an archive in the folder that its Python workers start in, and they find it there by
their path. A zip file of Python's would not do: the Rust core is a library, which is loaded from a
file. The executors still need PyArrow and a Python that the core was built for (3.11 or newer, on
the same kind of machine).
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import headwater

FOLDER = "headwater-package"
_PACKAGES = ("headwater", "pyspark_headwater")
_ARCHIVES, _PATH = "spark.archives", "spark.executorEnv.PYTHONPATH"


def shipping_settings(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Packs the package into `folder`, which must last as long as the session, and returns the
    settings that have Spark take it to its executors. `settings` are those of the caller."""
    archive = pack(folder)
    archives = filter(None, (settings.get(_ARCHIVES), f"{archive}#{FOLDER}"))
    path = filter(None, (FOLDER, settings.get(_PATH)))
    return {_ARCHIVES: ",".join(archives), _PATH: ":".join(path)}


def pack(folder: Path) -> Path:
    """Writes the package, as it is installed here, into an archive."""
    root = Path(headwater.__file__).resolve().parents[1]
    archive = folder / f"{FOLDER}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for name in _PACKAGES:
            packed.add(root / name, arcname=name, filter=_without_compiled)
    return archive


def _without_compiled(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out what Python compiles anew, and whose files they are here."""
    if entry.name.endswith("__pycache__"):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
