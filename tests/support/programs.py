"""Programs that read and write topics in a process of their own while a test looks on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.blocking import Consumer
from headwater.model import TopicPartition

# A test that waits for longer has failed. How long Spark takes is not judged here.
PATIENCE_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Program:
    """What the process writes is in a file, for it would block on a pipe that nobody reads."""

    process: subprocess.Popen[bytes]
    file: Path

    def said(self) -> str:
        """Returns all it has written so far, to stdout and stderr."""
        return self.file.read_text(errors="replace")

    def end(self) -> str:
        """Waits until it ends by itself, without an error; returns what it has written."""
        try:
            code = self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.said()}") from None
        assert code == 0, f"it ended with {code}:\n{self.said()}"
        return self.said()

    def values(
        self, consumer: Consumer, topic: str, has_all: Callable[[list[bytes]], bool]
    ) -> list[bytes]:
        """Returns the values in a partition, which must become all while the program runs."""
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not has_all(found):
            code = self.process.poll()
            assert code is None, f"it ended with {code} after {found}:\n{self.said()}"
            assert time.monotonic() < deadline, f"{topic} has only {found}:\n{self.said()}"
            found += [each.value or b"" for each in consumer.poll(timeout_ms=1000)]
        return found


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[Program]:
    """Runs a program, whose output is kept in the folder; it is killed at the end."""
    file = folder / "output"
    with file.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield Program(process, file)
    finally:
        process.kill()
        process.wait()
