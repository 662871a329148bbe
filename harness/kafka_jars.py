"""Apache Kafka's jars, fetched once from Maven Central into a cache folder.

The bench and the conformance suite run Kafka's broker and Kafka's own tools from these jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

_KAFKA_VERSION = "4.3.1"
_LOG4J_VERSION = "2.25.3"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headwater</groupId><artifactId>kafka-jars</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>{classifier}{exclusions}</dependency>"
)
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)

# Kafka's tools are chatty at INFO; what they print must be theirs alone.
_LOG4J = """\
<Configuration status="ERROR"><Appenders><Console name="stderr" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="stderr"/></Root></Loggers></Configuration>
"""


def cache_folder() -> Path:
    """The folder of downloads: $HEADWATER_CACHE or ~/.cache/headwater."""
    named = os.environ.get("HEADWATER_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headwater"


def kafka_version() -> str:
    """The release that Headwater is compared with; $KAFKA_VERSION names another one."""
    return os.environ.get("KAFKA_VERSION") or _KAFKA_VERSION


def jars(version: str) -> Path:
    """The folder with the jars of this version, fetched by maven when it is not there yet."""
    folder = cache_folder() / f"kafka-{version}"
    if (folder / "log4j2.xml").exists() and (folder / f"kafka-shell-{version}.jar").exists():
        return folder
    print(f"fetching Apache Kafka {version} from Maven Central into {folder}", flush=True)
    wanted = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.apache.kafka", "kafka-shell", version),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
        ("org.apache.logging.log4j", "log4j-core", _LOG4J_VERSION),
    ]
    fetch(wanted, folder, with_files={"log4j2.xml": _LOG4J})
    return folder


def file_connector(version: str) -> Path:
    """The folder with the connectors of files, which Kafka's jars have a worker for."""
    folder = cache_folder() / f"connect-file-{version}"
    if not folder.exists():
        fetch([("org.apache.kafka", "connect-file", version)], folder, transitive=False)
    return folder


def streams(version: str) -> Path:
    """The folder with Kafka Streams, its demos and its smoke test, and the demos of clients."""
    folder = cache_folder() / f"kafka-streams-{version}"
    if not folder.exists():
        print(f"fetching Kafka Streams {version} from Maven Central into {folder}", flush=True)
        wanted = [
            ("org.apache.kafka", "kafka-streams", version),
            ("org.apache.kafka", "kafka-streams:test", version),
            ("org.apache.kafka", "kafka-clients:test", version),
            ("org.apache.kafka", "kafka-streams-examples", version),
            ("org.apache.kafka", "kafka-examples", version),
        ]
        fetch(wanted, folder)
    return folder


def topology_driver(version: str) -> Path:
    """The folder with Kafka Streams and its TopologyTestDriver."""
    folder = cache_folder() / f"kafka-streams-test-{version}"
    if not folder.exists():
        print(f"fetching Kafka's TopologyTestDriver {version} into {folder}", flush=True)
        wanted = [
            ("org.apache.kafka", "kafka-streams", version),
            ("org.apache.kafka", "kafka-streams-test-utils", version),
            ("org.slf4j", "slf4j-nop", "1.7.36"),
        ]
        fetch(wanted, folder)
    return folder


def fetch(
    wanted: Iterable[tuple[str, str, str]],
    folder: Path,
    *,
    transitive: bool = True,
    with_files: dict[str, str] | None = None,
) -> None:
    """Fills a folder, all at once, with the jars of these (group, artifact, version), by maven. An
    artifact may have a classifier: `kafka-streams:test`."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    build = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache_folder()))
    try:
        (build / "pom.xml").write_text(
            _POM.format(
                dependencies="".join(
                    _DEPENDENCY.format(
                        group=group,
                        artifact=artifact.partition(":")[0],
                        classifier=_classifier(artifact),
                        version=version,
                        exclusions="" if transitive else _ALONE,
                    )
                    for group, artifact, version in wanted
                )
            )
        )
        command = ["mvn", "-q", "-B", "-f", str(build / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={build / 'jars'}"]
        subprocess.run(command, check=True)
        for name, text in (with_files or {}).items():
            (build / "jars" / name).write_text(text)
        shutil.rmtree(folder, ignore_errors=True)
        (build / "jars").rename(folder)
    finally:
        shutil.rmtree(build, ignore_errors=True)


def _classifier(artifact: str) -> str:
    name = artifact.partition(":")[2]
    return f"<classifier>{name}</classifier>" if name else ""


def java_command(
    folder: Path,
    main: str,
    *arguments: str,
    options: tuple[str, ...] = (),
    more: tuple[Path, ...] = (),
) -> list[str]:
    """The command line that runs a main class of these jars, with those of `more` folders."""
    return [
        "java",
        *options,
        f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
        "-cp",
        ":".join(f"{each}/*" for each in (folder, *more)),
        main,
        *arguments,
    ]
