"""`headwater format`: formats the directories of a node for a cluster.

A node by itself is formatted on its first start. This command is for choosing the cluster id and
the feature levels, and for nodes whose settings name a quorum. Options and rules are those of
`kafka-storage format`.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, print_fields
from headwater.cli.settings import add_settings_options, check_settings, read_settings

if TYPE_CHECKING:
    from headwater.broker.formatting import InitialQuorum
    from headwater.config import NodeConfig

_EXAMPLES = """\
examples:
  headwater format --random-uuid                  print an id for a cluster or a directory
  headwater format --data /srv/headwater --cluster-id 3Db5QLSqSZieL3rJBUUegA
  headwater format --config server.properties --cluster-id 3Db5QLSqSZieL3rJBUUegA --standalone
  headwater format --config server.properties --add-scram @users.txt     with the first users

Only a node whose settings name a quorum (controller.quorum.voters or
controller.quorum.bootstrap.servers) has to be formatted before its first start. All nodes of a
cluster have the same --cluster-id. Which option says who votes depends on the node:

  controller.quorum.voters is set          none of them: the settings name the voters
  the first controller                     --standalone
  a controller that is added later         --no-initial-controllers; it follows the quorum until
                                           headwater cluster quorum add makes it a voter
  several controllers at once              --initial-controllers 1@host1:9093:ID,2@host2:9093:ID,...
                                           the same list on each, with a new id for each directory
  a node that is only a broker             none of them

Users that log in with SCRAM are added with `headwater user`; the first ones, where every listener
wants a login, here and on every controller, as kafka-storage takes them:

  --add-scram 'SCRAM-SHA-512=[name=admin,password=...]'
  --add-scram 'SCRAM-SHA-512=[name=admin,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
"""


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_settings_options(parser)
    parser.add_argument("-c", dest="config", action="append", metavar="FILE", help=SUPPRESS)
    parser.add_argument(
        "--cluster-id", "-t", metavar="ID", help="id of the cluster (default: a new one)"
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument(
        "--standalone",
        "-s",
        action="store_true",
        help="the first controller: it votes alone until others are added",
    )
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        metavar="VOTERS",
        help="the first voters, as id@host:port:directory-id,...; the same on each node",
    )
    quorum.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="a controller that is added to the voters later",
    )
    parser.add_argument(
        "--release-version",
        "-r",
        metavar="VERSION",
        help="release of Kafka whose feature levels a new cluster starts with (default: 4.3-IV0)",
    )
    parser.add_argument(
        "--feature",
        "-f",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        help="first level of one feature; may be repeated",
    )
    parser.add_argument(
        "--add-scram",
        "-S",
        metavar="CREDENTIAL",
        action="append",
        default=[],
        help="a user of a new cluster; @FILE reads one a line from a file, which keeps passwords "
        "out of the process list; may be repeated",
    )
    parser.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="skip directories that are already formatted",
    )
    parser.add_argument(
        "--random-uuid", action="store_true", help="print a new id and format nothing"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    from headwater.io import Host

    host = Host.system()
    if options.random_uuid:
        from headwater.model import id_text

        print(id_text(host.random_id()))
        return 0
    config = check_settings(read_settings(options))
    from headwater.broker.first_users import scram_records
    from headwater.broker.formatting import (
        FormatRefused,
        check_cluster_id,
        check_directories,
        directories_of,
        format_directories,
        initial_levels,
    )
    from headwater.config import ConfigError
    from headwater.config.support import check_supported
    from headwater.metadata.features import KRAFT_VERSION
    from headwater.storage.log_dirs import DirectoryRefused, lock_directories

    try:
        check_supported(config)
        if options.cluster_id is not None:
            check_cluster_id(options.cluster_id)
        quorum = _initial_quorum(options, config)
        levels = initial_levels(options.release_version, options.feature)
        _check_kraft_version(levels.pop(KRAFT_VERSION, None), quorum)
        users = scram_records(_credentials(options.add_scram), levels, host.random.randbytes)
    except (ConfigError, FormatRefused) as error:
        raise CommandError(str(error), code=USAGE) from None
    try:
        # Before the locks, which are files in the directories.
        check_directories(host.disk, directories_of(config))
        taken = lock_directories(host.disk, directories_of(config), "headwater format")
    except (FormatRefused, DirectoryRefused) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    try:
        for directory in taken:
            if not directory.health.is_online:
                raise CommandError(f"{directory.path} cannot be used: {directory.health.failure}")
        formatted = format_directories(
            host,
            config,
            cluster_id=options.cluster_id,
            levels=levels,
            quorum=quorum,
            users=users,
            ignore_formatted=options.ignore_formatted,
        )
    except (FormatRefused, DirectoryRefused) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"{error.filename}: {reason}") from None
    finally:
        for directory in taken:
            directory.release()
    fields = {
        "cluster": formatted.cluster_id,
        "node": config.node_id,
        "directories": list(formatted.directories)
        if options.output == "json"
        else ", ".join(formatted.directories) or "all were formatted before",
    }
    print_fields(fields, output=options.output)
    return 0


def _credentials(given: list[str]) -> list[str]:
    """Returns the credentials of `--add-scram`, with those in files."""
    credentials: list[str] = []
    for text in given:
        if not text.startswith("@"):
            credentials.append(text)
            continue
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise CommandError(f"--add-scram {text}: not text in UTF-8", code=USAGE) from None
        credentials += [line for line in map(str.strip, lines) if line and line[0] != "#"]
    return credentials


def _initial_quorum(options: Namespace, config: NodeConfig) -> InitialQuorum | None:
    """Returns the voters to write down, or None for voters from the settings."""
    from headwater.broker.formatting import FormatRefused, InitialQuorum, parse_voters

    given = "--standalone" if options.standalone else None
    if options.initial_controllers is not None:
        given = "--initial-controllers"
    if config.controller_quorum_voters:
        if given is not None:
            raise FormatRefused(
                f"{given}: expected controller.quorum.voters not to be set; for voters that can "
                "change, set controller.quorum.bootstrap.servers instead"
            )
        _require_cluster_id(options)
        return None
    if options.standalone and not config.is_controller:
        raise FormatRefused("--standalone: expected process.roles to have controller")
    if options.standalone or config.alone:
        if options.no_initial_controllers or options.initial_controllers is not None:
            raise FormatRefused(
                "expected controller.quorum.bootstrap.servers to say where the controllers are"
            )
        return InitialQuorum(standalone=True)
    _require_cluster_id(options)
    if options.initial_controllers is not None:
        listener = config.controller_listener_names[0]
        return InitialQuorum(listed=parse_voters(options.initial_controllers, listener))
    if config.is_controller and not options.no_initial_controllers:
        raise FormatRefused(
            "expected --standalone for the first controller, --no-initial-controllers for one that "
            "is added later, or --initial-controllers for several, as controller.quorum.voters is "
            "not set"
        )
    return InitialQuorum()


def _require_cluster_id(options: Namespace) -> None:
    from headwater.broker.formatting import FormatRefused

    if options.cluster_id is None:
        raise FormatRefused(
            "expected --cluster-id, the same for all nodes of the cluster; "
            "`headwater format --random-uuid` prints a new one"
        )


def _check_kraft_version(asked: int | None, quorum: InitialQuorum | None) -> None:
    from headwater.broker.formatting import FormatRefused

    level = 0 if quorum is None else 1
    if asked is not None and asked != level:
        why = "static voters need" if quorum is None else "voters that can change need"
        raise FormatRefused(
            f"--feature kraft.version={asked}: {why} level {level}; leave it out, it follows from "
            "the settings"
        )
