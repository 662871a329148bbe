"""`headwater quota`: how much users, client ids and addresses may take of a cluster."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import read_pairs
from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import add_output_option, print_json, print_outcome, print_table
from headwater.cli.parser import add_actions, meant, one_of

if TYPE_CHECKING:
    from headwater.client.admin import QuotaEntity

_EXAMPLES = """\
examples:
  headwater quota set --user alice producer_byte_rate=10MB consumer_byte_rate=20MB
  headwater quota set --default-user request_percentage=25         each user without a quota
  headwater quota set --user alice --client-id etl producer_byte_rate=1MB
  headwater quota set --user alice --default-client-id producer_byte_rate=100kB
  headwater quota set --client-id tests controller_mutation_rate=5
  headwater quota set --default-ip connection_creation_rate=20
  headwater quota list
  headwater quota list --user alice
  headwater quota delete --user alice consumer_byte_rate --yes
  headwater quota delete --default-ip --yes
"""

# The quotas, with what they count.
_KEYS = {
    "producer_byte_rate": "bytes produced each second, on each broker",
    "consumer_byte_rate": "bytes fetched each second, on each broker",
    "request_percentage": "share of each broker's time, where 100 is all of it",
    "controller_mutation_rate": "partitions created and deleted each second",
    "connection_creation_rate": "new connections of an address each second, on each broker",
}
_IN_BYTES = ("producer_byte_rate", "consumer_byte_rate")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*([kMGT]?)(i?)B?)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_KINDS = ("user", "client_id", "ip")

_WHAT = "\n".join(f"  {key:<26}{text}" for key, text in _KEYS.items())
_HELP = f"{_EXAMPLES}\nquotas:\n{_WHAT}\n"


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("set", "set quotas of a user, a client id, both, or an address", _define_set),
            ("list", "list the quotas", _define_list),
            ("delete", "delete quotas", _define_delete),
        ),
        examples=_HELP,
    )


def _add_entity(action: ArgumentParser) -> None:
    for kind, metavar, what in (
        ("user", "USER", "user"),
        ("client-id", "ID", "client id"),
        ("ip", "ADDRESS", "IP address"),
    ):
        either = action.add_mutually_exclusive_group()
        either.add_argument(f"--{kind}", metavar=metavar, help=f"the {what}")
        either.add_argument(
            f"--default-{kind}",
            action="store_true",
            help=f"each {what} without a quota of its own",
        )


def _define_set(action: ArgumentParser) -> None:
    action.add_argument(
        "quotas", metavar="KEY=VALUE", nargs="+", help="such as producer_byte_rate=10MB"
    )
    _add_entity(action)
    action.add_argument(
        "--dry-run", action="store_true", help="validate the request without changing anything"
    )
    _finish(action)
    action.set_defaults(run=_set)


def _define_list(action: ArgumentParser) -> None:
    _add_entity(action)
    _finish(action)
    action.set_defaults(run=_list)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument(
        "keys", metavar="QUOTA", nargs="*", help="only these quotas (default: all of the entity)"
    )
    _add_entity(action)
    action.add_argument(
        "--yes",
        "--execute",
        action="store_true",
        help="do it; without this only what would be deleted is shown",
    )
    _finish(action)
    action.set_defaults(run=_delete)


def _finish(action: ArgumentParser) -> None:
    add_cluster_options(action)
    add_output_option(action)


def _names(options: Namespace) -> dict[str, Any]:
    """Returns the entity of the options, without what was not given."""
    from headwater.client.admin import QUOTA_DEFAULT

    names: dict[str, Any] = {}
    for kind in _KINDS:
        if getattr(options, f"default_{kind}"):
            names[kind] = QUOTA_DEFAULT
        elif (name := getattr(options, kind)) is not None:
            if not name:
                option = kind.replace("_", "-")
                raise CommandError(
                    f"--{option}: expected a name, or --default-{option}", code=USAGE
                )
            names[kind] = name
    return names


def _entity(options: Namespace) -> QuotaEntity:
    from headwater.client.admin import QuotaEntity

    names = _names(options)
    if not names:
        raise CommandError(
            "expected --user, --client-id, both, or --ip, or --default-user and so on", code=USAGE
        )
    if "ip" in names and len(names) > 1:
        raise CommandError("--ip cannot be combined with a user or a client id", code=USAGE)
    return QuotaEntity(**names)


def _set(options: Namespace) -> int:
    entity = _entity(options)
    values = {key: _value(key, text) for key, text in read_pairs(options.quotas, "").items()}
    with open_admin(options) as admin:
        error = admin.alter_quotas({entity: dict(values)}, validate_only=options.dry_run)[entity]
    if error is not None:
        raise CommandError(str(error))
    if options.output == "json":
        print_json(_row(entity) | values)
        return 0
    done = "could be set to" if options.dry_run else "is"
    for key, value in values.items():
        print(f"{entity}: {key} {done} {_shown(key, value)}")
    return 0


def _value(key: str, text: str) -> float:
    _check(key)
    found = _SIZE.fullmatch(text) if key in _IN_BYTES else None
    try:
        if found is None:
            return float(text)
    except ValueError:
        expected = "bytes, such as 1000000, 1MB or 1MiB" if key in _IN_BYTES else "a number"
        raise CommandError(f"{key}={text}: expected {expected}", code=USAGE) from None
    number, unit, is_binary = found.groups()
    value = float(number) * (1024 if is_binary else 1000) ** _POWERS[(unit or "").lower()]
    return float(round(value))


def _check(key: str) -> None:
    if key not in _KEYS:
        near = meant(key, _KEYS) or f"; expected {one_of(list(_KEYS))}"
        raise CommandError(f"unknown quota {key}{near}", code=USAGE)


def _shown(key: str, value: float) -> str:
    text = f"{value:.15g}"
    if key == "request_percentage":
        return f"{text}%"
    return f"{text} B/s" if key in _IN_BYTES else f"{text}/s"


def _row(entity: QuotaEntity) -> dict[str, Any]:
    """Returns the names of an entity for JSON: null where a type is not named, and a word for the
    default, which no name can be."""
    return {kind: _text(getattr(entity, kind)) for kind in _KINDS}


def _text(name: object) -> str | None:
    return None if name is None else name if isinstance(name, str) else "<default>"


def _list(options: Namespace) -> int:
    from headwater.client.admin import QuotaFilter

    with open_admin(options) as admin:
        found = admin.describe_quotas(QuotaFilter(**_names(options)))
    rows = [
        (*_row(entity).values(), key, value)
        for entity, values in found.items()
        for key, value in sorted(values.items())
    ]
    rows.sort(key=lambda row: tuple(str(cell or "") for cell in row[:4]))
    columns = ("user", "client id", "ip", "quota", "value")
    if options.output == "json":
        print_json([dict(zip((*_KINDS, "quota", "value"), row, strict=True)) for row in rows])
    elif not rows:
        print("no quotas")
    else:
        print_table(columns, [(*row[:4], _shown(row[3], row[4])) for row in rows], output="text")
    return 0


def _delete(options: Namespace) -> int:
    from headwater.client.admin import QuotaFilter

    entity = _entity(options)
    for key in options.keys:
        _check(key)
    with open_admin(options) as admin:
        wanted = QuotaFilter(**_names(options), strict=True)
        known = admin.describe_quotas(wanted).get(entity, {})
        keys = list(dict.fromkeys(options.keys)) or sorted(known)
        doomed = [key for key in keys if key in known]
        missing = [key for key in keys if key not in known]
        if options.yes and doomed:
            error = admin.alter_quotas({entity: dict.fromkeys(doomed)})[entity]
            if error is not None:
                raise CommandError(str(error))
    if options.output == "json":
        print_json(
            [
                _row(entity) | {"quota": key, "error": None if key in known else "not set"}
                for key in keys
            ]
        )
    else:
        done = "deleted" if options.yes else "would be deleted"
        for key in doomed:
            print(f"{entity}: {key} {done}")
        for key in missing:
            print_outcome(f"{entity}: {key} is not set", is_done=False)
        if not keys:
            print_outcome(f"{entity} has no quota", is_done=False)
        elif doomed and not options.yes:
            print("nothing was deleted; --yes does it", file=sys.stderr)
    return FAILED if missing or not keys else 0
