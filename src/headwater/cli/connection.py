"""Which cluster a command asks, and the connection to it.

The address is `--bootstrap`, else a profile, else the environment, else the default; the settings
come from a file, as Kafka's tools take it with --command-config. Every error of a client becomes a
`CommandError` of one line that says what to do.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.errors import FAILED, USAGE, CommandError

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.cli.profile import Profile
    from headwater.client.errors import ClientError

BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
CONFIG_VARIABLE = "HEADWATER_CLIENT_CONFIG"
CLIENT_ID = "headwater-cli"
_NOT_FROM_FILE = ("client.id", "bootstrap.servers")  # a command sets these itself

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
    parser.add_argument(
        "--client-config",
        metavar="FILE",
        help="settings for the client, such as security.protocol, as Kafka's tools take them "
        f"(default: the profile's, else ${CONFIG_VARIABLE})",
    )


def add_property_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the client, by Kafka's name: max.request.size=5000000",
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a command goes, and with which settings it gets in."""

    bootstrap: str
    settings: dict[str, str]

    @property
    def spark_options(self) -> dict[str, str]:
        """The same for Spark's sources and sinks."""
        return {f"kafka.{name}": value for name, value in self.settings.items()}


def cluster_of(options: Namespace) -> Cluster:
    """The first of these that is given. There is no other place that decides this."""
    profile = _profile(options)
    path = getattr(options, "client_config", None)
    if path is None and profile is not None:
        path = profile.client_config
    path = path or os.environ.get(CONFIG_VARIABLE)
    settings = read_client_config(path) if path else {}
    bootstrap = settings.get("bootstrap.servers", BOOTSTRAP_DEFAULT)
    if options.bootstrap is not None:
        bootstrap = str(options.bootstrap)
        # Nothing in it, as of a variable that a script has not set, is no wish for the default.
        if not bootstrap.strip(" ,"):
            raise CommandError("--bootstrap is empty: expected HOST:PORT", code=USAGE)
    elif profile is not None:
        bootstrap = profile.bootstrap
    elif os.environ.get(BOOTSTRAP_VARIABLE):
        bootstrap = os.environ[BOOTSTRAP_VARIABLE]
    return Cluster(bootstrap, for_any_client(settings))


def _profile(options: Namespace) -> Profile | None:
    """The profile whose cluster it is."""
    from headwater.cli.profile import PROFILE_VARIABLE, Profiles

    if options.bootstrap is not None:
        return None
    if getattr(options, "profile", None):
        return Profiles.read().get(options.profile)
    if os.environ.get(BOOTSTRAP_VARIABLE):
        return None
    profiles = Profiles.read()
    chosen = os.environ.get(PROFILE_VARIABLE) or profiles.used
    return profiles.get(chosen) if chosen else None


# Settings from a file


def read_client_config(path: str) -> dict[str, str]:
    """All that is in the file, by Kafka's names."""
    from headwater.client.config import UNUSED, AdminConfig, ConsumerConfig, ProducerConfig
    from headwater.config import parse_properties

    try:
        given = parse_properties(Path(path).read_text())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--client-config {path}: {reason}", code=USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"--client-config {path} is no file of text", code=USAGE) from None
    kinds = (AdminConfig, ProducerConfig, ConsumerConfig)
    known = set().union(*UNUSED.values(), *(kind.names() for kind in kinds))
    strange = sorted(set(given) - known)
    if strange:
        raise CommandError(
            f"--client-config {path}: no setting is called {strange[0]}",
            then="it takes the names that Kafka's clients have, such as security.protocol",
            code=USAGE,
        )
    return given


def for_any_client(settings: dict[str, str]) -> dict[str, str]:
    """What every client has, less what a command says itself."""
    from headwater.client.config import ClientConfig

    known = ClientConfig.names().difference(_NOT_FROM_FILE)
    return {name: value for name, value in settings.items() if name in known}


# Talking to it


@contextmanager
def open_admin(options: Namespace) -> Iterator[Admin]:
    """An admin client for the length of a command."""
    with explained_errors():
        from headwater.blocking import Admin

        cluster = cluster_of(options)
        with Admin(
            cluster.bootstrap,
            config=cluster.settings,
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
        AuthenticationFailed,
        BrokersUnavailable,
        BufferFull,
        ConfigError,
        GroupNotFound,
        NotKafka,
        UnknownTopic,
        UnsupportedVersion,
    )

    then = None
    match error:
        case ConfigError() if "bootstrap" in str(error):
            then = f"name a node with --bootstrap, such as {BOOTSTRAP_DEFAULT}"
        case BrokersUnavailable():
            then = "is a node up there? `headwater start` runs one; --bootstrap names another"
        case AuthenticationFailed():
            then = "--client-config names a file with the settings to get in; see `--help`"
        case BufferFull():
            then = "the cluster took no records for so long: look whether its nodes are up"
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
