"""`headwater profile`: gives clusters names, so that commands need no address.

Profiles are kept in one small file, `headwater/profiles.json` in the user's configuration folder
($XDG_CONFIG_HOME, else ~/.config), or where $HEADWATER_PROFILES points.
"""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from pathlib import Path

from headwater.cli.connection import read_client_config
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, print_json, print_table
from headwater.cli.parser import add_actions

PROFILES_VARIABLE = "HEADWATER_PROFILES"
PROFILE_VARIABLE = "HEADWATER_PROFILE"

_NAME = re.compile(r"\w[\w.-]*")

_EXAMPLES = """\
examples:
  headwater profile add staging kafka-1.example:9092,kafka-2.example:9092
  headwater profile add production kafka.example:9093 --client-config production.properties
  headwater profile use staging                 the default from now on
  headwater profile list
  headwater topic list --profile production     for one command
  headwater profile remove staging
"""

_ORDER = """
Which cluster a command asks: --bootstrap, else --profile, else $HEADWATER_BOOTSTRAP, else the
profile that $HEADWATER_PROFILE names, else the one in use, else 127.0.0.1:9092.
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster: its address, and a file of settings for its clients."""

    bootstrap: str
    client_config: str | None = None

    @classmethod
    def read(cls, given: object) -> Profile:
        """Reads an address, or an object with more. Raises TypeError if it is neither."""
        if isinstance(given, dict):
            path = given.get("client_config")
            return cls(_text(given["bootstrap"]), None if path is None else _text(path))
        return cls(_text(given))

    def written(self) -> object:
        if self.client_config is None:
            return self.bootstrap
        return {"bootstrap": self.bootstrap, "client_config": self.client_config}


@dataclass(slots=True)
class Profiles:
    """All profiles, and the one in use."""

    known: dict[str, Profile] = field(default_factory=dict)
    used: str | None = None

    @classmethod
    def read(cls) -> Profiles:
        path = _path()
        try:
            text = path.read_text()
        except FileNotFoundError:
            return cls()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CommandError(f"{path} cannot be read: {reason}") from None
        except UnicodeDecodeError:
            text = ""
        try:
            given = json.loads(text)
            known = {str(name): Profile.read(each) for name, each in given["profiles"].items()}
            used = given.get("used")
            return cls(known, None if used is None else _text(used))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CommandError(
                f"{path} is not a valid profiles file",
                then="fix it, or delete it and add profiles again",
            ) from None

    def write(self) -> None:
        path = _path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Replaced in one step: a command that is interrupted leaves the old file.
            new = path.with_suffix(f".{os.getpid()}")
            known = {name: each.written() for name, each in self.known.items()}
            new.write_text(json.dumps({"profiles": known, "used": self.used}, indent=2))
            new.replace(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CommandError(f"{path} cannot be written: {reason}") from None

    def get(self, name: str) -> Profile:
        try:
            return self.known[name]
        except KeyError:
            known = ", ".join(sorted(self.known)) or "none"
            raise CommandError(
                f"there is no profile {name}; profiles: {known}",
                then="`headwater profile add NAME HOST:PORT` adds one",
                code=USAGE,
            ) from None


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError
    return given


def _path() -> Path:
    given = os.environ.get(PROFILES_VARIABLE)
    if given:
        return Path(given)
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "headwater" / "profiles.json"


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("list", "list the profiles", _define_list),
            ("add", "name a cluster, or change its address", _define_add),
            ("use", "use a cluster for commands without --bootstrap", _define_use),
            ("remove", "remove a profile", _define_remove),
        ),
        examples=_EXAMPLES,
    )
    parser.epilog = _EXAMPLES + _ORDER


def _define_list(action: ArgumentParser) -> None:
    add_output_option(action)
    action.set_defaults(run=_list)


def _define_add(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME")
    action.add_argument(
        "bootstrap", metavar="HOST:PORT", help="a node, or several separated by commas"
    )
    action.add_argument(
        "--client-config",
        metavar="FILE",
        help="client settings such as security.protocol; the file is read by each command",
    )
    add_output_option(action)
    action.set_defaults(run=_add)


def _define_use(action: ArgumentParser) -> None:
    action.epilog = f"{action.epilog}{_ORDER}"
    action.add_argument(
        "name", metavar="PROFILE", nargs="?", help="without it: back to the default address"
    )
    add_output_option(action)
    action.set_defaults(run=_use)


def _define_remove(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="PROFILE")
    add_output_option(action)
    action.set_defaults(run=_remove)


def _list(options: Namespace) -> int:
    profiles = Profiles.read()
    columns = ("name", "bootstrap", "used", "client_config")
    is_text = options.output == "text"
    used = ("", "yes") if is_text else (False, True)
    none = "" if is_text else None
    rows = [
        (name, each.bootstrap, used[name == profiles.used], each.client_config or none)
        for name, each in sorted(profiles.known.items())
    ]
    if not rows and options.output == "text":
        print("no profiles; `headwater profile add NAME HOST:PORT` adds one")
        return 0
    print_table(columns, rows, output=options.output)
    return 0


def _add(options: Namespace) -> int:
    from headwater.client.config_values import bootstrap
    from headwater.client.errors import ConfigError

    if not _NAME.fullmatch(options.name):
        raise CommandError(
            f"{options.name!r} is not a valid name: expected letters, digits, '.', '_', '-'",
            code=USAGE,
        )
    try:
        bootstrap("HOST:PORT", options.bootstrap)
    except ConfigError as error:
        raise CommandError(str(error), code=USAGE) from None
    path = None
    if options.client_config is not None:
        path = os.path.abspath(options.client_config)
        read_client_config(path)
    profiles = Profiles.read()
    profiles.known[options.name] = Profile(options.bootstrap, path)
    profiles.write()
    done = {"name": options.name, "bootstrap": options.bootstrap, "client_config": path}
    with_it = "" if path is None else f", with {path}"
    _say(f"{options.name} is {options.bootstrap}{with_it}", done, output=options.output)
    return 0


def _use(options: Namespace) -> int:
    profiles = Profiles.read()
    if options.name is not None:
        profiles.get(options.name)
    profiles.used = options.name
    profiles.write()
    said = f"commands now use {options.name or 'the default address'}"
    _say(said, {"used": options.name}, output=options.output)
    return 0


def _remove(options: Namespace) -> int:
    profiles = Profiles.read()
    if options.name not in profiles.known:
        raise CommandError(
            f"there is no profile {options.name}", then="`headwater profile list` shows them"
        )
    del profiles.known[options.name]
    if profiles.used == options.name:
        profiles.used = None
    profiles.write()
    _say(f"{options.name} removed", {"removed": options.name}, output=options.output)
    return 0


def _say(text: str, fields: dict[str, object], *, output: str) -> None:
    if output == "json":
        print_json(fields)
    else:
        print(text)
