"""`headwater demo`: orders and payments are joined and summed up by Spark, and the sums followed.

It starts a node that keeps everything in memory, runs the topology `demo_streams/shop.py`, and
sends orders and their payments for half a minute. Some orders are never paid; some are late and
correct windows that were summed up already; some are too late for their window and are dropped; a
few are not orders at all and go to the dead letters. Spark writes each of its batches in one
transaction, exactly once. A `TableView` follows the table of the sums, which is shown as it
changes; at the end it is compared with what was sent, and drawn.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.arguments import seconds
from headwater.cli.errors import CommandError
from headwater.cli.extras import install_command

if TYPE_CHECKING:
    from headwater.cli.demo_shop import Shop

_EXAMPLES = """\
examples:
  headwater demo                               about a minute; draws headwater-demo.png
  headwater demo --seconds 120 --picture shop.png
"""

# With -P the modules of the current folder do not shadow ours.
_HEADWATER = [sys.executable, "-P", "-m", "headwater.cli.main"]
# In a folder of its own: what lies beside an app's file can be imported by it and by Spark's
# workers, and here that would be modules called profile and log.
_APP = Path(__file__).with_name("demo_streams") / "shop.py"
_STOP_SECONDS = 90


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="S",
        default=30.0,
        help="how long orders are sent (default: 30)",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE",
        type=Path,
        default=Path("headwater-demo.png"),
        help="the file for the picture (default: headwater-demo.png)",
    )
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    from headwater.cli.spark_start import require_spark
    from headwater.cli.stopping import StopSignals

    require_spark()
    with StopSignals():  # SIGTERM, too, must end the node and the app
        _demonstrate(options)
    return 0


def _demonstrate(options: Namespace) -> None:
    from headwater.cli.demo_shop import Shop, create_topics, open_shop, table, transactional_ids

    began = time.monotonic()
    shop = Shop(options.seconds)
    node = [*_HEADWATER, "start", "--memory", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryDirectory() as folder, _running(node, "ready: ") as line:
        address = line.split()[1]
        _say("node", f"ready on {address} after {time.monotonic() - began:.1f} s")
        asyncio.run(create_topics(address))
        _say("app", f"{_APP} starts on Spark")
        app = [*_HEADWATER, "streams", "run", str(_APP), "--bootstrap", address]
        app += ["--checkpoints", folder, "--master", "local[2]"]
        with _running(app, "shop: revenue: "):
            _say("app", f"orders joined with payments after {time.monotonic() - began:.1f} s")
            asyncio.run(open_shop(address, shop, lambda: _say_warm(began)))
            print("\n".join(table(shop, shop.seconds)), end="\n\n", flush=True)
            subprocess.run([*_HEADWATER, "streams", "list", "--bootstrap", address], check=True)
            print()
            writers = asyncio.run(transactional_ids(address))
    _sum_up(shop, writers)
    _draw(shop, options.picture)
    _say("done", f"in {time.monotonic() - began:.0f} s")


@contextmanager
def _running(command: list[str], ready: str) -> Iterator[str]:
    """Runs a process while the block runs; yields its first line that begins with `ready`."""
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(ready):
                    break
            else:
                complaints.seek(0)
                raise CommandError(f"{' '.join(command)} did not start:\n{complaints.read()}")
            yield line.strip()
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _say(what: str, text: str) -> None:
    print(f"{what:<9} {text}", flush=True)


def _say_warm(began: float) -> None:
    _say("app", f"first result after {time.monotonic() - began:.1f} s")


def _sum_up(shop: Shop, writers: list[str]) -> None:
    from headwater.cli.demo_shop import FAR_TOO_LATE

    if not writers:
        raise CommandError("the app has written without transactions")
    _say("delivery", "exactly once: each batch of the app was one transaction of")
    _say("", f"{writers[0]}, read with read_committed")
    _say("join", f"{shop.unpaid} orders were never paid, and are in no sum")
    _say("late", f"{shop.late} orders came late and corrected {len(shop.late_revenue)} sums;")
    _say("", f"{FAR_TOO_LATE} more were older than the watermark and were dropped")
    _say("dead", f"{len(shop.dead_letters)} records were not orders: {shop.dead_letters[0]}")
    sums = f"{len(shop.expected)} sums of the live table"
    _say("checked", f"{sums} agree with the {shop.sent:,} orders that were sent")


def _draw(shop: Shop, picture: Path) -> None:
    from headwater.cli.demo_picture import draw

    try:
        draw(shop, picture)
    except ModuleNotFoundError as missing:
        command = install_command("demo", missing.name or "matplotlib")
        _say("picture", f"none: {missing.name} is missing; {command}")
    except OSError as error:
        raise CommandError(f"{picture} cannot be written: {error.strerror}") from None
    else:
        _say("picture", str(picture))
