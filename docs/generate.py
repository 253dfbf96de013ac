"""Write `docs/passes.md` and `docs/features.md` from what is declared: `python docs/generate.py`; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from sparseditto.agent.features import Definition, definitions
from sparseditto.agent.features import Kind as FeatureKind
from sparseditto.compiler.cli.passes import declaration, docstring
from sparseditto.passes.base import Kind
from sparseditto.passes.registry import registry

FOLDER = Path(__file__).parent
FOLLOWS = {
    FeatureKind.PATTERN: "from the matrix alone: `Features`",
    FeatureKind.REPRESENTATION: "from how the matrix may be stored: `Features`, `Storage`",
    FeatureKind.OPERATOR: "from what is computed with it: `Operation`, and `Product` for SpGEMM",
    FeatureKind.HARDWARE: "from the GPU that this runs on: `Fit`",
}


def features_page() -> str:
    """`features.md`: the table of features, by kind."""
    lines = [
        "# Features",
        "",
        "Made from the declarations by `python docs/generate.py`; `sparseditto features` prints the same, and `sparseditto",
        "features MATRIX` the values for a matrix.  Those marked ~ are estimates where `sampled` is below 1, which is from",
        "half a million entries on; how they are made, and what their errors are, stands in `agent/features/samples.py`.",
        "",
    ]
    for kind in FeatureKind:
        lines += [f"## {kind.value.capitalize()}", "", f"What follows {FOLLOWS[kind]}.", ""]
        lines += ["| feature | unit | formula | source |", "| --- | --- | --- | --- |"]
        lines += [feature_row(d) for d in definitions() if d.kind is kind]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def feature_row(d: Definition) -> str:
    return f"| `{d.name}`{' ~' if d.estimated else ''} | {d.unit} | {d.formula} | {d.source} |"


def passes_page() -> str:
    """`passes.md`: every pass with its options."""
    lines = [
        "# Passes",
        "",
        "Made from the declarations by `python docs/generate.py`; `sparseditto passes NAME` prints the same.",
        "",
    ]
    for kind in Kind:
        found = sorted((c for c in registry().values() if c.kind is kind), key=lambda c: c.name)
        lines += [f"## {kind.value.capitalize()} passes", ""] if found else []
        for cls in found:
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


PAGES = {"passes.md": passes_page, "features.md": features_page}


def main() -> int:
    pages = {FOLDER / name: page() for name, page in PAGES.items()}
    if "--check" not in sys.argv[1:]:
        for path, text in pages.items():
            path.write_text(text)
        return 0
    old = [path.name for path, text in pages.items() if not path.is_file() or path.read_text() != text]
    if old:
        print(f"{', '.join(old)}: not what is declared; run python docs/generate.py", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
