"""`--watch`: a view that is shown again every few seconds until Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable

from headwater.cli.arguments import seconds
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.stopping import Stopped, StopSignals

_INTERVAL_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def add_watch_options(parser: ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=_interval,
        metavar="SECONDS",
        help=f"refresh interval of --watch (default: {_INTERVAL_SECONDS:g})",
    )


def _interval(text: str) -> float:
    given = seconds(text)
    if not given:
        raise ArgumentTypeError(f"{text}: expected more than 0 seconds")
    return given


def watch(options: Namespace, show: Callable[[], int]) -> int:
    """Calls `show`, which prints, once or with --watch until a signal; returns its exit code. On a
    terminal each view takes the place of the one before."""
    if not options.watch:
        if options.interval is not None:
            raise CommandError("--interval needs --watch", code=USAGE)
        return show()
    interval = options.interval or _INTERVAL_SECONDS
    with StopSignals() as stop:
        try:
            while True:
                text = _printed(show)
                sys.stdout.write(f"{_CLEAR}{text}" if sys.stdout.isatty() else f"{text}\n")
                sys.stdout.flush()
                time.sleep(interval)
        except Stopped:
            if stop.number == signal.SIGINT:  # Ctrl-C is the usual end
                return 0
            raise


def _printed(show: Callable[[], int]) -> str:
    """Returns the output of `show`, whole, so that a terminal does not flicker. A failure is
    part of the view: a cluster that does not answer may do so the next time."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            show()
        except CommandError as error:
            if error.code == USAGE:
                raise
            print(error)
    return text.getvalue()
