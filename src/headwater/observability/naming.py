"""The same metrics under the names of another exporter.

A node's own names are those of jmx_exporter's examples, which Strimzi's dashboards use as well.
Confluent's rules keep the name of each JMX bean as it is, and write labels in lower case; its
dashboards need them. A scrape asks for them with `?names=confluent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from headwater.observability.registry import Labels

_SOCKETS = "kafka_server_socket_server_metrics"
_TOTAL = "_total"
# JMX beans whose names end in `PerSec`, by the start of their name.
_METERS = {
    "kafka_server_brokertopicmetrics": (
        "messagesin",
        "bytesin",
        "bytesout",
        "bytesrejected",
        "totalproducerequests",
        "totalfetchrequests",
        "failedproducerequests",
        "failedfetchrequests",
        "replicationbytesin",
        "replicationbytesout",
    ),
    "kafka_server_replicamanager": ("isrshrinks", "isrexpands", "failedisrupdates"),
    "kafka_server_fetchsessioncache": ("incrementalfetchsessionevictions",),
    "kafka_network_requestmetrics": ("requests", "errors"),
    "kafka_controller_controllerstats": ("uncleanleaderelections",),
}


class Naming(NamedTuple):
    """The names that differ, by our own, and the beginnings of others."""

    names: Mapping[str, str]
    prefixes: Mapping[str, str]

    def name(self, own: str) -> str:
        found = self.names.get(own)
        if found is not None:
            return found
        for prefix, other in self.prefixes.items():
            if own.startswith(prefix):
                return other + own.removeprefix(prefix)
        return own


def has_capitals(labels: Labels) -> bool:
    return any(not name.islower() for name in labels.values)


def lowered(labels: Labels) -> Labels:
    """Returns labels with their names in lower case."""
    return Labels(**{name.lower(): value for name, value in labels.values.items()})


CONFLUENT = "confluent"
NAMINGS: Mapping[str, Naming] = MappingProxyType(
    {
        CONFLUENT: Naming(
            {
                **{
                    f"{bean}_{name}{_TOTAL}": f"{bean}_{name}persec"
                    for bean, names in _METERS.items()
                    for name in names
                },
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (
                    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate"
                ),
            },
            {_SOCKETS: "kafka_server_socketservermetrics"},
        )
    }
)
