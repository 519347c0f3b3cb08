"""Forged steps in which a tile, an index or a monoid reaches further than the step speaks of."""

from __future__ import annotations

import re

import numpy as np
import pytest

import treadle as td
from treadle.checker.derivation import validate
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program
from treadle.ir.ops.access import Load
from treadle.ir.parser import parse_program
from treadle.ir.paths import paths
from treadle.ir.printer import print_program
from treadle.plan.steps import Step
from treadle.rules import Derivation, dematerialise, factor, materialise
from treadle.rules.refusals import FormUnsupported, Overwritten

from . import kernels

K, M, N, V = td.dims("K M N V")


@td.kernel
def totals(X: td.Tensor[M], Y: td.Out[M]):
    T = td.empty(M)
    for m in td.parallel(M.each):
        T[m] = X[m] + 1.0
    for m in td.parallel(M.each):
        Y[m] = T.sum(M)


@td.kernel
def chosen(C: td.Tensor[M], X: td.Tensor[M], Y: td.Out[M]):
    T = td.zeros(M)
    for m in td.parallel(M.each):
        if C[m] > 0.0:
            T[m] = X[m]
        Y[m] = T[0]


@td.kernel
def nest(X: td.Tensor[N, M], Y: td.Out[N, M]):
    for i in td.parallel(N.each):
        for j in td.parallel(M.each):
            Y[i, j] = X[i, j]


def edited(p: Program, *changes: tuple[str, str]) -> Program:
    text = print_program(p)
    for old, new in changes:
        assert old in text, (old, text)
        text = text.replace(old, new)
    return parse_program(text, "a forgery")


def test_an_instance_has_its_own_part_of_a_tile() -> None:
    """A whole tile is known when the region that fills it is over, not in the instance that fills an element."""
    before = kernels.program(totals)
    end = "      yield %T.3\n"
    after = edited(
        before,
        (end + "    region R1 parallel (m_1 in M each)\n", ""),
        ("reduce add %T.2", "reduce add %T.3"),
        ("Y[m_1] = %3\n", "Y[m] = %3\n" + end),
    )
    args = {"first": "R0", "second": "R1", "disjoint": [["X", "Y"]]}
    step = Step("fuse_scopes", args, (("2", None), ("2.0.0", "1.0.4"), ("2.0.1", "1.0.5")))
    verdict = validate(before, step, after)
    assert verdict.status == "rejected" and "uses %T.2 as a whole" in verdict.reason, verdict
    assert not kernels.same(before, after)


def test_a_tile_read_behind_a_branch() -> None:
    before = kernels.program(chosen)
    after = edited(before, ("region R0 parallel", "region R0 serial"))
    verdict = validate(before, Step("serialise", {"at": "R0"}), after)
    assert verdict.status == "rejected" and "%T.3 is read" in verdict.reason, verdict


def test_new_indices_that_take_the_names_of_old_ones() -> None:
    """`j` runs over N after the step and over M before it: what holds of the one is not known of the other."""
    before = kernels.program(nest)
    levels = [[{"name": "j", "dim": "N"}], [{"name": "i", "dim": "M"}]]
    step = Step("reindex", {"at": "R0", "levels": levels, "map": {"i": "j", "j": "i"}, "inverse": {"j": "i", "i": "j"}})
    turned = ("(i in N each)", "(j in N each)"), ("[i, j]", "[j, i]")
    right = edited(before, ("(j in M each)", "(i in M each)"), *turned)
    assert validate(before, step, right).status == "verified"
    short = edited(before, ("(j in M each)", "(i in M[0 : min(M, N)] each)"), *turned)
    verdict = validate(before, step, short)
    assert verdict.status == "rejected" and "would never run" in verdict.reason, verdict


def test_a_monoid_of_the_region_around() -> None:
    """Both regions of a split say how parts of their states are merged, and the outer one says something else."""
    before = kernels.program(kernels.lines)
    lines = print_program(before).splitlines()
    at = next(i for i, line in enumerate(lines) if "region R1" in line)
    begin = next(i for i in range(at, len(lines)) if "load" in lines[i])
    end = next(i for i in range(at, len(lines)) if "yield %8" in lines[i])
    merge = [re.sub(r"%(1[2-6]|a\.1|b\.1|a|b)(?![\w.])", r"%w\1", line) for line in lines[at + 1 : begin]]
    head = lines[at].replace("n in N each", "n_o in N by 4")
    outer = head.replace("%f_a:", "%g_a:").replace("%f_b:", "%g_b:").replace("%s.1:", "%g_s:")
    inner = re.sub(r"%f_([ab])(: \S+) = %\d", r"%f_\1\2 = %g_\1", lines[at]).replace("= %s)", "= %g_s)")
    inner = inner.replace("region R1", "region R1_n").replace("n in N each", "n in n_o each").split(" -> ")[0]
    text = [
        *(*lines[:at], outer, *(line.replace("full 1.0", "full 2.0") for line in merge)),
        *(f"  {line}" for line in (f"{inner} -> (%h_a, %h_b, %h_s)", *lines[at + 1 : end + 1])),
        *("        yield %h_a, %h_b, %h_s", *lines[end + 1 :]),
    ]
    after = parse_program("\n".join(text) + "\n", "a forgery")
    place, blocks = "0.0.3", (range(11), range(2), range(3))
    forward = tuple((f"{place}.{b}.{k}", f"{place}.0.0.{b}.{k}") for b, ops in enumerate(blocks) for k in ops)
    verdict = validate(before, Step("split", {"at": "R1", "arg": "n", "size": 4}, forward), after)
    assert verdict.status == "rejected", verdict


