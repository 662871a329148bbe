"""`headwater format`: formats the directories of a node for a cluster.

A node by itself is formatted on its first start. This command is for choosing the cluster id, and
for nodes whose settings name a quorum.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, print_fields
from headwater.cli.settings import add_settings_options, check_settings, read_settings

_EXAMPLES = """\
examples:
  headwater format --data /srv/headwater
  headwater format --data /srv/headwater --cluster-id 3Db5QLSqSZieL3rJBUUegA
  headwater format --config server.properties --set node.id=2

A cluster id has 22 characters, as printed by kafka-storage random-uuid. A node whose settings
name a quorum (controller.quorum.voters, controller.quorum.bootstrap.servers) must be formatted
before its first start; any other node is formatted automatically.
"""


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_settings_options(parser)
    parser.add_argument("--cluster-id", metavar="ID", help="id of the cluster (default: a new one)")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    config = check_settings(read_settings(options))
    from headwater.broker.formatting import (
        FormatRefused,
        check_cluster_id,
        directories_of,
        format_directories,
    )
    from headwater.config import ConfigError
    from headwater.config.support import check_bootstraps_itself, check_supported
    from headwater.io import Host
    from headwater.storage.log_dirs import DirectoryRefused, lock_directories

    try:
        check_supported(config)
        check_bootstraps_itself(config)
    except ConfigError as error:
        raise CommandError(str(error), code=USAGE) from None
    if options.cluster_id is not None:
        try:
            check_cluster_id(options.cluster_id)
        except FormatRefused as error:
            raise CommandError(str(error), code=USAGE) from None
    host = Host.system()
    try:
        taken = lock_directories(host.disk, directories_of(config), "headwater format")
    except DirectoryRefused as error:
        raise CommandError(str(error)) from None
    try:
        for directory in taken:
            if not directory.health.is_online:
                raise CommandError(f"{directory.path} cannot be used: {directory.health.failure}")
        formatted = format_directories(
            host, config, cluster_id=options.cluster_id, ignore_formatted=False
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
        else ", ".join(formatted.directories),
    }
    print_fields(fields, output=options.output)
    return 0
