"""Hooks that add to the documentation site while it is built.

Pages that live elsewhere (ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md) are taken in, and links
to files of the repository that are not part of the site become the names of those files.

`python tools/docs_hooks.py settings` prints the reference of settings, made from the tables that a
node reads; `python tools/docs_hooks.py links build/site` checks the links of the site.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headwater.config import (
    ConfigDef,
    broker_definitions,
    group_definitions,
    render,
    topic_definitions,
)
from headwater.config.support import GUARDS

ROOT = Path(__file__).resolve().parent.parent
TAKEN_IN = {
    "internals/architecture.md": "ARCHITECTURE.md",
    "internals/contributing.md": "CONTRIBUTING.md",
    "internals/changes.md": "CHANGELOG.md",
}
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


_SETTINGS_INTRODUCTION = """
Every key is Kafka's, with Kafka's default; those that begin with `headwater.` are our own. A node
takes them from `--config server.properties` and `--set key=value`; those that can be changed while
it runs, by `headwater config set` and any Kafka tool. Keys that Kafka has and Headwater does not
act on yet are accepted with one warning line and marked *no effect* here. A node refuses to start
with values other than the default for keys marked *refused*: they ask for a protection that does
not exist yet.
"""


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for target, source in TAKEN_IN.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    source = page.file.src_uri
    at_root = source in TAKEN_IN
    folder = ROOT if at_root else (ROOT / "docs" / source).parent

    def lead(match: re.Match[str]) -> str:
        text, path, anchor = match.group(1), match.group(2), match.group(3) or ""
        found = (folder / path).resolve()
        if not found.is_relative_to(ROOT) or not found.exists():
            return match.group(0)  # mkdocs says what is wrong with it
        inside = found.relative_to(ROOT).as_posix()
        for target, taken in TAKEN_IN.items():
            if inside == taken:
                return f"[{text}]({_relative(target, source)}{anchor})"
        if inside.startswith("docs/"):
            return f"[{text}]({_relative(inside.removeprefix('docs/'), source)}{anchor})"
        return f"`{inside}`" if text.strip("`/") in inside else f"{text} (`{inside}`)"

    return _LINK.sub(lead, markdown)


def _relative(target: str, source: str) -> str:
    return "../" * source.count("/") + target


def settings_page() -> str:
    parts = ["# Settings", "", _SETTINGS_INTRODUCTION.strip()]
    for title, definitions in (
        ("Nodes", broker_definitions()),
        ("Topics", topic_definitions()),
        ("Groups", group_definitions()),
    ):
        parts += [
            "",
            f"## {title}",
            "",
            "| key | type | default | changed | |",
            "| --- | --- | --- | --- | --- |",
        ]
        shown = [each for each in definitions.values() if not each.internal]
        parts += [_row(each) for each in sorted(shown, key=lambda each: each.name)]
    return "\n".join(parts) + "\n"


def _row(setting: ConfigDef) -> str:
    default = "required" if setting.required else render(setting, setting.default)
    shown = "" if default in (None, "") else f"`{default}`"
    effect = "" if setting.supported else "*no effect.* "
    if setting.name in GUARDS:
        effect = "*refused.* "
    kind = setting.type.name.lower()
    text = f"{effect}{setting.doc}".replace("|", "\\|").replace("<", "&lt;")
    return f"| `{setting.name}` | {kind} | {shown} | {setting.update_mode.value} | {text} |"


class _Anchors(HTMLParser):
    """The ids and the links of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name == "href" and tag == "a" and value:
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Every link inside the built site leads to a page, and its anchor to a place on it."""
    pages = {path: _Anchors(path.read_text()) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not target.exists() or (
                anchor and target in pages and anchor not in pages[target].ids | {"__top"}
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


def main(task: str, *arguments: str) -> int:
    if task == "settings":
        print(settings_page(), end="")
        return 0
    found = broken_links(Path(*arguments).resolve())
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
