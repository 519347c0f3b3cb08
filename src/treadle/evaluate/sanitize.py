"""The checked interpreter: runs a program at several cuts and orders and reports every promise it sees broken."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.base.errors import UserError
from treadle.evaluate.cuts import Cuts, Even, Random
from treadle.evaluate.interpreter import evaluate
from treadle.evaluate.spaces import copied
from treadle.evaluate.watch import Finding, Promises
from treadle.ir.core import Program, Tensor
from treadle.ir.ops.access import Store
from treadle.ir.timing import unsettled_tensors

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
    whole dimensions, and `seeds` times with random cuts, orders and regroupings. Arguments are not changed: outputs
    are copies, and arguments that share memory share the copy. Two runs whose outputs differ by more than regrouping
    can explain (more than 1e-3 of their size, or at all for integers) are reported as `block/observed` with the first
    element that differs and the line that stored it; outputs that depend on which of several unordered atomic writes
    came first may differ. `fresh` names outputs without values before the run: reading an element of them that no
    instance has written is `read/uninitialised`.
    """
    findings: list[Finding] = []
    first: tuple[dict[str, Array], Promises] | None = None
    stored = {op.tensor.name for op in program.body.walk() if isinstance(op, Store)}
    settled = [t for t in program.tensors if t.name in stored - unsettled_tensors(program) and t.name in arrays]
    plans: list[tuple[str, Cuts]] = [("blocks of 1", Even(1)), ("whole dimensions", Even(1 << 62))]
    plans += [(f"random blocks (seed {s})", Random(s)) for s in range(seeds)]
    for label, cuts in plans:
        copies, spaces = copied(arrays, stored)
        watcher = Promises(program, {name: a.shape for name, a in copies.items()}, spaces, fresh=fresh)
        try:
            evaluate(program, copies, scalars, extents=extents, cuts=cuts, watcher=watcher)
        except UserError as error:
            findings.append(Finding(error.code, f"{error.found}, expected {error.expected} ({label})", error.span))
        findings += [f for f in watcher.findings if f not in findings]
        if findings:
            return findings
        if first is None:
            first = copies, watcher
        else:
            findings += _differences(settled, first, (copies, watcher), (plans[0][0], label))
    return findings


def _differences(
    tensors: list[Tensor],
    a: tuple[dict[str, Array], Promises],
    b: tuple[dict[str, Array], Promises],
    labels: tuple[str, str],
) -> list[Finding]:
    """The first element of each tensor that two runs give different values, by the line that stored it."""
    found: list[tuple[int, Finding]] = []
    for tensor in tensors:
        x, y = a[0][tensor.name], b[0][tensor.name]
        bad = _differ(tensor, x, y)
        if not bad.any():
            continue
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        element = f"{tensor.name}[{', '.join(map(str, at))}]"
        message = f"{element} is {x[at]} with {labels[0]} and {y[at]} with {labels[1]}: the result depends on the cut"
        writer = a[1].writer_of(tensor.name, at) or b[1].writer_of(tensor.name, at)
        place = a[1].ops.index(writer) if writer in a[1].ops else len(a[1].ops)
        values = (x[at].item(), y[at].item())
        span = None if writer is None else writer.span
        found.append((place, Finding("block/observed", message, span, None, labels, values)))
    return [finding for _, finding in sorted(found, key=lambda f: f[0])]


def _differ(tensor: Tensor, x: Array, y: Array) -> NDArray[np.bool_]:
    """Which elements differ by more than regrouping can explain."""
    if not tensor.dtype.is_float:
        return np.asarray(x != y)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    tolerance = max(1e-3, 4.0 * 2.0**-tensor.dtype.mantissa)
    finite = np.abs(wide_x[np.isfinite(wide_x)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    with np.errstate(all="ignore"):
        return ~np.isclose(wide_x, wide_y, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
