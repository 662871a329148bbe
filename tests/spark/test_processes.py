"""Spark in other processes: a killed driver, a Connect server, a standalone cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.nodes import free_port
from headwater.spark.session import quick_home
from tests.spark.conftest import Topics

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "tests.spark.programs"]


def environment() -> dict[str, str]:
    """Returns variables for Spark's programs, with a home in which its Python processes start
    quickly: Spark waits ten seconds for each of them, which is not enough on a busy machine."""
    import pyspark

    real = Path(pyspark.__file__).parent
    home = quick_home(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")) or real
    return os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }


@contextmanager
def running(
    command: list[str], output: Path, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process; it and its children are killed at the end."""
    with output.open("ab") as written:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment() if env is None else env,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def wait_until(what: str, output: Path, condition: object, seconds: float = 240) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}:\n{output.read_text()[-3000:]}"
        time.sleep(0.2)


def written(folder: Path) -> list[int]:
    """Returns what the file sink has committed, by its own log of files."""
    import json

    names = set()
    for entry in sorted((folder / "out" / "_spark_metadata").glob("[0-9]*")):
        if entry.suffix in ("", ".compact"):
            names |= {json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]}
    lines = []
    for name in names:
        lines += Path(name.removeprefix("file://")).read_text().split()
    return sorted(map(int, lines))


