"""Validators of steps on tiles: a value kept in a tile of its own, and a tile that is a copy of another.

Keeping a value is what `recompute` undoes, so a step that keeps one is judged as the step back. A comparison finds two
programs to mean the same, for all arguments, and says nothing of which one came first; but what the author promised of
an access (`in_range`) holds in the instances that the source has, so those that the step adds must be such (`kept`).
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Part
from treadle.checker.derivation_match import Match, wrong
from treadle.checker.scopes import flat
from treadle.ir.core import Block, Op, Program, Region, RegionArg, Sub
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Full
from treadle.ir.paths import paths
from treadle.plan.steps import Step


def backwards(before: Program, step: Step, after: Program, kind: str) -> Step:
    """The step from the program after to the program before."""
    back: dict[str, str] = {}
    for path, _ in paths(before):
        now = step.moved(path)
        if now is not None:
            if now in back:
                wrong(f"two operations are claimed to be at {now}")
            back[now] = path
    forward = tuple((path, back.get(path)) for path, _ in paths(after) if back.get(path) != path)
    args = {name: value for name, value in step.args.items() if name in ("value", "disjoint")}
    return Step(kind, args, forward)


def kept(m: Match) -> None:
    """A tile that the step back drops is filled by instances in which all that its accesses promise was promised.

    They are those of the regions around the read, one for one, if each of their arguments subscripts it, over a whole
    axis, and no `if` is around it.
    """
    name = m.step.args["value"]
    read = next((op for op in m.before.body.walk() if isinstance(op, Extract) and op.result.name == name), None)
    maker = next((op for op in m.before.body.walk() if read is not None and read.source in op.results), None)
    if read is None or not isinstance(maker, Region):
        wrong(f"{name} is not kept in a tile that a region fills")
    accesses = (op for op in maker.body.walk() if isinstance(op, Load | Store | Extract | Insert))
    if not any(sub.promised for op in accesses for sub in flat(op.subs)):
        return
    for op in _around(m.before.body, read):
        if not isinstance(op, Region):
            wrong(f"what is promised of {name} is promised under an `if`, and {maker.name} is under none")
        for arg in op.args:
            pairs = zip(read.subs, read.source.type.axes, strict=True)
            if not any(isinstance(sub, Sub) and _fills(arg, sub, axis) for sub, axis in pairs):
                wrong(f"what is promised of {name} is promised for each {arg.name}, and {maker.name} may be without")


def _around(body: Block, op: Op) -> list[Op]:
    """The operations around one, outermost first."""
    for outer in body.ops:
        for inner in outer.blocks:
            if any(x is op for x in inner.walk()):
                return [outer, *_around(inner, op)]
    return []


def aliased(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    """A parallel region that copies elements of one tile to another, each to its own place: an extract of the first."""
    x, y = xs[i], ys[j] if j < len(ys) else None
    assert isinstance(x, Region)
    if not isinstance(y, Extract) or id(y) in m.claimed or y.fill is not None or m.claims.get(id(x)) is not None:
        wrong(f"in the place of {x.name} does not stand an extract")
    if len(x.body.ops) != 2 or len(x.carried) != 1 or x.kind != "parallel" or x.merges:
        wrong(f"{x.name} does not just copy elements")
    read, put = x.body.ops
    if not isinstance(read, Extract) or not isinstance(put, Insert) or read.fill is not None:
        wrong(f"{x.name} does not just copy elements")
    if put.source is not x.carried[0] or put.value is not read.result or x.body.yields != [put.result]:
        wrong(f"{x.name} does not put what it reads into its tile")
    if read.source in (*x.carried, read.result):
        wrong(f"{x.name} reads what it fills")
    blank = m.before.definitions().get(x.inits[0].name)
    if not isinstance(blank, Full) or blank.number is not None:
        wrong(f"{x.name} updates a tile that holds something")
    _copied(m, x, read, put, y)
    m.bind(x.results, y.results)
    return i + 1, j + 1


def _copied(m: Match, x: Region, read: Extract, put: Insert, now: Extract) -> None:
    """Subscript by subscript: the instance that fills an element reads the element that the extract now reads."""
    whole: dict[str, Part] = {}
    for sub, axis in zip(put.subs, x.results[0].type.axes, strict=True):
        if not isinstance(sub, Sub):
            wrong(f"{axis.dim} is subscripted by its factors")
        if sub.part == axis:
            continue
        arg = next((a for a in x.args if _fills(a, sub, axis) and a.name not in whole), None)
        if arg is None:
            wrong(f"the instances of {x.name} do not fill {axis.dim} whole, one each")
        whole[arg.name] = axis
    if len(whole) != len(x.args):
        wrong(f"several instances of {x.name} fill one element")
    if m.value(read.source) != now.source.name or len(read.subs) != len(now.subs):
        wrong(f"{now.result.name} reads another tile than {x.name}")
    own = {s for a in x.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
    for sub, new in zip(read.subs, now.subs, strict=True):
        if not isinstance(sub, Sub) or not isinstance(new, Sub):
            wrong(f"{read.source.name} is subscripted by its factors")
        arg = next((a for a in x.args if a.name in whole and _fills(a, sub, a.domain)), None)
        if arg is not None:
            axis = whole.pop(arg.name)
            if new != Sub(part=new.part) or not m.same(axis, new.part):
                wrong(f"{now.result.name} reads {new} where {x.name} copies all of {axis}")
            continue
        exprs = [e for e in (sub.index, *((sub.part.lo, sub.part.hi) if sub.part else ())) if e is not None]
        if sub.tile is not None or any(e.symbols & own or e.functions for e in exprs) or not m.same(sub, new):
            wrong(f"{now.result.name} reads {new} where {x.name} reads {sub}")
    if whole:
        wrong(f"{x.name} copies one element to many places")
    # Axes are matched by their dimensions: those of what is read must stand where those of the copy stand.
    if [a.dim.name for a in now.result.type.axes] != [a.dim.name for a in x.results[0].type.axes]:
        wrong(f"{now.result.name} has other axes than {x.results[0].name}")


def _fills(arg: RegionArg, sub: Sub, axis: Part) -> bool:
    """Whether a subscript is an argument that goes over the whole of an axis."""
    mine = (arg.kind == "block" and sub.part == arg.part) or (arg.kind == "each" and sub.index == arg.index)
    return mine and (arg.domain.lo, arg.domain.hi) == (axis.lo, axis.hi) and arg.size is None
