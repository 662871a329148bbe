"""`python -m conformance`: runs the claims, prints a table of them, writes it into the docs."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import pytest

from harness.kafka_jars import kafka_version
from harness.nodes import ROOT, end_nodes_when_terminated

_DOCUMENT = ROOT / "docs" / "conformance.md"
_BEGIN, _END = "<!-- table begins -->", "<!-- table ends -->"


class Results:
    """Collects how each claim went, over its parameters."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        path, _, name = report.nodeid.partition("::")
        key = (Path(path).stem.removeprefix("test_"), name.partition("[")[0])
        self.claims.setdefault(key, Counter())[report.outcome] += 1


def main() -> int:
    options = _options()
    end_nodes_when_terminated()
    arguments = [str(ROOT / "conformance"), "--timeout", "300", "-p", "no:cacheprovider"]
    arguments += ["--subject", options.subject, "-o", "addopts=", "-v", "--tb=short"]
    if options.bootstrap:
        arguments += ["--bootstrap", options.bootstrap]
    if options.only:
        arguments += ["-k", options.only]
    results = Results()
    code = int(pytest.main(arguments, plugins=[results]))
    print()
    for (family, claim), outcomes in results.claims.items():
        print(f"{_mark(outcomes)} {family.replace('_', ' '):<12} {_words(claim)}{_times(outcomes)}")
    whole_run = not options.only and not options.bootstrap
    if options.write and whole_run and options.subject == "headwater":
        _write(results)
    return code


def _write(results: Results) -> None:
    lines = [f"Judged with the tools of Apache Kafka {kafka_version()}.", ""]
    lines += ["| | claim | with |", "| --- | --- | --- |"]
    for (family, claim), outcomes in results.claims.items():
        words = f"{_words(claim)}{_times(outcomes)}"
        lines.append(f"| {_mark(outcomes)} | {words} | {family.replace('_', ' ')} |")
    text = _DOCUMENT.read_text()
    table = f"{_BEGIN}\n" + "\n".join(lines) + f"\n{_END}"
    _DOCUMENT.write_text(re.sub(f"{_BEGIN}.*{_END}", lambda _: table, text, flags=re.DOTALL))
    print(f"\nwritten: {_DOCUMENT.relative_to(ROOT)}")


def _mark(outcomes: Counter[str]) -> str:
    if outcomes["failed"]:
        return "✗"
    return "✓" if outcomes["passed"] else "-"


def _words(claim: str) -> str:
    return claim.removeprefix("test_").replace("_", " ")


def _times(outcomes: Counter[str]) -> str:
    total = outcomes.total()
    if total == 1:
        return ""
    return f" ({outcomes['passed']} of {total})" if outcomes["failed"] else f" ({total} ways)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="claims with this in their name")
    parser.add_argument(
        "--subject",
        choices=("headwater", "kafka"),
        default="headwater",
        help="kafka proves the claims themselves: Apache Kafka must meet them all",
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that is already up")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/conformance.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
