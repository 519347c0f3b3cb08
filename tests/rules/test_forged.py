"""Forged steps: a record or a program after it that no rule gives. The checker refuses each for the right reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import treadle as td
from treadle.checker.derivation import validate
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.plan.steps import Step
from treadle.rules import Derivation, fuse_scopes, recompute, split

from . import kernels
from .steps import RIGHT


def last(name: str, count: int) -> tuple[Program, Step, Program]:
    """The program before a step, the step, the program after it: the `count`-th of a derivation."""
    kernel, steps = RIGHT[name]
    d = Derivation(kernels.program(kernel))
    for rule, args in steps[:count]:
        d = d.then(rule, *args)
    return d.programs[-2], d.steps[-1], d.programs[-1]


def edited(p: Program, *changes: tuple[str, str]) -> Program:
    text = print_program(p)
    for old, new in changes:
        assert text.count(old) >= 1, (old, text)
        text = text.replace(old, new, 1)
    return parse_program(text, "a forgery")


def with_args(step: Step, **args: object) -> Step:
    return replace(step, args={**step.args, **args})


TAIL = ("region R0_m parallel (m in m_o)", "region R0_m parallel (m in M[m_o.start : min(m_o.stop, 4*((M) // (4)))])")
LATE = ("region R0_m parallel (m in m_o)", "region R0_m parallel (m in M[m_o.start : min(M, m_o.stop + 1)])")
FORGED: dict[str, tuple[str, int, Callable[[Program], Program], Callable[[Step], Step], str]] = {
    "what is shared is something else": (
        "operands that share what they are made of",
        1,
        lambda p: edited(p, ("full 4", "full 5")),
        lambda s: s,
        "is used, and it is gone",
    ),
    "places of another operation": (
        "operands that share what they are made of",
        1,
        lambda p: edited(p, ("floordiv", "mod")),
        lambda s: s,
        "is used, and it is gone",
    ),
    "a split that drops the tail": (
        *("tiled contraction", 1, lambda p: edited(p, TAIL), lambda s: s, "is in no block"),
    ),
    "a split whose blocks overlap": (
        *("tiled contraction", 1, lambda p: edited(p, LATE), lambda s: s, "in two blocks"),
    ),
    "chunks without the last": (
        *(
            "chunks of a fold",
            1,
            lambda p: edited(p, ("(K + 3) // (4)", "(K) // (4)")),
            lambda s: s,
            "are not those of",
        ),
    ),
    "chunks that overlap": (
        *("chunks of a fold", 1, lambda p: edited(p, ("min(4*k_c + 4, K)", "min(4*k_c + 5, K)")), lambda s: s),
        "is not [4*k_c",
    ),
    "a chunk that begins with zero times": (
        *(
            "chunks of a fold",
            1,
            lambda p: edited(p, ("full -0.0", "full 1.0")),
            lambda s: s,
            "not the identity of add",
        ),
    ),
    "what the state held, twice": (
        *("chunks of a fold", 1, lambda p: edited(p, ("= %2\n" if False else "full -0.0", "full 0.0")), lambda s: s),
        "not the identity of add",
    ),
    "parts folded by another monoid": (
        *(
            "chunks of a fold",
            1,
            lambda p: edited(p, ("= reduce add", "= reduce max")),
            lambda s: s,
            "not folded by add",
        ),
    ),
    "parts in any order": (
        *("chunks in order", 1, lambda p: edited(p, (" order ordered\n    %s.2", "\n    %s.2")), lambda s: s),
        "not folded by add, ordered",
    ),
    "another operand": (
        *("siblings through memory", 3, lambda p: edited(p, ("mul %2, %4", "mul %0, %4")), lambda s: s, "another args"),
    ),
    "a store that is gone": (
        *(
            "siblings through memory",
            3,
            lambda p: edited(p, ("      store Y[m, n] = %2\n", "")),
            lambda s: s,
            "claimed",
        ),
    ),
    "a fusion that forgets that tensors may overlap": (
        *("siblings through memory", 1, lambda p: p, lambda s: with_args(s, disjoint=[]), "may overlap"),
    ),
    "a reference that leads elsewhere": (
        *("a tile computed again", 1, lambda p: p, lambda s: replace(s, forward=s.forward[:-1]), "claimed"),
    ),
    "an order that is not the step's": (
        *(
            "tiled contraction",
            4,
            lambda p: edited(p, ("(n in N, m_o in M by 4)", "(m_o in M by 4, n in N)")),
            lambda s: s,
        ),
        "ranges over",
    ),
    "a branch without its test": (
        *(
            "a pure nest turned",
            2,
            lambda p: edited(p, ("index N - 3", "index N - 2")),
            lambda s: s,
            "not what the step",
        ),
    ),
    "a branch that does something else": (
        *("a pure nest turned", 2, lambda p: edited(p, ("else\n", "else\n")), lambda s: with_args(s, when=["M >= 0"])),
        "not what the step says",
    ),
    "a flattened nest of half the size": (
        *("a pure nest flattened", 1, lambda p: edited(p, ("f in F each", "f in F[0 : N] each")), lambda s: s, ""),
    ),
    "another map than the program has": (
        *(
            "a pure nest turned",
            1,
            lambda p: p,
            lambda s: with_args(s, map={"i": "p", "j": "q"}, inverse={"p": "i", "q": "j"}),
        ),
        "another subs",
    ),
    "a product of other factors": (
        *("a contraction as a fold", 1, lambda p: edited(p, ("mul %0, %1", "mul %1, %1")), lambda s: s),
        "",
    ),
    "products of a sum, not added to it": (
        *("a contraction as a fold", 1, lambda p: edited(p, ("add %acc.1, %", "mul %acc.1, %")), lambda s: s),
        "does not enter once",
    ),
    "products folded by another monoid": (
        *("a contraction as a fold", 1, lambda p: edited(p, ("reduce add", "reduce max")), lambda s: s),
        "are not added up over K",
    ),
    "what a contraction held before, in each of its products": (
        *("a contraction as a fold", 1, lambda p: edited(p, ("= mul", "= add")), lambda s: s),
        "the products of",
    ),
    "another contraction than the record names": (
        *("a contraction as a fold", 1, lambda p: p, lambda s: with_args(s, value="%0"), "sums no products"),
    ),
    "a contraction from zero, of other factors": (
        *("a contraction from zero", 1, lambda p: edited(p, ("mma %0, %1", "mma %1, %0")), lambda s: s),
        "the products of",
    ),
    "a contraction that starts from one": (
        *(
            "a contraction from zero",
            1,
            lambda p: edited(p, ("%2: f32[m, n] = full 0.0", "%2: f32[m, n] = full 1.0")),
            lambda s: s,
        ),
        "a zero of its own",
    ),
    "what a contraction held before, twice": (
        *(
            "a contraction from zero",
            1,
            lambda p: edited(p, ("= add %acc.1, %acc.4", "= add %acc.4, %acc.4")),
            lambda s: s,
        ),
        "does not enter once",
    ),
    "a parallel region that was a chain": (
        *("a chain in blocks", 1, lambda p: edited(p, ("serial", "parallel"), ("serial", "parallel")), lambda s: s),
        "another kind",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_steps(name: str) -> None:
    derivation, count, change, record, reason = FORGED[name]
    before, step, after = last(derivation, count)
    assert validate(before, step, after).status == "verified"
    verdict = validate(before, record(step), change(after))
    assert verdict.status != "verified"
    assert reason in verdict.reason, verdict


def test_a_dropped_tail_comes_with_the_index() -> None:
    before, step, after = last("tiled contraction", 1)
    verdict = validate(before, step, edited(after, TAIL))
    assert verdict.status == "rejected" and verdict.counterexample is not None
    size, index = verdict.counterexample["M"], verdict.counterexample["[1]"]
    assert size - size % 4 <= index < size


def forged_fusion(kernel) -> tuple[Program, Step, Program]:
    """Two regions put together although what crosses between them forbids it: by text, as no rule would."""
    p = kernels.program(kernel)
    text = print_program(p)
    head, first, second = text.split("    region ")
    lines = second.splitlines()
    renamed = "\n".join(lines[1:]).replace("m_1", "m").replace("n_1", "n").replace("i_1", "i")
    keep = first.rstrip().splitlines()
    yields = [line for line in keep if "yield" in line]
    if yields:
        renamed = renamed.replace("%T.2[", f"{yields[0].split()[-1]}[")
    body = [line for line in keep if line not in yields] + [renamed.rstrip()] + yields
    after = parse_program(head + "    region " + "\n".join(body) + "\n", "a forgery")
    place = len(p.body.ops) - 1
    count = len(p.body.ops[place - 1].body.ops)
    inner = [(f"{place}.0.{k}", f"{place - 1}.0.{count + k}") for k in range(len(p.body.ops[place].body.ops))]
    pairs = [["X", "Y"], ["X", "Z"], ["Y", "Z"]]
    args = {"first": "R0", "second": "R1", "disjoint": pairs}
    return p, Step("fuse_scopes", args, ((str(place), None), *inner)), after


def test_forged_fusions() -> None:
    assert validate(*forged_fusion(kernels.tiles)).status == "verified"
    for kernel in (kernels.neighbours, kernels.late_reader):
        verdict = validate(*forged_fusion(kernel))
        assert verdict.status == "rejected" and "touch one element" in verdict.reason
        assert verdict.counterexample


def test_a_forged_copy_of_what_changes() -> None:
    p = kernels.program(kernels.snapshots)
    lines: list[str] = []
    for line in print_program(p).splitlines():
        lines.append(line.replace("add %y, %5", "add %y.1, %5"))
        if "region R2" in line:
            lines.append("        %y.1: f32[] = load Y[i]")
    after = parse_program("\n".join(lines) + "\n", "a forgery")
    forward = tuple((f"1.0.4.0.{k}", f"1.0.4.0.{k + 1}") for k in range(3))
    verdict = validate(p, Step("recompute", {"value": "%y", "into": "R2"}, forward), after)
    assert verdict.status == "rejected" and "stored to before" in verdict.reason, verdict


def test_a_forged_load_that_is_outside_where_the_region_does_not_run() -> None:
    p = kernels.program(kernels.last_one)
    lines: list[str] = []
    for line in print_program(p).splitlines():
        if "region R0" in line:
            lines.append("    %last: f32[] = load X[N - 1]")
        lines.append(line.replace("%1: f32[] = load X[N - 1]", "%1: f32[] = extract %last[]"))
    after = parse_program("\n".join(lines) + "\n", "a forgery")
    forward = (("0", "1"), *((f"0.0.{k}", f"1.0.{k}") for k in range(4)))
    verdict = validate(p, Step("distribute", {"value": "%1", "disjoint": [["X", "Y"]]}, forward), after)
    assert verdict.status == "rejected" and "may leave N" in verdict.reason, verdict
    assert verdict.counterexample == {"N": 0}


def test_rules_do_not_decide() -> None:
    """A record that names another step of the same outcome is judged as what it says."""
    d = Derivation(kernels.program(kernels.tiles)).then(recompute, "%3")
    other = replace(d.steps[0], kind="dematerialise")
    assert validate(d.start, other, d.program).status == "rejected"
    e = Derivation(kernels.program(kernels.tiles)).then(fuse_scopes, "R0", "R1")
    assert validate(e.start, replace(e.steps[0], kind="fuse"), e.program).status == "unknown"


def clipped(x):
    return td.minimum(td.maximum(x, 0.0), 6.0)


CLIPPED = """define internal float @clipped(float %x) {
  %a = call float @llvm.maximum.f32(float %x, float 0.0)
  %b = call float @llvm.minimum.f32(float %a, float 6.0)
  ret float %b
}
"""
clip = td.intrinsic(clipped, emit={"cpu": CLIPPED})
M, N = td.dims("M N")


@td.kernel
def clips(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = clip(X[m, N])


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ((), "verified"),
        ((("= full 6.0", "= full 7.0"),), "rejected"),
        ((("float 6.0", "float 7.0"),), "rejected"),
        ((('numerics "exact"', 'numerics "2ulp"'),), "rejected"),
    ],
)
def test_an_operation_of_the_user_keeps_its_meaning(changes: tuple[tuple[str, str], ...], status: str) -> None:
    """Read back from texts: one that means, or is emitted as, something else is another operation."""
    d = Derivation(kernels.program(clips)).then(split, "R0", "m", 4)
    verdict = validate(edited(d.start), d.steps[0], edited(d.program, *changes))
    assert verdict.status == status, verdict
    assert status == "verified" or verdict.reason == "user_clipped %1 has another meaning: user_clipped"
