"""Right steps: the program means the same, the checker verifies each, records save, replay and carry references."""

from __future__ import annotations

import pytest

from treadle.checker.derivation import VALIDATORS, validate, validate_derivation
from treadle.ir.core import Region
from treadle.ir.paths import op_at, paths
from treadle.ir.printer import print_program
from treadle.plan.steps import PROGRAM_KINDS, Step
from treadle.rules import RULES, Derivation
from treadle.rules.refusals import OperationGone

from . import kernels
from .steps import RIGHT


def derived(name: str) -> Derivation:
    kernel, steps = RIGHT[name]
    d = Derivation(kernels.program(kernel))
    for rule, args in steps:
        d = d.then(rule, *args)
    return d


@pytest.mark.parametrize("name", RIGHT)
def test_right_steps(name: str) -> None:
    d = derived(name)
    for before, after in zip(d.programs, d.programs[1:], strict=False):
        assert print_program(before) != print_program(after)
        assert print_program(kernels.reread(after)) == print_program(after)
        assert kernels.same(d.start, after), print_program(after)
    assert [str(v) for v in validate_derivation(d.programs, d.steps) if v.status != "verified"] == []
    again = Derivation.from_json(d.to_json())
    assert again.to_json() == d.to_json() == again.replay().to_json()
    assert [v.status for v in validate_derivation(again.programs, again.steps)] == ["verified"] * len(d.steps)
    assert str(d).count("\n") == len(d.steps)


def test_every_kind_is_a_rule_with_a_validator_and_an_example() -> None:
    used = {step.kind for name in RIGHT for step in derived(name).steps}
    assert set(PROGRAM_KINDS) == set(RULES) == set(VALIDATORS) == used


def test_a_kind_without_validator_is_unknown() -> None:
    p = kernels.program(kernels.pure)
    assert validate(p, Step("hoist", {}), p).status == "unknown"


def test_paths_name_operations() -> None:
    p = kernels.program(kernels.contract)
    assert all(op_at(p, path) is op for path, op in paths(p))
    assert [op_at(p, path) for path in ("1", "0.0.1.0", "0.1.0", "x")] == [None] * 4


def test_references_go_forward_through_edits() -> None:
    d = Derivation(kernels.program(kernels.contract))
    (product,) = [path for path, op in paths(d.program) if op.keyword == "mma"]
    for rule, args in RIGHT["tiled contraction"][1]:
        d = d.then(rule, *args)
        assert d.at(product).keyword == "mma"
    inner = d.path(next(op for op in d.program.body.walk() if isinstance(op, Region) and op.name == "R1_k"))
    assert d.forward(inner, since=len(d.steps)) == inner


def test_references_into_what_is_gone_say_so() -> None:
    d = Derivation(kernels.program(kernels.tiles))
    (insert,) = [path for path, op in paths(d.program) if op.keyword == "insert"]
    d = d.then(RULES["fuse_scopes"], "R0", "R1").then(RULES["dematerialise"], "%3")
    assert d.forward(insert) is None
    with pytest.raises(OperationGone, match="step 2, dematerialise"):
        d.at(insert)
