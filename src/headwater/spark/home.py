"""A home for Spark in which its Python processes begin quickly.

Spark puts `python/lib/pyspark.zip` of its home first on the path of each Python process it starts:
one for a streaming query, some for planning, the workers. Nothing compiled can be kept for what is
in an archive, so each of them compiles PySpark anew, which takes a second of a core; Spark waits
ten for a process to answer, and on a busy host that is not enough. The same package is installed
beside us, compiled. So for drivers with local workers there is a home of links to the real one,
without the archive.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_LINKS = ("bin", "conf", "jars", "sbin")


def quick_home(caches: Path) -> Path | None:
    """The folder of links, made if need be; None if PySpark does not come from a package, or if
    nothing can be written in `caches`."""
    import pyspark

    real = Path(pyspark.__file__).resolve().parent
    if not (real / "python" / "lib" / "pyspark.zip").is_file() or not (real / "jars").is_dir():
        return None
    name = hashlib.sha256(f"{real} {pyspark.__version__}".encode()).hexdigest()[:16]
    home = caches / "headwater" / f"spark-home-{name}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for each in _LINKS:
            if (real / each).is_dir() and not (home / each).is_dir():
                _link(home / each, real / each)
    except OSError:
        return None
    return home


def _link(path: Path, to: Path) -> None:
    try:
        path.symlink_to(to)
    except FileExistsError:
        if not path.is_dir():  # not somebody else who was quicker, but a link that leads nowhere
            path.unlink(missing_ok=True)
            path.symlink_to(to)
