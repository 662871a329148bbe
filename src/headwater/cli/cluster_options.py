"""Where the cluster is, and talking to it: what every command that asks a cluster shares.

`--bootstrap`, else the environment, else a profile, else the default. Whatever goes wrong on the
way becomes a `CommandError` of one line that says what to do.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.cli.errors import FAILED, USAGE, CommandError

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.errors import ClientError

BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
CLIENT_ID = "headwater-cli"

# A person waits for it: long enough for a node far away, short for one that is not up.
START_TIMEOUT_MS = 3_000
_TIMEOUT_MS = 20_000  # for each call; leaders and coordinators may move in it


def add_cluster_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"a node of the cluster, or several with commas (default: ${BOOTSTRAP_VARIABLE}, "
        f"else the profile that is used, else {BOOTSTRAP_DEFAULT})",
    )
    parser.add_argument(
        "--profile", metavar="PROFILE", help="the cluster of this name; see `headwater profile`"
    )


def bootstrap_of(options: Namespace) -> str:
    """The first of these that is given. There is no other place that decides this."""
    from headwater.cli.profile import PROFILE_VARIABLE, Profiles

    if options.bootstrap is not None:
        # Nothing in it, as of a variable that a script has not set, is no wish for the default.
        if not options.bootstrap.strip(" ,"):
            raise CommandError("--bootstrap is empty: expected HOST:PORT", code=USAGE)
        return str(options.bootstrap)
    if getattr(options, "profile", None):
        return Profiles.read().bootstrap(options.profile)
    if os.environ.get(BOOTSTRAP_VARIABLE):
        return os.environ[BOOTSTRAP_VARIABLE]
    profiles = Profiles.read()
    chosen = os.environ.get(PROFILE_VARIABLE) or profiles.used
    return profiles.bootstrap(chosen) if chosen else BOOTSTRAP_DEFAULT


@contextmanager
def open_admin(options: Namespace) -> Iterator[Admin]:
    """An admin client for the length of a command."""
    with explained_errors():
        from headwater.blocking import Admin

        with Admin(
            bootstrap_of(options),
            client_id=CLIENT_ID,
            default_api_timeout_ms=_TIMEOUT_MS,
            start_timeout_ms=getattr(options, "start_timeout_ms", START_TIMEOUT_MS),
        ) as admin:
            yield admin


@contextmanager
def explained_errors() -> Iterator[None]:
    """Around whatever a command does with clients."""
    from headwater.cli.quick import import_asyncio

    import_asyncio()
    from headwater.client.errors import ClientError

    try:
        yield
    except ClientError as error:
        raise explained(error) from None


def explained(error: ClientError) -> CommandError:
    """What went wrong as a command says it."""
    from headwater.client.errors import (
        BrokersUnavailable,
        ConfigError,
        GroupNotFound,
        NotKafka,
        UnknownTopic,
        UnsupportedVersion,
    )

    then = None
    match error:
        case ConfigError():
            then = f"name a node with --bootstrap, such as {BOOTSTRAP_DEFAULT}"
        case BrokersUnavailable():
            then = "is a node up there? `headwater start` runs one; --bootstrap names another"
        case NotKafka():
            then = "--bootstrap names the node to ask"
        case UnknownTopic() if error.code is not None:  # else it is a partition that is not there
            then = "`headwater topic list` shows those there are"
        case GroupNotFound():
            then = "`headwater group list` shows those there are"
        case UnsupportedVersion():
            then = "this cluster cannot do that; a newer one may"
    return CommandError(
        one_line(error), then=then, code=USAGE if isinstance(error, ConfigError) else FAILED
    )


def one_line(error: ClientError) -> str:
    """What brokers say may have many lines; the first is the one that matters."""
    return str(error).splitlines()[0]
