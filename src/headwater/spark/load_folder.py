"""A folder on any file system that Spark knows: local, HDFS, an object store.

Everything goes through Hadoop's file systems in the JVM, as with Spark's own files, so that a
folder is the same to both. Names are relative to the folder, with '/'.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(self.path)
        self._disk = self._root.getFileSystem(context._jsc.hadoopConfiguration())
        self._home = self._disk.makeQualified(self._root).toString().rstrip("/")

    def at(self, name: str) -> str:
        """Returns the full path of a name."""
        return f"{self._home}/{name}"

    def exists(self, name: str) -> bool:
        return bool(self._disk.exists(self._path(name)))

    def is_folder(self) -> bool:
        return bool(self._disk.exists(self._root) and self._disk.isDirectory(self._root))

    def has_files(self) -> bool:
        """Returns whether it has anything that is not hidden."""
        if not self._disk.exists(self._root):
            return False
        return any(
            not each.getPath().getName().startswith((".", "_"))
            for each in self._disk.listStatus(self._root)
        )

    def files(self, name: str) -> Iterator[tuple[str, int]]:
        """Yields the files below a name and their sizes, in order."""
        if not self.exists(name):
            return
        found = self._disk.listFiles(self._path(name), True)
        every = []
        while found.hasNext():
            each = found.next()
            last = each.getPath().getName()
            if not last.startswith((".", "_")):
                whole = each.getPath().toString()
                every.append((whole.removeprefix(self._home).lstrip("/"), int(each.getLen())))
        yield from sorted(every)

    def move(self, name: str, target: str) -> None:
        to = self._path(target)
        self._disk.mkdirs(to.getParent())
        if not self._disk.rename(self._path(name), to):
            raise OSError(f"{self.at(name)} could not be moved to {self.at(target)}")

    def delete(self, name: str) -> None:
        self._disk.delete(self._path(name), True)

    def read_json(self, name: str) -> Any | None:
        if not self.exists(name):
            return None
        stream = self._disk.open(self._path(name))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return json.loads(text)

    def write_json(self, name: str, value: Any) -> None:
        """Writes a file atomically: aside first, then renamed. If the process ends in between, an
        older file of that name may be gone."""
        aside = f"{name}.new"
        stream = self._disk.create(self._path(aside), True)
        try:
            stream.write(bytearray(json.dumps(value, indent=1).encode()))
        finally:
            stream.close()
        self.delete(name)
        self.move(aside, name)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._home}/{name}")
