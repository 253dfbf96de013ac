"""Write `docs/passes.md` from the declarations of the passes: `python docs/generate.py`; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from sparseditto.compiler.cli.passes import declaration, docstring
from sparseditto.passes.base import Kind
from sparseditto.passes.registry import registry

PAGE = Path(__file__).with_name("passes.md")


def page() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Passes",
        "",
        "Made from the declarations by `python docs/generate.py`; `sparseditto passes NAME` prints the same.",
        "",
    ]
    for kind in Kind:
        lines += [f"## {kind.value.capitalize()} passes", ""]
        for cls in sorted((c for c in registry().values() if c.kind is kind), key=lambda c: c.name):
            lines += section(declaration(cls), docstring(cls))
    return "\n".join(lines).rstrip() + "\n"


def section(d: dict[str, object], text: str) -> list[str]:
    lines = [f"### `{d['name']}`", "", *markdown(text), ""]
    options = d["options"]
    assert isinstance(options, list)
    if options:
        lines += ["| option | default | domain | meaning |", "| --- | --- | --- | --- |"]
        for o in options:
            domain = ", ".join(map(str, o["choices"])) if o["choices"] else o["type"]
            lines.append(f"| `{o['name']}` | {o['default']} | {domain} | {o['help']} |")
        lines.append("")
    for key in ("requires", "provides", "removes", "excludes", "relieves", "consumes"):
        if d[key]:
            words = d[key]
            assert isinstance(words, list)
            lines.append(f"- {key}: {', '.join(words)}")
    return [*lines, ""]


def markdown(text: str) -> list[str]:
    """A docstring with its `::` blocks fenced."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if fenced and line and not line.startswith(" "):
            while lines and not lines[-1]:
                lines.pop()
            lines += ["```", ""]
            fenced = False
        if line.endswith("::"):
            lines += [line[:-1].replace("``", "`"), "", "```mlir"]
            fenced = True
        elif not (fenced and not line and lines[-1] == "```mlir"):
            lines.append(line[4:] if fenced else line.replace("``", "`"))
    return [*lines, "```"] if fenced else lines


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != page():
            print(f"{PAGE.name} is not what the passes declare; run python docs/generate.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
