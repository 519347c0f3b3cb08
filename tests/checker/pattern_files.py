"""The library of bug patterns in `patterns/`: pairs of machine texts, one wrong and one right, that differ in a few
lines.

A wrong text begins with comments: its name, what goes wrong, `report:` (where such a fault was reported in public),
`refused:` (verdict and judgement), `at:` (the statement at which the judge stops, or `-` for a declaration), where two
accesses together are the fault `against:` (the other one) and, where the simulator can show it, `seen:` (extents at
which schedules find it).

`python -m tests.checker.pattern_files` writes docs/patterns.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "patterns"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "patterns.md"
HEAD = """# Bugs that others met, as machine programs

Faults in kernels that were reported in public, each as a pair of machine texts in
[tests/checker/patterns](../tests/checker/patterns): the wrong one is refused by [the judge](checker.md) at a statement
named there (and, where two accesses together are the fault, *against* the other one), the right one, which differs in
a few lines, is verified for all sizes. The descriptions are ours; a report
names where a fault of this kind was met, not whether it still exists. *Seen*: adversarial schedules of the simulator
find it too (`python benchmarks/machine_patterns.py`); the others hang on what the simulator does not have (alignment,
capacities, stale tile registers) or on sizes that it does not reach. Made by `python -m tests.checker.pattern_files`.
"""


@dataclass(frozen=True)
class Pattern:
    """One pair. `seen` are the extents at which a schedule shows that the wrong text is wrong, if any."""

    name: str
    what: str
    report: str
    status: str
    judgement: str
    at: str
    against: str  # empty where the report is about one statement
    seen: dict[str, int]
    wrong: str
    right: str


def read(path: Path) -> Pattern:
    """The pair of a wrong text."""
    wrong = path.read_text(encoding="utf-8")
    lines = [line[2:] for line in wrong.splitlines()[: wrong.splitlines().index("tdm 1")]]
    fields = dict(line.split(": ", 1) for line in lines if re.match(r"(report|refused|at|against|seen): ", line))
    what = " ".join(line for line in lines[1:] if not re.match(r"(report|refused|at|against|seen): ", line))
    seen = {k: int(v) for k, v in re.findall(r"(\w+) = (\d+)", fields.get("seen", ""))}
    name = path.name.removesuffix(".wrong.tdm")
    right = path.with_name(f"{name}.right.tdm").read_text()
    status, judgement = fields["refused"].split()
    return Pattern(
        name, what, fields["report"], status, judgement, fields["at"], fields.get("against", ""), seen, wrong, right
    )


def patterns() -> list[Pattern]:
    """Every pair, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.wrong.tdm"))]


def page() -> str:
    """The text of docs/patterns.md."""
    rows = [
        HEAD,
        "| pattern | what goes wrong | reported as | refused by | at | against | seen |",
        "|---|---|---|---|---|---|---|",
    ]
    for p in patterns():
        link = f"[{p.name.replace('_', ' ')}](../tests/checker/patterns/{p.name}.wrong.tdm)"
        cells = (link, p.what, p.report, p.judgement, _code(p.at), _code(p.against), "yes" if p.seen else "")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _code(statement: str) -> str:
    return f"`{statement}`" if statement not in ("", "-") else ""


if __name__ == "__main__":
    PAGE.write_text(page())
