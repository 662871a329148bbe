"""`headwater user`: users with a password, which log in by SCRAM."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.arguments import from_one
from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import add_output_option, print_json, print_outcome, print_table
from headwater.cli.parser import add_actions

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.errors import ClientError

_EXAMPLES = """\
examples:
  headwater user add alice                                asks for the password
  headwater user add alice --password-file alice.secret
  vault read -field=password kafka/alice | headwater user add alice
  headwater user add alice --mechanism SCRAM-SHA-256      a second password, for older clients
  headwater user list
  headwater user delete alice --yes

The first users of a cluster whose listeners all want a login come from `headwater format
--add-scram`.
"""
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SECRET_BYTES_MAX = 64 * 1024


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("add", "add a user, or change the password of one", _define_add),
            ("list", "list the users and their mechanisms", _define_list),
            ("delete", "delete users, or only their credentials for one mechanism", _define_delete),
        ),
        examples=_EXAMPLES,
    )


def _define_add(action: ArgumentParser) -> None:
    action.add_argument("user", metavar="USER")
    action.add_argument(
        "--password-file",
        metavar="FILE",
        help="read the password from the first line of a file, - for standard input (default: ask "
        "for it on a terminal, else standard input)",
    )
    action.add_argument(
        "--mechanism",
        choices=_MECHANISMS,
        default="SCRAM-SHA-512",
        help="the mechanism by which the user logs in (default: SCRAM-SHA-512)",
    )
    action.add_argument(
        "--iterations",
        type=from_one,
        metavar="N",
        help="number of hash iterations, 4096 to 16384 (default: 4096)",
    )
    _finish(action)
    action.set_defaults(run=_add)


def _define_list(action: ArgumentParser) -> None:
    action.add_argument("users", nargs="*", metavar="USER", help="only these (default: all)")
    _finish(action)
    action.set_defaults(run=_list)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument("users", nargs="+", metavar="USER")
    action.add_argument(
        "--mechanism", choices=_MECHANISMS, help="only the credential of this mechanism"
    )
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


def _add(options: Namespace) -> int:
    prompt = f"password of {options.user}: "
    password = read_secret(options.password_file, prompt, what="password", is_new=True)
    with open_admin(options) as admin:
        iterations = {} if options.iterations is None else {"iterations": options.iterations}
        admin.set_scram(options.user, password, mechanism=options.mechanism, **iterations)
    if options.output == "json":
        print_json({"user": options.user, "mechanism": options.mechanism})
    else:
        print(f"user {options.user} can log in by {options.mechanism}")
    return 0


def read_secret(path: str | None, prompt: str, *, what: str, is_new: bool = False) -> str:
    """Returns a secret from a file, from a terminal (a new one twice), or from standard input. It
    is never an argument: other users of the machine see those."""
    if path is None and sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        secret = getpass(prompt)
        if is_new and getpass("the same again: ") != secret:
            raise CommandError(f"the {what}s differ", code=USAGE)
        where = f"the {what}"
    else:
        where = "standard input" if path in (None, "-") else str(path)
        secret = _first_line(path, where, what)
    if not secret:
        raise CommandError(f"{where} is empty: expected the {what}", code=USAGE)
    return secret


def _first_line(path: str | None, where: str, what: str) -> str:
    try:
        if path is None or path == "-":
            if sys.stdin is None:
                raise CommandError(f"standard input is closed: expected the {what}", code=USAGE)
            text = sys.stdin.readline(_SECRET_BYTES_MAX)
        else:
            with Path(path).open(encoding="utf-8") as file:
                text = file.readline(_SECRET_BYTES_MAX)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--{what}-file {path}: {reason}", code=USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"{where} is not text in UTF-8", code=USAGE) from None
    return text.rstrip("\r\n")


def _list(options: Namespace) -> int:
    with open_admin(options) as admin:
        found = admin.describe_scram(options.users or None)
    rows: list[tuple[object, ...]] = []
    missing = False
    for user, credentials in sorted(found.items()):
        if not isinstance(credentials, tuple):
            raise CommandError(str(credentials))
        if not credentials:
            missing = True
            print_outcome(f"user {user} has no SCRAM credential", is_done=False)
        rows += [(user, each.mechanism, each.iterations) for each in credentials]
    if not rows and options.output == "text":
        if not missing:
            print("no users")
    else:
        print_table(("user", "mechanism", "iterations"), rows, output=options.output)
    return FAILED if missing else 0


def _delete(options: Namespace) -> int:
    with open_admin(options) as admin:
        found = admin.describe_scram(options.users)
        outcomes: list[tuple[str, str, ClientError | str | None]] = []
        for user, credentials in found.items():
            if not isinstance(credentials, tuple):
                outcomes.append((user, options.mechanism or "", credentials))
                continue
            names = [each.mechanism for each in credentials]
            wanted = names if options.mechanism is None else [options.mechanism]
            if not set(wanted) & set(names):
                outcomes.append((user, options.mechanism or "SCRAM", "no such credential"))
                continue
            outcomes += [(user, name, _delete_one(admin, options, user, name)) for name in wanted]
    done = "deleted" if options.yes else "would be deleted"
    if options.output == "json":
        print_json(
            [
                {"user": user, "mechanism": mechanism, "error": error and str(error)}
                for user, mechanism, error in outcomes
            ]
        )
    else:
        for user, mechanism, error in outcomes:
            result = done if error is None else f"not deleted: {error}"
            print_outcome(f"{user} {mechanism}: {result}", is_done=error is None)
        if not options.yes and any(error is None for _, _, error in outcomes):
            print("nothing was deleted; --yes does it", file=sys.stderr)
    return FAILED if any(error is not None for _, _, error in outcomes) else 0


def _delete_one(admin: Admin, options: Namespace, user: str, mechanism: str) -> ClientError | None:
    # One request each: the controller takes a user only once in a request.
    return admin.delete_scram({user: mechanism})[user] if options.yes else None  # type: ignore[dict-item]  # a Literal
