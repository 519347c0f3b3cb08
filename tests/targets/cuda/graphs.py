"""Random region graphs that CUDA families may admit, and random points of theirs: exact in every order of their sums.

Numbers are small integers and halves, so that sums have no rounding and a point must give the interpreter's bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, isinf
from random import Random
from typing import Any

from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.verifier import verify
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Family, Point

TARGET = "cuda:sm_90a"


@dataclass(frozen=True)
class Drawn:
    """A program, extents of a call, and the text it was read from."""

    program: Program
    sizes: dict[str, int]
    text: str


def read(text: str) -> Program:
    """The verified program of a text."""
    program = parse_program(text.strip("\n"))
    verify(program)
    return program


def _extent(rng: Random, most: int = 150, by: int = 1) -> int:
    """An extent near the sizes of blocks, or any."""
    near = rng.choice([8, 16, 64, 72, 128, 136]) + rng.choice([-1, 0, 0, 1])
    found = rng.choice([near, rng.randint(1, most)])
    return max(by, found // by * by)


def _tail(rng: Random, value: str, axes: str, loads: list[str], body: list[str]) -> str:
    """Some exact pointwise operations behind `value`; gives the last one."""
    here = value
    for number in range(rng.randint(0, 3)):
        kind = rng.choice(["half", "row", "column", "floor", "residual", "negated"])
        name = f"%e{number}"
        first, second = axes.split(", ")
        match kind:
            case "half":
                body += [f"%h{number}: f32[] = full 0.5", f"{name}: f32[{axes}] = mul {here}, %h{number}"]
            case "row" | "column":
                axis = first if kind == "row" else second
                loads.append(f"tensor E{number}: f32[{axis.upper()}]")
                body += [f"%l{number}: f32[{axis}] = load E{number}[{axis}]"]
                body += [f"{name}: f32[{axes}] = add {here}, %l{number}"]
            case "residual":
                loads.append(f"tensor E{number}: bf16[{axes.upper()}]")
                body += [f"%l{number}: bf16[{axes}] = load E{number}[{axes}]"]
                body += [f"%c{number}: f32[{axes}] = cast %l{number}", f"{name}: f32[{axes}] = add {here}, %c{number}"]
            case "negated":
                body += [f"{name}: f32[{axes}] = neg {here}"]
            case _:
                body += [f"%z{number}: f32[] = full 0.0", f"{name}: f32[{axes}] = maximum {here}, %z{number}"]
        here = name
    return here


def product(rng: Random) -> Drawn:
    """One or two contractions of the same rows, stored in any order, with a tail; whole or block by block."""
    dtype = rng.choice(["bf16", "bf16", "f16", "f32"])
    two, looped, out = rng.random() < 0.3, rng.random() < 0.7, rng.choice(["f32", "bf16"])
    left = rng.choice(["m, DEEP", "DEEP, m"])
    right = rng.choice(["DEEP, n", "n, DEEP"])
    deep = "k" if looped else "K"
    tensors = [f"tensor X: {dtype}[{left.replace('DEEP', 'K').upper()}]"]
    names = ["W", "U"][: 2 if two else 1]
    tensors += [f"tensor {n}: {dtype}[{right.replace('DEEP', 'K').upper()}]" for n in names]
    lines = [f"%x: {dtype}[{left.replace('DEEP', deep)}] = load X[{left.replace('DEEP', deep)}]"]
    starts = [f"%z_{n}: f32[m, n] = full 0.0" for n in names]
    for n in names:
        axes = right.replace("DEEP", deep)
        lines += [f"%w_{n}: {dtype}[{axes}] = load {n}[{axes}]"]
        into = f"%a_{n}" if looped else f"%z_{n}"
        lines += [f"%s_{n}: f32[m, n] = mma %x, %w_{n}, {into}"]
    body = list(starts)
    if looped:
        carry = ", ".join(f"%a_{n}: f32[m, n] = %z_{n}" for n in names)
        results = ", ".join(f"%r_{n}" for n in names)
        body.append(f"region R1 reduce (k in K) carry ({carry}) -> ({results})")
        body += ["  " + line for line in lines]
        body.append("  yield " + ", ".join(f"%s_{n}" for n in names))
        values = [f"%r_{n}" for n in names]
    else:
        body += lines
        values = [f"%s_{n}" for n in names]
    if two:
        body.append(f"%both: f32[m, n] = mul {values[0]}, {values[1]}")
    last = _tail(rng, "%both" if two else values[0], "m, n", tensors, body)
    if out != "f32":
        body.append(f"%out: {out}[m, n] = cast {last}")
        last = "%out"
    tensors.append(f"tensor Y: {out}[M, N] out")
    text = _program(
        "product", ["dim M", "dim N", "dim K"], tensors, "m in M, n in N", [*body, f"store Y[m, n] = {last}"]
    )
    by = rng.choice([1, 8, 8])
    sizes = {"M": _extent(rng, by=by), "N": _extent(rng, by=by), "K": _extent(rng, by=by)}
    return Drawn(read(text), sizes, text)


def changed(rng: Random) -> Drawn:
    """A contraction of which one operand is made element by element: widened, scaled by its row, rectified."""
    dtype, out, looped = rng.choice(["bf16", "i8", "f8e4m3"]), rng.choice(["f32", "bf16"]), rng.random() < 0.7
    own, other = rng.choice([("m", "n"), ("n", "m")])
    deep = "k" if looped else "K"
    places = [rng.choice([f"{a}, DEEP", f"DEEP, {a}"]) for a in (own, other)]
    axes = [p.replace("DEEP", deep) for p in places]
    shapes = [p.replace("DEEP", "K").upper() for p in places]
    tensors = [f"tensor W: {dtype}[{shapes[0]}]", f"tensor X: bf16[{shapes[1]}]"]
    lines = [f"%w: {dtype}[{axes[0]}] = load W[{axes[0]}]", f"%x: bf16[{axes[1]}] = load X[{axes[1]}]"]
    lines.append(f"%f: f32[{axes[0]}] = cast %w")
    here = "%f"
    if rng.random() < 0.5:
        tensors.append(f"tensor E: f32[{own.upper()}]")
        lines += [f"%e: f32[{own}] = load E[{own}]", f"%g: f32[{axes[0]}] = mul {here}, %e"]
        here = "%g"
    if rng.random() < 0.5:
        lines += ["%none: f32[] = full 0.0", f"%r: f32[{axes[0]}] = maximum {here}, %none"]
        here = "%r"
    lines.append(f"%h: bf16[{axes[0]}] = cast {here}")
    a, b = ("%h", "%x") if own == "m" else ("%x", "%h")
    body = ["%z: f32[m, n] = full 0.0"]
    if looped:
        body.append("region R1 reduce (k in K) carry (%a: f32[m, n] = %z) -> (%s)")
        body += ["  " + line for line in (*lines, f"%n: f32[m, n] = mma {a}, {b}, %a", "yield %n")]
    else:
        body += [*lines, f"%s: f32[m, n] = mma {a}, {b}, %z"]
    last = _tail(rng, "%s", "m, n", tensors, body)
    if out != "f32":
        body.append(f"%out: {out}[m, n] = cast {last}")
        last = "%out"
    tensors.append(f"tensor Y: {out}[M, N] out")
    text = _program(
        "changed", ["dim M", "dim N", "dim K"], tensors, "m in M, n in N", [*body, f"store Y[m, n] = {last}"]
    )
    by = rng.choice([1, 16])
    return Drawn(read(text), {d: _extent(rng, by=by) for d in "MNK"}, text)


def chain(rng: Random) -> Drawn:
    """Two contractions in a row, the second's operand made in registers: a fold over keys, some of them masked."""
    ahead = rng.choice(["", "causal", "near"])
    wide = rng.choice([64, 128])
    peak = rng.random() < 0.5
    keys = {
        "": "S",
        "causal": "S[0 : min(S, q.stop)]",
        "near": "S[max(0, 64*((q.start - 69) // 64)) : max(0, 64*((q.start - 69) // 64), min(S, q.stop))]",
    }[ahead]
    body = ["%x: bf16[q, D] = load X[b, q, D]", "%o0: f32[q, D] = full 0.0", "%m0: f32[q] = full 0.0"]
    carry = "%m: f32[q] = %m0, %o: f32[q, D] = %o0"
    body.append(f"region R1 pipeline (k in {keys}) carry ({carry}) -> (%mf, %of)")
    inner = ["%y: bf16[k, D] = load Y[b, k, D]", "%v: bf16[k, D] = load Z[b, k, D]", "%s0: f32[q, k] = full 0.0"]
    inner += ["%s: f32[q, k] = mma %x, %y, %s0"]
    score = "%s"
    if ahead:
        # A peak is at least 0, and zero is what a masked score adds: how many are masked is the cut's own affair.
        inner += ["%qi: i64[q] = coords q", "%ki: i64[k] = coords k", "%live: bool[q, k] = ge %qi, %ki"]
        live = "%live"
        if ahead == "near":
            inner += ["%far: i64[] = full 69", "%first: i64[q] = sub %qi, %far", "%in: bool[q, k] = le %first, %ki"]
            inner += ["%both: bool[q, k] = and %live, %in"]
            live = "%both"
        inner += ["%none: f32[] = full 0.0", f"%t: f32[q, k] = where {live}, %s, %none"]
        score = "%t"
    inner += [f"%top: f32[q] = reduce max {score} over S", "%mn: f32[q] = maximum %m, %top"]
    inner += ["%h: f32[] = full 0.25", f"%p: f32[q, k] = mul {score}, %h", "%pb: bf16[q, k] = cast %p"]
    inner += ["%on: f32[q, D] = mma %pb, %v, %o", f"yield {'%mn' if peak else '%m'}, %on"]
    body += ["  " + line for line in inner]
    body += ["%r: f32[q, D] = add %of, %mf", "%rb: bf16[q, D] = cast %r", "store O[b, q, D] = %rb"]
    tensors = [f"tensor {n}: bf16[B, {d}, D]" for n, d in (("X", "Q"), ("Y", "S"), ("Z", "S"))]
    tensors.append("tensor O: bf16[B, Q, D] out")
    text = _program("chain", ["dim B", "dim Q", "dim S", f"dim D = {wide}"], tensors, "b in B each, q in Q", body)
    queries = _extent(rng, 200)
    keys_at = queries if ahead else _extent(rng, 200)
    return Drawn(read(text), {"B": rng.randint(1, 2), "Q": queries, "S": keys_at, "D": wide}, text)


