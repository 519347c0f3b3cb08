"""Chains that keep their states, gathered into scans; forged ones are refused for the right reason."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle.checker.derivation import validate, validate_derivation
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.rules import Derivation, gather
from treadle.rules.refusals import FormUnsupported, NotFactored

M, N = td.dims("M N")


@td.kernel
def sums(X: td.Tensor[M, N], W: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        w = W[m, N]
        Y[m, N] = td.scan(X[m, N] * w, N, td.Add) + w


@td.kernel
def backwards(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Max, exclusive=True, reverse=True)


@td.kernel
def chain(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Add, order=td.fold_left)


@td.kernel
def pairs(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        _, Y[m, N] = td.scan((X[m, N] > 0, X[m, N]), N, td.Monoid((False, 0.0), later))


def later(a, b):
    return a[0] | b[0], td.where(b[0], b[1], a[1])


def expanded(kernel: td.Kernel) -> Program:
    given = {n: td.f32 for n in kernel.definition.parameters}
    return expand(kernel.definition.capture(given, {}, frozenset(given), extents={}))


@pytest.mark.parametrize("kernel", [sums, backwards], ids=["sums", "backwards"])
def test_a_chain_becomes_a_scan_and_means_the_same(kernel: td.Kernel) -> None:
    before = expanded(kernel)
    d = Derivation(before).then(gather, "scan_loop")
    assert [v.status for v in validate_derivation(d.programs, d.steps)] == ["verified"]
    assert not any(isinstance(op, Region) and op.kind == "serial" for op in d.program.body.walk())
    assert expand(d.program) is d.program  # it stays
    assert print_program(parse_program(print_program(d.program), "again")) == print_program(d.program)
    assert d.replay().program.name == before.name
    rng = np.random.default_rng(0)
    for n in (0, 1, 7):
        found: list[np.ndarray] = []
        for p in d.programs:
            args = {t.name: rng.integers(-3, 4, (2, n)).astype(np.float32) for t in p.tensors}
            rng = np.random.default_rng(n)
            evaluate(p, args, extents={"M": 2, "N": n})
            rng = np.random.default_rng(0)
            found.append(args["Y"])
        assert found[0].tolist() == found[1].tolist()


def test_what_is_no_regrouped_chain_is_refused() -> None:
    with pytest.raises(NotFactored, match="exact chain"):
        gather(expanded(chain), "scan_loop")
    with pytest.raises(FormUnsupported, match="keep that"):
        gather(expanded(pairs), "scan_loop")


FORGED = {
    "another monoid": (sums, "after", ("N add whole", "N max whole"), "merges by add"),
    "from the other end": (sums, "after", ("add whole", "add reverse whole"), "backwards"),
    "without the element itself": (sums, "after", ("add whole", "add exclusive whole"), "before the merge"),
    "with the element itself": (backwards, "after", (" exclusive", ""), "after the merge"),
    "a scan that is expanded again": (sums, "after", (" whole", ""), "a whole scan"),
    "an exact order": (sums, "after", ("whole", "whole order fold_left"), "an exact chain"),
    "another value": (sums, "after", ("scan %1", "scan %0"), "another value"),
    "a chain that nothing may regroup": (sums, "before", (" order ordered", ""), "an exact chain"),
    "from something": (sums, "before", ("full -0.0", "full 1.0"), "the identity"),
    "into a tile that holds something": (sums, "before", ("full uninitialised", "full 0.0"), "holds something"),
    "a product, not a sum": (sums, "before", ("add %6", "mul %6"), "merges by mul"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_scans(name: str) -> None:
    kernel, side, (old, new), reason = FORGED[name]
    d = Derivation(expanded(kernel)).then(gather, "scan_loop")
    texts = {"before": print_program(d.start), "after": print_program(d.program)}
    assert old in texts[side], texts[side]
    texts[side] = texts[side].replace(old, new, 1)
    before, after = (parse_program(texts[k], "a forgery") for k in ("before", "after"))
    verdict = validate(before, d.steps[0], after)
    assert verdict.status == "rejected" and reason in verdict.reason, verdict


def test_the_last_state_is_not_there_any_more() -> None:
    d = Derivation(expanded(sums)).then(gather, "scan_loop")
    text = print_program(d.start)
    carried = text.split("-> (")[1].split(",")[0]
    line = next(x for x in text.splitlines() if "store Y" in x)
    made = line.split("= ")[-1]
    text = text.replace(line, f"      %late: f32[m, N] = add {made}, {carried}\n" + line.replace(made, "%late"))
    after = print_program(d.program)
    after = after.replace(line, f"      %late: f32[m, N] = add {made}, {made}\n" + line.replace(made, "%late"))
    verdict = validate(parse_program(text, "a forgery"), d.steps[0], parse_program(after, "a forgery"))
    assert verdict.status == "rejected", verdict
