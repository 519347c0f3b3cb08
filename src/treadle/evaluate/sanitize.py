"""The checked interpreter: runs a program at several cuts and orders and reports every promise it sees broken."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.base.errors import UserError
from treadle.evaluate.cuts import Cuts, Even, Random
from treadle.evaluate.interpreter import evaluate
from treadle.evaluate.watch import Finding, Promises
from treadle.ir.core import Program, Region
from treadle.ir.ops.access import Store

Array = NDArray[Any]


def sanitize(
    program: Program,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, int | float | bool],
    extents: Mapping[str, int],
    *,
    seeds: int = 2,
    fresh: Collection[str] = (),
) -> list[Finding]:
    """What is wrong with `program` on these arguments: a list of findings, empty when all is well.

    Runs at block size 1 (where instances are single indices and interference of `parallel` instances is exact), with
    whole dimensions, and `seeds` times with random cuts and orders. Arguments are not changed: outputs are copies. Two
    runs whose outputs differ by more than regrouping can explain (more than 1e-3 relative, or at all for integers) are
    reported as `block/observed` with the first element that differs. `fresh` names outputs without values before the
    run: reading an element of them that no instance has written is `read/uninitialised`.
    """
    findings: list[Finding] = []
    first: dict[str, Array] | None = None
    plans: list[tuple[str, Cuts]] = [("blocks of 1", Even(1)), ("whole dimensions", Even(1 << 62))]
    plans += [(f"random blocks (seed {s})", Random(s)) for s in range(seeds)]
    for label, cuts in plans:
        copies = _copied(program, arrays)
        watcher = Promises({name: a.shape for name, a in copies.items()}, fresh=fresh)
        try:
            evaluate(program, copies, scalars, extents=extents, cuts=cuts, watcher=watcher)
        except UserError as error:
            findings.append(Finding(error.code, f"{error.found}, expected {error.expected} ({label})", error.span))
        findings += [f for f in watcher.findings if f not in findings]
        if findings:
            return findings
        if first is None:
            first = copies
        else:
            findings += _differences(program, first, copies, plans[0][0], label)
    return findings


def _copied(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Copies of what the program stores to; two arguments that are one memory stay one."""
    stored = {op.tensor.name for op in program.body.walk() if isinstance(op, Store)}
    copies: dict[int, Array] = {}
    result: dict[str, Array] = {}
    for name, array in arrays.items():
        aliases = any(np.shares_memory(array, arrays[s]) for s in stored)
        key = id(array)
        if aliases and key not in copies:
            copies[key] = array.copy()
        result[name] = copies.get(key, array)
    return result


def _differences(
    program: Program, a: Mapping[str, Array], b: Mapping[str, Array], label_a: str, label_b: str
) -> list[Finding]:
    found: list[Finding] = []
    for op in program.body.walk():
        if not isinstance(op, Store) or isinstance(op, Region):
            continue
        x, y = a[op.tensor.name], b[op.tensor.name]
        exact = not op.tensor.dtype.is_float
        wide_x, wide_y = (v.astype(np.float64) if not exact else v for v in (x, y))
        if exact:
            bad = wide_x != wide_y
        else:
            bits = op.tensor.dtype.mantissa
            tolerance = max(1e-3, 4.0 * 2.0**-bits)
            with np.errstate(all="ignore"):
                bad = ~(np.isclose(wide_x, wide_y, rtol=tolerance, atol=tolerance, equal_nan=True))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            element = f"{op.tensor.name}[{', '.join(map(str, at))}]"
            message = f"{element} is {x[at]} with {label_a} and {y[at]} with {label_b}: the result depends on the cut"
            found.append(Finding("block/observed", message, op.span))
    return found