def window(rng: Random) -> Drawn:
    """Products of windows: taps as single coordinates of the ordered region, shifted rows, zeros outside."""
    channels, columns, pad = rng.choice([64, 128]), rng.choice([64, 128]), rng.choice([0, 1, 2])
    gone = 2 * pad + 1
    taps = rng.randint(1, 3)
    dims = [
        "dim B",
        "dim H",
        "dim V",
        f"dim P = {channels}",
        "dim KH",
        "dim KV",
        f"dim Q = {columns}",
        "dim Ho",
        "dim Vo",
    ]
    dims += [f"let Ho = H - KH + {gone}", f"let Vo = V - KV + {gone}"]
    dims += [f"require Ho + KH - H - {gone} == 0", f"require Vo + KV - V - {gone} == 0"]
    tensors = ["tensor X: bf16[B, H, V, P]", "tensor W: bf16[KH, KV, P, Q]"]
    body = ["%z: f32[x, Q] = full 0.0"]
    body.append("region R1 reduce (r in KH each, s in KV each) carry (%a: f32[x, Q] = %z) -> (%af)")
    inner = ["%c: i64[x] = coords x", f"%i: i64[] = index s - {pad}", "%d: i64[x] = add %c, %i"]
    inner += ["%f: bf16[] = full 0.0", f"%w: bf16[x, P] = load X[b, r + y - {pad}, %d, P] fill %f"]
    inner += ["%u: bf16[P, Q] = load W[r, s, P, Q]", "%n: f32[x, Q] = mma %w, %u, %a", "yield %n"]
    body += ["  " + line for line in inner]
    body += ["%o: bf16[x, Q] = cast %af", "store Y[b, y, x, Q] = %o"]
    tensors.append("tensor Y: bf16[B, Ho, Vo, Q] out")
    text = _program("window", dims, tensors, "b in B each, y in Ho each, x in Vo", body)
    high, wide = rng.randint(taps, 4), rng.randint(taps, 80)
    out = gone - taps
    sizes = {"B": 1, "H": high, "V": wide, "P": channels, "Q": columns, "KH": taps, "KV": taps}
    return Drawn(read(text), sizes | {"Ho": high + out, "Vo": wide + out}, text)


