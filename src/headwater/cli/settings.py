"""The settings of a node from the command line: a file, `--set`, and the short options.

What is typed wins over what stands in the file. Kafka's names are used throughout; `--data` and
`--listen` are only short for `log.dirs` and `listeners`.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from headwater.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from headwater.config import NodeConfig

DATA_DEFAULT = "headwater-data"
MEMORY_DATA = "/memory"  # a name on the disk that lives in memory


def add_settings_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"where to keep the data (log.dirs; default: ./{DATA_DEFAULT})",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        action="append",
        default=[],
        help="settings in Kafka's server.properties format; of several files, later ones win",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one setting, by Kafka's name; may be repeated and overrides the file",
    )


def read_settings(
    options: Namespace, *, listen: str | None = None, memory: bool = False
) -> dict[str, str]:
    """The user's keys and values, and where the data is kept if they do not say."""
    properties = given_settings(options)
    if memory:
        if options.data:
            raise CommandError("--memory keeps no files: leave out --data", code=USAGE)
        for key in ("log.dir", "metadata.log.dir"):
            properties.pop(key, None)
        properties["log.dirs"] = MEMORY_DATA
    elif options.data:
        properties["log.dirs"] = os.path.abspath(options.data)
    elif not properties.get("log.dirs") and not properties.get("log.dir"):
        properties["log.dirs"] = os.path.abspath(DATA_DEFAULT)
    if listen is not None:
        if "listeners" in properties:
            _check_replaced(listen, check_settings(properties))
        properties["listeners"] = _listeners(listen, properties)
    return properties


def _check_replaced(listen: str, config: NodeConfig) -> None:
    """Refuses to replace a listener that is protected by one that serves in the clear."""
    for at in config.broker_listeners:
        if at.protocol != "PLAINTEXT":
            raise CommandError(
                f"--listen {listen} would replace {at}, which is protected, by a listener in the "
                "clear",
                then="leave out --listen, or change listeners",
                code=USAGE,
            )


def check_guarded(config: NodeConfig, listen: str) -> None:
    """Refuses a listener of `--listen` that is open to more than this host."""
    from headwater.config.support import open_listeners

    if any(at in config.broker_listeners for at in open_listeners(config)):
        raise unguarded(listen)


def check_metrics(listen: str, *, insecure: bool) -> None:
    """Refuses an invalid address of `--metrics`, and one that other hosts can reach."""
    check_http(
        "--metrics", listen, insecure=insecure, what="the names of topics, groups and clients"
    )


def check_http(option: str, listen: str, *, insecure: bool, what: str) -> None:
    """Refuses an invalid address to serve `what` at, and one that other hosts can reach."""
    from headwater.config import ConfigError
    from headwater.config.listeners import METRICS_LISTEN, parse_host_port
    from headwater.config.support import is_loopback

    try:
        host, _ = parse_host_port(METRICS_LISTEN, listen)
    except ConfigError:
        raise CommandError(
            f"{option} {listen}: expected HOST:PORT such as 127.0.0.1:9404, or 127.0.0.1:0 for "
            "any free port",
            code=USAGE,
        ) from None
    if not is_loopback(host) and not insecure:
        raise CommandError(
            f"{option} {listen}: everybody who reaches this address could read {what}, as it has "
            "no authentication",
            then="serve them on 127.0.0.1, or add --insecure if only trusted programs reach it",
            code=USAGE,
        )


def unguarded(listen: str) -> CommandError:
    return CommandError(
        f"--listen {listen}: everybody who reaches this address could read, write and administer, "
        "as it has no authentication",
        then="listen on 127.0.0.1, set up TLS and users as in docs/security.md, or add --insecure "
        "if only trusted programs reach it",
        code=USAGE,
    )


def given_settings(options: Namespace) -> dict[str, str]:
    """The keys and values of the files and of `--set`."""
    properties: dict[str, str] = {}
    for path in options.config:
        properties |= _from_file(path)
    for item in options.set:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"--set {item}: expected KEY=VALUE", code=USAGE)
        properties[key.strip()] = value.strip()
    return looked_up(properties)


def looked_up(properties: dict[str, str]) -> dict[str, str]:
    """Returns settings with the values that config providers have for them."""
    if not properties.get("config.providers"):
        return properties
    from headwater.config import ConfigError
    from headwater.config.providers import resolve
    from headwater.io.secrets import system_sources

    try:
        return resolve(properties, system_sources())
    except ConfigError as error:
        raise CommandError(str(error), code=USAGE) from None


def check_settings(properties: dict[str, str]) -> NodeConfig:
    from headwater.config import ConfigError, node_config

    try:
        return node_config(properties)
    except ConfigError as error:
        raise CommandError(str(error), code=USAGE) from None


def _from_file(path: str) -> dict[str, str]:
    from headwater.config.properties import parse_properties

    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read())
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"--config {path}: {reason.lower()}", code=USAGE) from None
    except ValueError as error:
        raise CommandError(f"--config {path}: {error}", code=USAGE) from None


def _listeners(listen: str, properties: dict[str, str]) -> str:
    """`--listen` takes the place of every listener but those of the controller."""
    host, colon, port = listen.rpartition(":")
    if not colon or "://" in host or not port.isdigit() or int(port) > 65535:
        raise CommandError(
            f"--listen {listen}: expected HOST:PORT such as 127.0.0.1:9092, "
            "127.0.0.1:0 for any free port, or :9092 for every interface",
            code=USAGE,
        )
    controllers = {
        name.strip().upper()
        for name in properties.get("controller.listener.names", "").split(",")
        if name.strip()
    }
    kept = [
        item.strip()
        for item in properties.get("listeners", "").split(",")
        if item.partition("://")[0].strip().upper() in controllers
    ]
    return ",".join([f"PLAINTEXT://{host}:{port}", *kept])