def test_a_tile_of_parts_with_one_more_element_than_chunks() -> None:
    """What no chunk puts there would be folded too."""
    before = Derivation(kernels.program(kernels.contract)).then(factor, "R1", "k", 4)
    chunks = "((K + 3) // (4))"
    after = edited(
        before.program, (f"= {chunks}", f"= {chunks} + 1"), ("k_c in K_chunks", f"k_c in K_chunks[0 : {chunks}]")
    )
    verdict = validate(before.start, before.steps[0], after)
    assert verdict.status == "rejected" and "and the chunks are" in verdict.reason, verdict


@td.kernel
def gathered(G: td.Tensor[M], X: td.Tensor[V], Y: td.Out[M, N]):
    for m, n in td.parallel(M.each, N.each):
        x = X[td.in_range(G[m], V)]
        Y[m, n] = x * 2.0


@td.kernel
def gathered_each(G: td.Tensor[M], X: td.Tensor[V], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        x = X[td.in_range(G[m], V)]
        for n in td.parallel(N.each):
            Y[m, n] = x * 2.0


@td.kernel
def gathered_if(C: td.Tensor[M], G: td.Tensor[M], X: td.Tensor[V], Y: td.Out[M]):
    for m in td.parallel(M.each):
        if C[m] > 0.0:
            x = X[td.in_range(G[m], V)]
            Y[m] = x


APART = [["X", "Y"], ["G", "Y"]]


def _like(**tensors: int) -> list[object]:
    return [
        td.like(np.int64 if n == "G" else np.float32, *((2, 3)[:k] if n != "X" else (5,))) for n, k in tensors.items()
    ]


def test_what_is_promised_in_instances_that_there_are() -> None:
    """Without columns the source reads nothing by what is promised; a tile of all rows would be filled all the same."""
    before = gathered.program(*_like(G=1, X=1, Y=2))
    with pytest.raises(FormUnsupported, match="promised to be inside only where an instance reads it"):
        materialise(before, "%x")
    made = (
        "    %t: f32[M] = full uninitialised\n"
        "    region R0_x parallel (m_1 in M each) carry (%t.1: f32[M] = %t) -> (%t.2)\n"
        "      %9: i64[] = load G[m_1]\n"
        "      %y: f32[] = load X[in_range(%9())]\n"
        "      %t.3: f32[M] = insert %t.1[m_1] = %y\n"
        "      yield %t.3\n"
    )
    access = "      %0: i64[] = load G[m]\n      %x: f32[] = load X[in_range(%0())]\n"
    after = edited(before, ("    region R0 ", f"{made}    region R0 "), (access, "      %x: f32[] = extract %t.2[m]\n"))
    places = {"0": "2", "0.0.0": None, "0.0.1": None, "0.0.2": "2.0.1", "0.0.3": "2.0.2", "0.0.4": "2.0.3"}
    step = Step("materialise", {"value": "%x", "disjoint": APART}, tuple(places.items()))
    assert "for each n" in validate(before, step, after).reason
    before = gathered_each.program(*_like(G=1, X=1, Y=2))
    d = Derivation(before).then(materialise, "%x", APART)
    assert validate(before, d.steps[0], d.program).status == "verified"


def test_what_is_promised_under_a_condition() -> None:
    before = gathered_if.program(*_like(C=1, G=1, X=1, Y=1))
    access = "        %3: i64[] = load G[m]\n        %x: f32[] = load X[in_range(%3())]\n"
    made = (
        "    %t: f32[M] = full uninitialised\n"
        "    region R0_x parallel (m_1 in M each) carry (%t.1: f32[M] = %t) -> (%t.2)\n"
        "      %9: i64[] = load G[m_1]\n"
        "      %y: f32[] = load X[in_range(%9())]\n"
        "      %t.3: f32[M] = insert %t.1[m_1] = %y\n"
        "      yield %t.3\n"
    )
    after = edited(
        before, ("    region R0 ", f"{made}    region R0 "), (access, "        %x: f32[] = extract %t.2[m]\n")
    )
    forward: dict[str, str | None] = {path: f"2{path[1:]}" for path, _ in paths(before)}
    forward |= {"0.0.3.0.0": None, "0.0.3.0.1": None, "0.0.3.0.2": "2.0.3.0.1"}
    verdict = validate(before, Step("materialise", {"value": "%x", "disjoint": APART}, tuple(forward.items())), after)
    assert verdict.status == "rejected" and "promised under an `if`" in verdict.reason, verdict


@td.kernel
def corners(X: td.Tensor[N, M, K], Y: td.Out[N, M, K]):
    for i, j in td.parallel(N.each, M.each):
        x = X[i, j, K] + 1.0
        Y[i, j, K] = x * 2.0


def test_factors_of_an_axis_are_of_the_same_instance() -> None:
    before = kernels.program(corners)
    made, step = materialise(before, "%x", rank=2)
    assert [str(d.extent) for d in made.dims if d.factors] == ["M*N"]
    assert validate(before, step, made).status == "verified"
    forged = edited(made, ("[{i, j}, K]", "[{j, i}, K]"))
    assert validate(before, step, forged).status != "verified"
    forged = edited(made, ("[{i, j}, K]", "[{i, i}, K]"))
    assert validate(before, step, forged).status != "verified"


@td.kernel
def twice(X: td.Tensor[N], Y: td.Out[N], Z: td.Out[N]):
    for n in td.parallel(N):
        Y[n] = (X[n] + 1.0) * (X[n] + 1.0)
        Z[n] = X[n] + 2.0


def test_a_value_that_is_made_like_another_one() -> None:
    """What the instances make twice is one value in a comparison; what only looks like it is none."""
    before = kernels.program(twice)
    adds = [op.result.name for op in before.body.walk() if getattr(op, "fn", "") == "add"]
    assert len(adds) == 3
    for value in adds:
        d = Derivation(before).then(materialise, value)
        assert validate(before, d.steps[0], d.program).status == "verified"
        text = print_program(d.program)
        head, kept, rest = text.partition("R0_kept")
        made, region, others = rest.partition("region R0 ")
        for old, new in (("full 1.0", "full 2.0"), ("full 2.0", "full 1.0"), ("add", "mul")):
            if old in made:
                other = parse_program(head + kept + made.replace(old, new) + region + others, "a forgery")
                verdict = validate(before, d.steps[0], other)
                assert verdict.status == "rejected", f"{value}, {old} as {new}: {verdict}"


@td.kernel
def scattered(G: td.Tensor[M, td.i32], X: td.Tensor[M], Y: td.Out[V], Z: td.Out[M]):
    i = G[M]
    Y[td.in_range(i, V)] = X[M]
    Z[M] = Y[td.in_range(i, V)]


@td.kernel
def put_in_turn(G: td.Tensor[M, td.i32], X: td.Tensor[M], Y: td.Out[V], Z: td.Out[M]):
    for m in td.serial(M.each):
        i = G[m]
        Y[td.in_range(i, V)] = X[m]
        Z[m] = Y[td.in_range(i, V)]


def test_two_values_at_one_place() -> None:
    """Of elements stored at computed coordinates some may be the same one: what is read back is not what was stored."""
    shapes = (td.like(td.i32, 8), td.like(td.f32, 8), td.like(td.f32, 9), td.like(td.f32, 8))
    apart = [["G", "Y"], ["X", "Y"], ["Z", "Y"]]
    many, one = scattered.program(*shapes), put_in_turn.program(*shapes)
    back = next(op.result for op in many.body.walk() if isinstance(op, Load) and op.tensor.name == "Y")
    with pytest.raises(Overwritten):
        Derivation(many).then(dematerialise, back.name)
    after = edited(many, ("    %1: f32[M] = load Y[in_range(%i)]\n", ""), ("store Z[M] = %1", "store Z[M] = %0"))
    forward = (("3", None), ("4", "3"))
    verdict = validate(many, Step("dematerialise", {"value": "%1", "disjoint": apart}, forward), after)
    assert verdict.status == "rejected" and "two values at one place" in verdict.reason, verdict
    arrays = {"G": np.array([0, 0], np.int32), "X": np.array([1.0, 2.0], np.float32)}
    for program, want in ((many, [2.0, 2.0]), (after, [1.0, 2.0])):
        found = {**arrays, "Y": np.zeros(1, np.float32), "Z": np.zeros(2, np.float32)}
        evaluate(program, found, extents={"M": 2, "V": 1})
        assert found["Z"].tolist() == want
    back = next(op.result for op in one.body.walk() if isinstance(op, Load) and op.tensor.name == "Y")
    d = Derivation(one).then(dematerialise, back.name)
    assert validate(one, d.steps[0], d.program).status == "verified"
