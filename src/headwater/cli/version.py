"""`headwater version`: the versions that are installed, for a bug report or a script."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from headwater import __version__
from headwater.cli.output import add_output_option, print_fields


def define(parser: ArgumentParser) -> None:
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    import platform

    fields = {
        "headwater": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}".lower(),
    }
    print_fields(fields, output=options.output)
    return 0
