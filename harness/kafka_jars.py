"""Apache Kafka's jars, fetched once from Maven Central into a cache folder.

The bench and the conformance suite run Kafka's broker and Kafka's own tools from these jars.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

_METADATA_URL = "https://repo1.maven.org/maven2/org/apache/kafka/kafka_2.13/maven-metadata.xml"
_LOG4J_VERSION = "2.25.3"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headwater</groupId><artifactId>kafka-jars</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version></dependency>"
)

# Kafka's tools are chatty at INFO; what they print must be theirs alone.
_LOG4J = """\
<Configuration status="ERROR"><Appenders><Console name="stderr" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="stderr"/></Root></Loggers></Configuration>
"""


def cache_folder() -> Path:
    """Where things fetched from elsewhere are kept: $HEADWATER_CACHE or ~/.cache/headwater."""
    named = os.environ.get("HEADWATER_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headwater"


def newest_version() -> str:
    """The newest release on Maven Central; without a network, the newest one in the cache."""
    asked = os.environ.get("KAFKA_VERSION")
    if asked:
        return asked
    try:
        with urllib.request.urlopen(_METADATA_URL, timeout=20) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, TimeoutError) as problem:
        found = [folder.name.removeprefix("kafka-") for folder in cache_folder().glob("kafka-*")]
        if not found:
            raise SystemExit(f"Maven Central cannot be reached: {problem}") from problem
        return max(found, key=_version_key)
    # Not the <release> field: it names what came last, which may be a fix of an older line.
    released: list[str] = re.findall(r"<version>([0-9.]+)</version>", text)
    return max(released, key=_version_key)


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
    cache_folder().mkdir(parents=True, exist_ok=True)
    build = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache_folder()))
    try:
        (build / "pom.xml").write_text(
            _POM.format(
                dependencies="".join(
                    _DEPENDENCY.format(group=group, artifact=artifact, version=version)
                    for group, artifact, version in wanted
                )
            )
        )
        command = ["mvn", "-q", "-B", "-f", str(build / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={build / 'jars'}"]
        subprocess.run(command, check=True)
        (build / "jars" / "log4j2.xml").write_text(_LOG4J)
        shutil.rmtree(folder, ignore_errors=True)
        (build / "jars").rename(folder)
    finally:
        shutil.rmtree(build, ignore_errors=True)
    return folder


def java_command(
    folder: Path, main: str, *arguments: str, options: tuple[str, ...] = ()
) -> list[str]:
    """The command line that runs a main class of these jars."""
    return [
        "java",
        *options,
        f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
        "-cp",
        f"{folder}/*",
        main,
        *arguments,
    ]


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
