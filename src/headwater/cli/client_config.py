"""A file with the settings of clients: how commands get into a cluster that asks who they are.

It is what Kafka's tools take as --command-config. Programs may share it, so what is there for
producers and consumers is left to them.
"""

from __future__ import annotations

from pathlib import Path

from headwater.cli.errors import USAGE, CommandError

VARIABLE = "HEADWATER_CLIENT_CONFIG"
_OURS = ("client.id", "bootstrap.servers")  # a command says these itself


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

    known = ClientConfig.names().difference(_OURS)
    return {name: value for name, value in settings.items() if name in known}