def test_a_driver_that_was_killed_goes_on_where_it_was(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    topics.write(topic, range(300))
    output = tmp_path / "driver.out"
    command = [*PROGRAM, "copy", topics.bootstrap, topic, str(tmp_path)]
    with running(command, output) as driver:
        wait_until("the first batches", output, lambda: len(written(tmp_path)) >= 50)
        kill(driver)
    before = written(tmp_path)
    assert before
    topics.write(topic, range(300, 600), partition=1)
    with running(command, output):
        wait_until("all of it", output, lambda: len(written(tmp_path)) >= 600)
    assert written(tmp_path) == list(range(600))


def reading_workers(leader: subprocess.Popen[bytes]) -> list[int]:
    """Returns the Python workers in the process's session that have sent a megabyte or more."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            if b"pyspark.daemon" not in command or b"pyspark.worker" not in command:
                continue
            if os.getsid(int(process.name)) != leader.pid:
                continue
            written = int((process / "io").read_text().split("wchar:")[1].split()[0])
        except (OSError, ProcessLookupError):
            continue
        if written > 1_000_000:
            found.append(int(process.name))
    return found


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def write_much(topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    for start in range(0, 200_000, 20_000):
        values = [f"{number:0100}" for number in range(start, start + 20_000)]
        topics.write(topic, values, partition=start // 20_000 % 2)


def copying_slowly(topics: Topics, topic: str, folder: Path, master: str) -> list[str]:
    return [*PROGRAM, "copy-slowly", topics.bootstrap, topic, str(folder), master]


def test_a_worker_that_is_killed_while_it_reads_costs_no_records(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    write_much(topics, topic)
    output = tmp_path / "driver.out"
    with running(copying_slowly(topics, topic, tmp_path, "local[2,4]"), output) as driver:
        wait_until("a worker that reads", output, lambda: reading_workers(driver))
        for pid in reading_workers(driver):
            os.kill(pid, signal.SIGKILL)
        wait_until("the end", output, lambda: driver.poll() is not None)
        assert driver.returncode == 0, output.read_text()[-3000:]
    assert "Python worker exited unexpectedly" in output.read_text()
    assert written(tmp_path) == list(range(200_000))


def test_an_executor_that_is_killed_while_it_reads_costs_no_records(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    write_much(topics, topic)
    output = tmp_path / "driver.out"
    with (
        standalone_cluster(tmp_path) as (master, worker),
        running(copying_slowly(topics, topic, tmp_path, master), output) as driver,
    ):
        wait_until("an executor that reads", output, lambda: reading_workers(worker))
        for pid in {parent(parent(each)) for each in reading_workers(worker)}:
            os.kill(pid, signal.SIGKILL)
        wait_until("the end", output, lambda: driver.poll() is not None)
        assert driver.returncode == 0, output.read_text()[-3000:]
    assert "Lost executor" in output.read_text()
    assert written(tmp_path) == list(range(200_000))


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
options = {{"kafka.bootstrap.servers": "{bootstrap}"}}


@dp.table
def orders():
    source = spark.readStream.format("headwater").options(**options)
    source = source.option("subscribe", "{topic}").option("startingOffsets", "earliest")
    return source.load().selectExpr("cast(value as string) as value")


dp.create_sink("copies", "headwater", {{**options, "topic": "{topic}-copy"}})


@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("orders").selectExpr("concat('copy of ', value) as value")
"""


def test_a_declarative_pipeline_reads_one_topic_and_writes_another(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-copy"):
        topics.create(name, 2)
    topics.write(topic, range(100))
    code = PIPELINE.format(bootstrap=topics.bootstrap, topic=topic)
    (tmp_path / "orders.py").write_text(code)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{tmp_path}/storage\n"
        "libraries:\n  - glob:\n      include: orders.py\n"
    )
    settings = ["spark.ui.enabled=false", f"spark.sql.warehouse.dir={tmp_path}/warehouse"]
    done = subprocess.run(
        [
            str(Path(environment()["SPARK_HOME"]) / "bin" / "spark-pipelines"),
            "run",
            *(word for each in settings for word in ("--conf", each)),
        ],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert topics.read(f"{topic}-copy", 2) == sorted(f"copy of {number}" for number in range(100))


def counted(topics: Topics, topic: str, where: str) -> str:
    done = subprocess.run(
        [*PROGRAM, "count", topics.bootstrap, topic, where],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def standalone_cluster(
    folder: Path, env: dict[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Starts a master and a worker with two cores; yields the master's address and the worker."""
    start = [str(Path(environment()["SPARK_HOME"]) / "bin" / "spark-class")]
    port = free_port()
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = [*start, "org.apache.spark.deploy.master.Master", *place, "--port", str(port)]
    worker = [*start, "org.apache.spark.deploy.worker.Worker", *place]
    worker += ["-c", "2", "-m", "2g", "-d", str(folder / "work"), f"spark://127.0.0.1:{port}"]
    output = folder / "cluster.out"
    with running(master, output, env), running(worker, output, env) as working:
        wait_until(
            "a worker",
            output,
            lambda: "Successfully registered with master" in output.read_text(),
        )
        yield f"spark://127.0.0.1:{port}", working


def test_a_standalone_cluster_from_the_package_reads_a_topic(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    topics.write(topic, range(100))
    with standalone_cluster(tmp_path) as (master, _):
        assert counted(topics, topic, master) == "batch 100\nstream 100\n"


APP = """
from dataclasses import dataclass

from headwater.streams import App, Context, Processor, Record, State


@dataclass
class Order:
    id: int


class Counting(Processor[str, Order, str]):
    seen: State[int] = State(default=0)

    def process(self, record: Record[str, Order], ctx: Context[str]):
        self.seen.set(self.seen.get(0) + 1)
        yield f"{record.value.id}: {self.seen.get(0)}"


app = App("TOPIC")
app.stream("TOPIC", Order).process(Counting).to("TOPIC-numbers")
"""


def python_without_us(folder: Path) -> Path:
    """Makes an interpreter that has what is installed here, but for our package."""
    packages = folder / "packages"
    packages.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "headwater" not in each.name.lower() and each.suffix != ".pth":
            (packages / each.name).symlink_to(each)
    python = folder / "python"
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    path = f'PYTHONPATH="$PYTHONPATH:{packages}"'
    python.write_text(f'#!/bin/sh\n{path} exec "{base}" "$@"\n')
    python.chmod(0o755)
    return python


def test_the_package_is_shipped_to_executors_that_do_not_have_it(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    python = python_without_us(tmp_path)
    bare = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    missing = [str(python), "-c", "import pyspark, pyarrow, headwater"]
    found = subprocess.run(missing, env=bare, capture_output=True, text=True, check=False)
    assert "No module named 'headwater'" in found.stderr
    topics.create(topic, 2)
    topics.write(topic, [f'{{"id": {number}}}' for number in range(3)], key="ada")
    (tmp_path / "app.py").write_text(APP.replace("TOPIC", topic))
    with standalone_cluster(tmp_path, bare) as (master, _):
        command = [sys.executable, "-m", "headwater.cli.main", "streams", "run"]
        command += [str(tmp_path / "app.py"), "--master", master, "--ship", "--once"]
        command += ["--bootstrap", topics.bootstrap, "--checkpoints", str(tmp_path / "progress")]
        done = subprocess.run(
            [*command, "--conf", "spark.sql.shuffle.partitions=2"],
            env=environment() | {"PYSPARK_PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert topics.read(f"{topic}-numbers", 1) == ["0: 1", "1: 2", "2: 3"]


def test_a_connect_server_reads_a_topic(topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic, 2)
    topics.write(topic, range(100))
    home = Path(environment()["SPARK_HOME"])
    port = free_port()
    server = [
        str(home / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master",
        "local[2]",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        "spark.ui.enabled=false",
        "spark-internal",
    ]
    output = tmp_path / "server.out"
    with running(server, output):
        wait_until(
            "the server", output, lambda: "Spark Connect server started" in output.read_text()
        )
        assert counted(topics, topic, f"sc://127.0.0.1:{port}") == "batch 100\nstream 100\n"