def rows(rng: Random) -> Drawn:
    """Folds along rows, one after another, and what is made of them."""
    dtype, out = rng.choice(["f32", "bf16"]), rng.choice(["f32", "bf16"])
    body = [f"%x0: {dtype}[m, N] = load X[m, N]"]
    value = "%x0"
    if dtype != "f32":
        body.append("%x: f32[m, N] = cast %x0")
        value = "%x"
    tensors = [f"tensor X: {dtype}[M, N]"]
    for number in range(rng.randint(1, 3)):
        monoid = rng.choice(["max", "add", "min"])
        body.append(f"%r{number}: f32[m] = reduce {monoid} {value} over N")
        fn = rng.choice(["sub", "add"]) if monoid != "add" else "maximum"
        body.append(f"%v{number}: f32[m, N] = {fn} {value}, %r{number}")
        value = f"%v{number}"
    if rng.random() < 0.5:
        tensors.append("tensor G: f32[N]")
        body += ["%g: f32[N] = load G[N]", f"%w: f32[m, N] = add {value}, %g"]
        value = "%w"
    if out != "f32":
        body.append(f"%o: {out}[m, N] = cast {value}")
        value = "%o"
    tensors.append(f"tensor Y: {out}[M, N] out")
    text = _program("rows", ["dim M", "dim N"], tensors, "m in M", [*body, f"store Y[m, N] = {value}"])
    return Drawn(read(text), {"M": rng.randint(1, 9), "N": rng.choice([_extent(rng), rng.randint(1, 700)])}, text)


