"""Validation of derivations: whether each step of one keeps what the program before means.

A step is judged from the two programs and its record alone. The rules that made it are not imported: a rule that is
wrong, or a record that was edited, is found out here. A kind without validator is `unknown`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

from treadle.algebra.sets import SetError, fresh_budget
from treadle.base.errors import TreadleError
from treadle.checker.derivation_copies import dematerialise, distribute, recompute
from treadle.checker.derivation_enclosing import enclose
from treadle.checker.derivation_folds import apart, factor, products, regroup
from treadle.checker.derivation_layouts import relayout
from treadle.checker.derivation_match import Match
from treadle.checker.derivation_nests import fuse, permute, reindex, serialise, split
from treadle.checker.derivation_scans import gather
from treadle.checker.derivation_scopes import fuse_scopes, move, specialise, split_scopes
from treadle.checker.derivation_tiles import backwards, kept
from treadle.checker.verdict import Finding, Status, Verdict
from treadle.ir.core import Program
from treadle.ir.errors import IRDominance, IRStructure, IRType
from treadle.ir.verifier import verify
from treadle.plan.steps import Step

VALIDATORS: dict[str, Callable[[Match], None]] = {
    "reindex": reindex,
    "split": split,
    "fuse": fuse,
    "permute": permute,
    "serialise": serialise,
    "move": move,
    "distribute": distribute,
    "dematerialise": dematerialise,
    "recompute": recompute,
    "materialise": recompute,
    "relayout": relayout,
    "factor": factor,
    "regroup": regroup,
    "products": products,
    "gather": gather,
    "apart": apart,
    "fuse_scopes": fuse_scopes,
    "split_scopes": split_scopes,
    "specialise": specialise,
    "enclose": enclose,
}
"""By the kind of a step: each says where a comparison of the two programs may differ, and how."""

UNDONE: dict[str, str] = {"materialise": "recompute"}
"""Kinds that are judged as the step of another kind that leads back: that two programs mean the same goes both ways."""

_BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    SetError,
)


def validate(before: Program, step: Step, after: Program) -> Verdict:
    """The verdict on one step.

    *Ensures*: `verified` only if, for all extents and arguments that keep the promises of `before` and the facts in
    `permissions` (tensors that share no element), `after` stores what `before` does, up to the regrouping that its
    order policies grant.
    """
    begun = time.perf_counter()
    fresh_budget()

    def verdict(status: Status, reason: str, case: dict[str, int] | None = None, missing: str | None = None) -> Verdict:
        return Verdict(status, "step", None, None, reason, case, missing, time.perf_counter() - begun)

    rule = VALIDATORS.get(step.kind)
    if rule is None:
        return verdict("unknown", f"steps of the kind {step.kind} have no validator", None, "a validator")
    for program, place in ((before, "before"), (after, "after")):
        try:
            verify(program, pass_name=step.kind)
        except (IRStructure, IRDominance, IRType) as error:
            return verdict("rejected", f"the program {place} it is malformed: {error.found}")
    try:
        undone = step.kind in UNDONE
        if undone:
            before, step, after = after, backwards(before, step, after, UNDONE[step.kind]), before
        m = Match(before, after, step)
        m.backwards = undone
        rule(m)
        m.run()
        if undone:
            kept(m)
        pairs = cast("list[list[str]]", step.args.get("disjoint", []))
        facts = tuple(f"disjoint({a}, {b})" for a, b in pairs)
    except Finding as no:
        return verdict(no.status, no.reason, no.counterexample or None, no.missing)
    except (*_BROKEN, TreadleError) as broken:  # a record that no validator foresaw
        return verdict("unknown", f"{type(broken).__name__}: {broken}", None, "a well-formed step")
    return Verdict("verified", seconds=time.perf_counter() - begun, permissions=facts)


def validate_derivation(programs: Sequence[Program], steps: Sequence[Step]) -> list[Verdict]:
    """The verdict on each step of a derivation. *Requires*: one program more than steps."""
    pairs = zip(programs[:-1], steps, programs[1:], strict=True)
    return [validate(before, step, after) for before, step, after in pairs]
