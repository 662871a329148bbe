"""`headwater start` as a process of its own, for tests that kill, stop, pause or measure it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

HEADWATER = Path(sys.executable).with_name("headwater")
PATIENCE_SECONDS = 30.0


class NodeProcess:
    """One node over any number of starts; it listens on the same port each time."""

    def __init__(self, folder: Path, *options: str, settings: dict[str, str] | None = None) -> None:
        """`folder` is for its output and, unless the options say otherwise, its data."""
        self.folder = folder
        self.settings = dict(settings or {})
        self.options = options
        self.address = "127.0.0.1:0"
        self.ready_line = ""
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def errors(self) -> str:
        """All it wrote to stderr, over all its starts."""
        path = self.folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""

    def complaints(self) -> list[str]:
        """Returns its lines on stderr that are more than information."""
        return [line for line in self.errors.splitlines() if " INFO " not in line]

    @property
    def pid(self) -> int:
        assert self.process is not None, "never started"
        return self.process.pid

    def command(self) -> list[str]:
        command = [str(HEADWATER), "start", "--listen", self.address, *self.options]
        if "--memory" not in self.options and "--data" not in self.options:
            command += ["--data", str(self.data)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def launch(self) -> Self:
        assert self.process is None or self.process.poll() is not None, "already running"
        with (self.folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        return self

    def start(self) -> Self:
        """Starts it and waits for its line."""
        self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        said = select.poll()  # select() has no place for the descriptors of a large process
        said.register(self.process.stdout, select.POLLIN)
        line = self.process.stdout.readline().decode() if said.poll(PATIENCE_SECONDS * 1000) else ""
        assert line.startswith("ready: "), f"said {line!r}\n{self.errors}"
        self.ready_line = line
        self.address = line.split()[1]
        return self

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS in /proc")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