def _program(name: str, dims: list[str], tensors: list[str], args: str, body: list[str]) -> str:
    lines = [f"program {name}", *(f"  {d}" for d in dims), *(f"  {t}" for t in tensors), "  body"]
    lines += [f"    region R0 parallel ({args})", *(f"      {line}" for line in body)]
    return "\n".join(lines)


GRAPHS = {
    "streams": (product, product, chain, window, changed),
    "blocks": (product,),
    "warps": (product,),
    "rows": (rows,),
    "universal": (product, rows),
}
"""The graphs from which points of a family are drawn."""

ALONE = 12
"""The longest extent of a draw for the universal plan, which the simulator runs one element at a time."""


def known(drawn: Drawn, most: int) -> CallFacts:
    """The facts of contiguous arrays at multiples of `most` bytes: rows are aligned as their pitch is."""
    plain = contiguous(drawn.program, TARGET, drawn.sizes)
    aligned: dict[str, int] = {}
    for tensor in drawn.program.tensors:
        pitches = [int(d.extent.evaluate(drawn.sizes)) * tensor.dtype.bits // 8 for d in tensor.dims[-1:]]
        aligned[tensor.name] = gcd(most, *(pitches if len(tensor.dims) > 1 else []))
    return CallFacts(plain.target, plain.extents, plain.unit, aligned)


def draw(family: Family[Any], rng: Random, tries: int = 200) -> tuple[Drawn, CallFacts, Point]:
    """A graph that a family admits, and one of its points that exceeds nothing."""
    for _ in range(tries):
        drawn = rng.choice(GRAPHS[family.name])(rng)
        if family.name == "universal":
            drawn = replace(drawn, sizes={n: min(extent, ALONE) for n, extent in drawn.sizes.items()})
        facts = known(drawn, 4 if rng.random() < 0.2 else 256)
        if family.admits(drawn.program, facts):
            continue
        axes = family.axes(drawn.program, facts)
        for _ in range(40):
            point = {a.name: rng.choice(a.values) for a in axes}
            if not isinf(family.cost(drawn.program, facts, point).total):
                return drawn, facts, point
    raise AssertionError(f"no point of {family.name} in {tries} graphs")
