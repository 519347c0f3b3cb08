"""What every file of measured results says: where, how, and each sample of what was timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PLACES = ("device", "machine", "processor", "cpu")
TIMES = ("_us", "_ms", "_seconds")
EXAMPLES = 3
"""How many fractions a list has at least to be the samples of something."""


def rows_of(path: Path) -> list[Any]:
    """The rows of a file: the lines of JSON Lines, else the one document."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else [json.loads(text)]


def lacks(rows: list[Any]) -> list[str]:
    """What rows of results do not say: `method`, `device` (by one of its names), `samples` where they have times."""
    keys, longest = set[str](), 0
    waiting: list[Any] = list(rows)
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            keys |= set(item)
            waiting += item.values()
        elif isinstance(item, list):
            fractions = [x for x in item if isinstance(x, float) and x != int(x)]  # shapes and counts are whole
            longest = max(longest, len(fractions))
            waiting += item
    timed = any(key.endswith(TIMES) or key == "times" for key in keys)
    found = {"method": "method" not in keys, "device": not keys & set(PLACES), "samples": timed and longest < EXAMPLES}
    return [name for name, missing in found.items() if missing]
