"""`headwater config`: shows settings of topics, brokers and groups with their sources, and changes
them while the cluster runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import read_pairs
from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, print_json, print_table
from headwater.cli.parser import add_actions, meant
from headwater.cli.topic_describe import require_topics

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import ConfigEntry, ConfigResource
    from headwater.client.admin.configs import ConfigChange

_EXAMPLES = """\
examples:
  headwater config get topic orders                      settings that are not the defaults
  headwater config get topic orders retention.ms
  headwater config get broker 1 --all
  headwater config get broker all                        settings for all brokers at once
  headwater config set topic orders retention.ms=86400000 --append cleanup.policy=compact
  headwater config set broker all log.cleaner.threads=2
  headwater config set broker 1 --file team.properties               with passwords
  headwater config set group billing consumer.session.timeout.ms=60000
  headwater config set topic orders --delete retention.ms            back to the default
  headwater config set client-metrics slow interval.ms=5000 metrics=org.apache.kafka.producer.
"""

_ALL_BROKERS = "all"


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("get", "show settings with their sources and defaults", _define_get),
            ("set", "change settings while the cluster runs", _define_set),
        ),
        examples=_EXAMPLES,
    )


def _add_resource(action: ArgumentParser) -> None:
    action.add_argument(
        "kind",
        choices=("topic", "broker", "group", "client-metrics", "broker-logger"),
        help="the kind of resource",
    )
    action.add_argument(
        "name",
        metavar="NAME",
        help="name of the topic, group or metrics subscription; a broker's id, or all",
    )


def _define_get(action: ArgumentParser) -> None:
    _add_resource(action)
    action.add_argument("keys", metavar="KEY", nargs="*", help="only these settings")
    action.add_argument("--all", action="store_true", help="include settings with their defaults")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_get)


def _define_set(action: ArgumentParser) -> None:
    _add_resource(action)
    action.add_argument("settings", metavar="KEY=VALUE", nargs="*")
    action.add_argument(
        "--file",
        metavar="FILE",
        help="settings as in server.properties, - for standard input: for secrets, which other "
        "users of the machine could see among the arguments",
    )
    add_change_options(action)
    action.add_argument(
        "--dry-run", action="store_true", help="validate the request without changing anything"
    )
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_set)


def add_change_options(action: ArgumentParser) -> None:
    """Adds the changes other than setting a value; `read_changes` reads them."""
    for option, metavar, text in (
        ("--delete", "KEY", "reset to the default"),
        ("--append", "KEY=VALUE", "add an element to a list"),
        ("--subtract", "KEY=VALUE", "remove an element from a list"),
    ):
        action.add_argument(option, action="append", default=[], metavar=metavar, help=text)


def read_changes(options: Namespace, settings: list[str]) -> dict[str, ConfigChange]:
    from headwater.client.admin import Append, Subtract

    changes: dict[str, ConfigChange] = {**read_pairs(settings, "")}
    parts = (
        {key: Append(value) for key, value in read_pairs(options.append, "--append").items()},
        {key: Subtract(value) for key, value in read_pairs(options.subtract, "--subtract").items()},
        dict.fromkeys(options.delete),
    )
    for part in parts:
        for key, change in part.items():
            if key in changes:
                raise CommandError(f"{key} is given more than once", code=USAGE)
            changes[key] = change
    return changes


def resource_of(kind: str, name: str) -> ConfigResource:
    from headwater.client.admin import (
        ConfigResource,
        ResourceType,
        broker_config,
        client_metrics_config,
        group_config,
        topic_config,
    )

    match kind:
        case "topic":
            return topic_config(name)
        case "group":
            return group_config(name)
        case "client-metrics":
            return client_metrics_config(name)
        case "broker-logger" if name.isdigit():
            return ConfigResource(ResourceType.BROKER_LOGGER, name)
    if name == _ALL_BROKERS and kind == "broker":
        return broker_config()
    if not name.isdigit():
        ids = "its id" if kind == "broker-logger" else f"its id, or `{_ALL_BROKERS}`"
        raise CommandError(f"broker {name}: expected {ids}", code=USAGE)
    return broker_config(int(name))


# get


def _get(options: Namespace) -> int:
    resource = resource_of(options.kind, options.name)
    with open_admin(options) as admin:
        _require(admin, options)
        entries = admin.describe_config(resource)
    for key in options.keys:
        if key not in entries:
            raise _unknown(key, entries)
    if options.keys:
        shown = [entries[key] for key in options.keys]
    else:
        shown = [each for each in entries.values() if options.all or not each.is_default]
    if options.output == "json":
        print_json([_as_json(each) for each in shown])
    elif not shown:
        print(f"all settings of {options.kind} {options.name} are the defaults; --all shows them")
    else:
        rows = [(each.name, _value(each), _source(each), _default(each)) for each in shown]
        print_table(("setting", "value", "from", "default"), rows, output="text")
    return 0


def _require(admin: Admin, options: Namespace) -> None:
    """Reports a missing resource at once: brokers may have configs of deleted topics, and a broker
    that is down would be waited for."""
    if options.kind == "topic":
        require_topics(admin, [options.name])
    elif options.kind in ("broker", "broker-logger") and options.name != _ALL_BROKERS:
        nodes = [each.id for each in admin.describe_cluster().nodes]
        if int(options.name) not in nodes:
            known = ", ".join(map(str, nodes))
            raise CommandError(f"broker {options.name} is not up; brokers: {known}")


def _unknown(key: str, entries: dict[str, ConfigEntry]) -> CommandError:
    return CommandError(f"unknown setting {key}{meant(key, entries)}")


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if entry.value is None else entry.value


def _source(entry: ConfigEntry) -> str:
    return entry.source.name.lower().replace("_", " ")


def _default(entry: ConfigEntry) -> str:
    return entry.default or ""


def _as_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "setting": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "default": entry.default,
        "type": entry.type,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }


# set


def _set(options: Namespace) -> int:
    resource = resource_of(options.kind, options.name)
    changes = read_changes(options, options.settings)
    for key, value in _from_file(options.file).items():
        if key in changes:
            raise CommandError(f"{key} is given more than once", code=USAGE)
        changes[key] = value
    if not changes:
        raise CommandError("nothing to change: give KEY=VALUE, --delete KEY ...", code=USAGE)
    with open_admin(options) as admin:
        _require(admin, options)
        done = change_configs(admin, resource, changes, dry_run=options.dry_run)
    if options.output == "json":
        print_json(
            {
                "kind": options.kind,
                "name": options.name,
                "changed": not options.dry_run,
                "settings": done,
            }
        )
        return 0
    for each in done:
        print(change_text(each))
    if options.dry_run:
        print("nothing has changed: this was a dry run")
    return 0


def _from_file(path: str | None) -> dict[str, str]:
    from headwater.config import parse_properties

    if path is None:
        return {}
    try:
        if path != "-":
            text = Path(path).read_text(encoding="utf-8")
        elif sys.stdin is None:
            raise CommandError("standard input is closed: expected settings", code=USAGE)
        else:
            text = sys.stdin.read()
        return parse_properties(text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--file {path}: {reason}", code=USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"--file {path} is not text in UTF-8", code=USAGE) from None
    except ValueError as error:
        raise CommandError(f"--file {path}: {error}", code=USAGE) from None


def change_configs(
    admin: Admin,
    resource: ConfigResource,
    changes: dict[str, ConfigChange],
    *,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """Makes the changes; returns the old value of each setting and its change."""
    from headwater.client.admin import Append, ResourceType, Subtract

    before = admin.describe_config(resource)
    for name, change in changes.items():
        # Brokers accept it silently. For topics and groups they report every setting that exists.
        if (
            change is None
            and name not in before
            and resource.type
            in (
                ResourceType.TOPIC,
                ResourceType.GROUP,
            )
        ):
            raise _unknown(name, before)
    admin.alter_config(resource, changes, validate_only=dry_run)
    done = []
    for name, change in changes.items():
        entry = before.get(name)
        row: dict[str, Any] = {"setting": name, "was": None if entry is None else entry.value}
        match change:
            case Append(value):
                row |= {"done": "append", "value": value}
            case Subtract(value):
                row |= {"done": "subtract", "value": value}
            case None:
                row |= {"done": "delete", "value": None}
            case _:
                row |= {"done": "set", "value": str(change)}
        if row["value"] is not None and _is_secret(resource, name, entry):
            row["value"] = "(hidden)"
        done.append(row)
    return done


def _is_secret(resource: ConfigResource, name: str, entry: ConfigEntry | None) -> bool:
    """Returns whether a value is not shown. A key of a broker that nobody knows may be a plugin's
    password; brokers hide it, too."""
    from headwater.client.admin import ResourceType
    from headwater.config.catalog import broker_definition

    if entry is not None:
        return entry.is_sensitive
    if resource.type != ResourceType.BROKER:
        return False
    definition = broker_definition(name)
    return definition is None or definition.sensitive


_SIGNS = {"set": "->", "append": "+", "subtract": "-", "delete": "-> the default"}


def change_text(row: dict[str, Any]) -> str:
    was = "" if row["was"] is None else f"{row['was']} "
    value = "" if row["value"] is None else f" {row['value']}"
    return f"{row['setting']}: {was}{_SIGNS[row['done']]}{value}"
