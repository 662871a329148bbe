"""The cluster that a command talks to, and the connection to it.

The address is `--bootstrap`, else a profile, else the environment, else the default; the settings
come from a file, as Kafka's tools take it with --command-config. Every error of a client becomes a
`CommandError` of one line that says what to do.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
_PROVIDERS = "config.providers"
_NOT_FROM_FILE = ("client.id", "bootstrap.servers")  # a command sets these itself

# A person waits: long enough for a distant node, short for one that is down.
START_TIMEOUT_MS = 3_000
_TIMEOUT_MS = 20_000  # for each call; leaders and coordinators may move meanwhile


def add_cluster_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"a node of the cluster, or several with commas (default: ${BOOTSTRAP_VARIABLE}, "
        f"else the profile in use, else {BOOTSTRAP_DEFAULT})",
    )
    parser.add_argument(
        "--profile", metavar="PROFILE", help="a cluster by its name; see `headwater profile`"
    )
    parser.add_argument(
        "--client-config",
        metavar="FILE",
        help="client settings such as security.protocol, in a file as for Kafka's tools "
        f"(default: the profile's, else ${CONFIG_VARIABLE})",
    )


def add_controller_option(parser: ArgumentParser) -> None:
    """For commands that controllers can answer as well."""
    parser.add_argument(
        "--bootstrap-controller",
        metavar="HOST:PORT",
        help="a controller of the cluster, or several with commas, to ask instead of brokers",
    )


def add_property_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a client setting by Kafka's name, such as request.timeout.ms=5000; may be repeated",
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a command asks, and the settings to get in."""

    bootstrap: str
    settings: dict[str, str] = field(repr=False)
    is_of_controllers: bool = False  # the address is

    @property
    def spark_options(self) -> dict[str, str]:
        """The settings as options of Spark's sources and sinks."""
        return {f"kafka.{name}": value for name, value in self.settings.items()}


def cluster_of(options: Namespace) -> Cluster:
    """Decides which cluster the options mean. No other code decides this."""
    profile = _profile(options)
    path = getattr(options, "client_config", None)
    if path is None and profile is not None:
        path = profile.client_config
    path = path or os.environ.get(CONFIG_VARIABLE)
    settings = read_client_config(path) if path else {}
    controllers = getattr(options, "bootstrap_controller", None)
    if controllers is not None:
        if options.bootstrap is not None:
            raise CommandError(
                "--bootstrap and --bootstrap-controller cannot be combined", code=USAGE
            )
        if not controllers.strip(" ,"):
            raise CommandError("--bootstrap-controller is empty: expected HOST:PORT", code=USAGE)
        return Cluster(controllers, for_any_client(settings), is_of_controllers=True)
    bootstrap = settings.get("bootstrap.servers", BOOTSTRAP_DEFAULT)
    if options.bootstrap is not None:
        bootstrap = str(options.bootstrap)
        # An empty value comes from an unset variable in a script; it does not mean the default.
        if not bootstrap.strip(" ,"):
            raise CommandError("--bootstrap is empty: expected HOST:PORT", code=USAGE)
    elif profile is not None:
        bootstrap = profile.bootstrap
    elif os.environ.get(BOOTSTRAP_VARIABLE):
        bootstrap = os.environ[BOOTSTRAP_VARIABLE]
    return Cluster(bootstrap, for_any_client(settings))


def _profile(options: Namespace) -> Profile | None:
    """Returns the profile that applies, if any."""
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
    """Reads client settings, by Kafka's names. Programs may share the file, so it may have settings
    of producers and consumers."""
    from headwater.cli.settings import looked_up
    from headwater.client.config import UNUSED, AdminConfig, ConsumerConfig, ProducerConfig
    from headwater.config import parse_properties

    try:
        given = parse_properties(Path(path).read_text())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--client-config {path}: {reason}", code=USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"--client-config {path} is not a text file", code=USAGE) from None
    kinds = (AdminConfig, ProducerConfig, ConsumerConfig)
    known = set().union(*UNUSED.values(), *(kind.names() for kind in kinds))
    given = looked_up(given)
    given = {name: value for name, value in given.items() if not name.startswith(_PROVIDERS)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise CommandError(
            f"--client-config {path}: unknown setting {unknown[0]}",
            then="it takes the settings of Kafka's clients, such as security.protocol",
            code=USAGE,
        )
    return given


def for_any_client(settings: dict[str, str]) -> dict[str, str]:
    """Returns the settings that every client has, except those that a command sets itself."""
    from headwater.client.config import ClientConfig

    known = ClientConfig.names().difference(_NOT_FROM_FILE)
    return {name: value for name, value in settings.items() if name in known}


# Talking to it


@contextmanager
def open_admin(options: Namespace) -> Iterator[Admin]:
    """Opens an admin client for the duration of a command."""
    with explained_errors():
        from headwater.blocking import Admin

        cluster = cluster_of(options)
        where = "bootstrap.controllers" if cluster.is_of_controllers else "bootstrap.servers"
        with Admin(
            # A client that ends in a moment measures nothing of interest.
            config={"enable.metrics.push": False, **cluster.settings, where: cluster.bootstrap},
            client_id=CLIENT_ID,
            default_api_timeout_ms=_TIMEOUT_MS,
            start_timeout_ms=getattr(options, "start_timeout_ms", START_TIMEOUT_MS),
        ) as admin:
            yield admin


@contextmanager
def explained_errors() -> Iterator[None]:
    """Turns the errors of clients into those of a command."""
    from headwater.cli.quick import import_asyncio

    import_asyncio()
    from headwater.client.errors import ClientError

    try:
        yield
    except ClientError as error:
        raise explained(error) from None


def explained(error: ClientError) -> CommandError:
    """Returns the error as a command reports it, with what to do next."""
    from headwater.client.errors import (
        AuthenticationFailed,
        BrokersUnavailable,
        BufferFull,
        ConfigError,
        GroupNotFound,
        NotKafka,
        RequestTimedOut,
        UnknownTopic,
        UnsupportedVersion,
        WrongListener,
    )

    then = None
    match error:
        case ConfigError() if "bootstrap" in str(error):
            then = f"name a node with --bootstrap, such as {BOOTSTRAP_DEFAULT}"
        case BrokersUnavailable():
            then = "is a node running there? `headwater start` runs one; --bootstrap names another"
        case AuthenticationFailed():
            then = "--client-config names a file with credentials; see `--help`"
        case BufferFull():
            then = "the cluster accepted no records for that long: check that its nodes are up"
        case WrongListener():
            then = "--bootstrap names brokers, and --bootstrap-controller of `cluster` controllers"
        case NotKafka():
            then = "--bootstrap names the node to ask"
        case RequestTimedOut():
            then = "`headwater cluster status` says what is wrong, and what to do"
        case UnknownTopic() if error.code is not None:  # otherwise a partition is missing
            then = "`headwater topic list` shows the topics"
        case GroupNotFound():
            then = "`headwater group list` shows the groups"
        case UnsupportedVersion():
            then = "the cluster does not support this; a newer version may"
    return CommandError(
        one_line(error), then=then, code=USAGE if isinstance(error, ConfigError) else FAILED
    )


def one_line(error: ClientError) -> str:
    """Returns the first line: messages of brokers may have many, and the first one matters."""
    return str(error).splitlines()[0]
