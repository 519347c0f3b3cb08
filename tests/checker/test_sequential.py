"""Machine programs of the sequential and CPU slice: right ones are verified, each wrong twin is refused for its
reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import machines
import machines_more as more
import pytest
from machines import S0, ref
from twins import Change, change, claims, delete, repeat, swap

from treadle.algebra.expr import const, ge, lt, minimum, sym
from treadle.checker import check
from treadle.dtype.formats import bf16
from treadle.ir.guard import Guard
from treadle.machine import form as f

RIGHT: dict[str, Callable[[], f.MachineProgram]] = {
    "rows_scalar": machines.rows_scalar,
    "rows_vector": machines.rows_vector,
    "rows_vector_8": lambda: machines.rows_vector(8),
    "gemm_scalar": machines.gemm_scalar,
    "gemm_packed": machines.gemm_packed,
    "gemm_packed_bf16": lambda: machines.gemm_packed(bf16),
    **{make.__name__: make for make in more.ALL},
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_verified_for_all_sizes(name: str) -> None:
    verdict = check(RIGHT[name]())
    assert verdict.status == "verified", str(verdict)
    assert verdict.seconds < 5.0  # the bar is 0.5 s on a quiet machine; this only catches a blow-up


M, N, K = sym("M"), sym("N"), sym("K")
tm, tn, k0 = sym("tm"), sym("tn"), sym("k0")


def index(at: int, e: object) -> Callable[[f.MemRef], f.MemRef]:
    """A memory operand with one index shifted by `e`."""
    return lambda old: f.MemRef(old.name, (*old.index[:at], old.index[at] + e, *old.index[at + 1 :]), old.version)


def no_guard(kind: str) -> Change:
    def apply(program: f.MachineProgram) -> None:
        program.guard = Guard(tuple(x for x in program.guard.facts if type(x).__name__ != kind))

    return apply


def enters(region: str, *binds: tuple[str, tuple[object, ...]]) -> tuple[f.Enter, ...]:
    return (f.Enter(region, tuple(binds)),)


def invariant(**fields: object) -> Callable[[tuple[f.Invariant, ...]], tuple[f.Invariant, ...]]:
    return lambda old: (f.Invariant(old[0].holder, claims(**fields)(old[0].claim), old[0].fill), *old[1:])


def rebuffer(name: str, shape: tuple[int, ...]) -> Change:
    def apply(program: f.MachineProgram) -> None:
        kernel = program.kernels[0]
        kernel.buffers = [
            f.Buffer(b.name, b.dtype, tuple(map(const, shape)), b.place) if b.name == name else b
            for b in kernel.buffers
        ]

    return apply


# (program, what is wrong, change, status, judgement, what the reason must say)
Case = tuple[str, str, Change, str, str, str]
WRONG: list[Case] = [
    # ---- rows, scalar
    ("rows_scalar", "missing store", delete(f.Store, "Y"), "rejected", "J1", "never stored"),
    (
        "rows_scalar",
        "store of another row",
        change(f.Store, "Y", dst=index(0, 1)),
        "rejected",
        "J1",
        "outside its axis",
    ),
    (
        "rows_scalar",
        "store of another column",
        change(f.Store, "Y", dst=index(1, -1)),
        "rejected",
        "J1",
        "outside its axis",
    ),
    ("rows_scalar", "load beyond the row", change(f.Load, "x1", src=index(1, 1)), "rejected", "J1", "outside its axis"),
    ("rows_scalar", "one contribution too few", change(f.Loop, "i", hi=N - 1), "rejected", "J1", ""),
    ("rows_scalar", "one contribution too many", change(f.Loop, "i", hi=N + 1), "rejected", "J1", "outside its axis"),
    ("rows_scalar", "first contribution left out", change(f.Loop, "j", lo=const(1)), "rejected", "J1", "entry"),
    (
        "rows_scalar",
        "operands of sub swapped",
        change(f.Compute, "d2", args=lambda a: a[::-1]),
        "rejected",
        "J1",
        "sub|holds",
    ),
    ("rows_scalar", "operands of div swapped", change(f.Compute, "y3", args=lambda a: a[::-1]), "rejected", "J1", ""),
    ("rows_scalar", "another function", change(f.Compute, "e2", fn="exp2"), "rejected", "J1", "exp2"),
    (
        "rows_scalar",
        "wrong start of the maximum",
        change(f.Compute, "top", args=(0.0,), claim=None),
        "rejected",
        "J1",
        "entry",
    ),
    ("rows_scalar", "wrong start of the sum", change(f.Compute, "sum", args=(1.0,)), "rejected", "J1", "entry"),
    ("rows_scalar", "missing start", delete(f.Compute, "sum"), "rejected", "J1", "not assigned"),
    ("rows_scalar", "contribution folded twice", repeat(f.Compute, "sum", 1), "rejected", "J1", "twice"),
    (
        "rows_scalar",
        "fold with another monoid",
        change(f.Fold, "top", monoid="min"),
        "rejected",
        "J1",
        "folds with max",
    ),
    ("rows_scalar", "no invariant", change(f.Loop, "j", invariants=()), "rejected", "J1", "assigned in the loop"),
    ("rows_scalar", "row left out", change(f.Tasks, "m", counts=(M - 1,)), "rejected", "J1", "R0.m"),
    (
        "rows_scalar",
        "rows counted twice",
        change(f.Tasks, "m", enters=enters("R0", ("m", (sym("m") // 2,)))),
        "rejected",
        "J1",
        "R0.m",
    ),
    ("rows_scalar", "loads may alias stores", no_guard("Disjoint"), "unknown", "J2", "order"),
    ("rows_scalar", "output may fold onto itself", no_guard("Injective"), "unknown", "J7", "stored"),
    # ---- rows, vector
    ("rows_vector", "unmasked load", change(f.Load, "x1", where=()), "rejected", "J1", "outside its axis"),
    ("rows_vector", "unmasked store", change(f.Store, "Y", where=()), "rejected", "J1", "outside its axis"),
    (
        "rows_vector",
        "padding of the maximum is zero",
        change(f.Load, "x1", fill=0.0),
        "rejected",
        "J1",
        "does not leave alone",
    ),
    (
        "rows_vector",
        "padding of the sum is +0.0",
        change(f.Compute, "e2", fill=0.0),
        "rejected",
        "J1",
        "does not leave alone",
    ),
    (
        "rows_vector",
        "padding of the sum is exp(0 - max)",
        change(f.Compute, "e2", where=(), fill="undef"),
        "rejected",
        "J1",
        "folded slot",
    ),
    (
        "rows_vector",
        "shifted tail",
        change(f.Load, "x2", where=lambda w: (lt(sym("j") + S0 + 1, N),)),
        "rejected",
        "J1",
        "",
    ),
    ("rows_vector", "lanes overlap", change(f.Loop, "j", step=const(15)), "rejected", "J1", ""),
    ("rows_vector", "lanes leave a gap", change(f.Loop, "i", step=const(17)), "rejected", "J1", ""),
    ("rows_vector", "sum of lanes twice", change(f.Fold, "sum", acc=ref("sum")), "rejected", "J1", ""),
    ("rows_vector", "partial sum stored as whole", delete(f.Fold, "sum"), "rejected", "J1", "not assigned"),
    ("rows_vector", "row buffer not written", delete(f.Store, "row"), "rejected", "J1", "undefined at the start"),
    ("rows_vector", "row buffer read before written", swap(f.Load, "x2"), "rejected", "J1", ""),
    (
        "rows_vector",
        "row buffer read shifted",
        change(f.Load, "e3", src=index(0, 1)),
        "rejected",
        "J4",
        "outside its axis",
    ),
    ("rows_vector", "row buffer too small", rebuffer("row", (100,)), "rejected", "J4", "outside its axis"),
    ("rows_vector", "no version", delete(f.Version, "row"), "unknown", "J1", "no version"),
    ("rows_vector", "tail never stored", change(f.Loop, "k", hi=N - 15), "rejected", "J1", "never stored"),
    ("rows_vector", "vectors stored twice", change(f.Loop, "k", step=const(8)), "rejected", "J1", "twice"),
    # ---- contraction, scalar
    (
        "gemm_scalar",
        "swapped indices of an operand",
        change(f.Load, "w", src=lambda s: f.MemRef(s.name, s.index[::-1])),
        "rejected",
        "J1",
        "outside its axis",
    ),
    ("gemm_scalar", "chain of another step", change(f.Loop, "k0", step=const(2)), "rejected", "J1", "R1.k"),
    ("gemm_scalar", "first step left out", change(f.Loop, "k0", lo=const(1)), "rejected", "J1", "R1.k"),
    ("gemm_scalar", "last step left out", change(f.Loop, "k0", hi=K - 1), "rejected", "J1", "R1.k"),
    ("gemm_scalar", "missing start", change(f.Compute, "acc", args=(1.0,)), "rejected", "J1", "1.0"),
    (
        "gemm_scalar",
        "accumulator from an older step",
        change(f.Compute, "acc", 1, args=lambda a: (a[0], a[1], ref("c"))),
        "rejected",
        "J1",
        "accumulator",
    ),
    (
        "gemm_scalar",
        "factors of one operand",
        change(f.Compute, "acc", 1, args=lambda a: (a[0], a[0], a[2])),
        "rejected",
        "J1",
        "factor",
    ),
    (
        "gemm_scalar",
        "bias of another column",
        change(f.Load, "c", src=lambda s: f.MemRef("bias", (const(0),)), claim=None),
        "rejected",
        "J1|J4",
        "",
    ),
    (
        "gemm_scalar",
        "result without bias",
        change(f.Compute, "y", args=lambda a: (ref("acc"), a[1])),
        "rejected",
        "J1",
        "",
    ),
    ("gemm_scalar", "another floor", change(f.Compute, "y", args=lambda a: (a[0], 1.0)), "rejected", "J1", ""),
    ("gemm_scalar", "minimum for maximum", change(f.Compute, "y", fn="minimum"), "rejected", "J1", "minimum"),
    (
        "gemm_scalar",
        "no contraction allowed",
        lambda p: p.program.numerics.update(contract=False),
        "rejected",
        "J6",
        "contraction",
    ),
    (
        "gemm_scalar",
        "stored transposed",
        change(f.Store, "Y", dst=lambda d: f.MemRef("Y", d.index[::-1])),
        "rejected",
        "J1",
        "",
    ),
    ("gemm_scalar", "other instance", change(f.Store, "Y", claim=f.StoreClaim(0, (tn, tm))), "rejected", "J1", ""),
    ("gemm_scalar", "columns left out", change(f.Tasks, "tm", counts=(M, N - 1)), "rejected", "J1", "R0.n"),
    (
        "gemm_scalar",
        "order of a fold by tasks",
        change(f.Tasks, "tm", enters=lambda e: (*e, f.Enter("R1", (("k", (tm, tm + 1)),)))),
        "rejected",
        "J2",
        "unordered",
    ),
    # ---- contraction, packed
    ("gemm_packed", "panel not written", delete(f.Store, "bW"), "rejected", "J1", "new version in the loop"),
    (
        "gemm_packed",
        "panel of another column",
        change(f.Load, "b", src=lambda s: f.MemRef("bW", (const(0), s.index[1], s.index[2]))),
        "rejected",
        "J1",
        "",
    ),
    ("gemm_packed", "panel shifted in depth", change(f.Load, "b", src=index(1, 1)), "rejected", "J1|J4", ""),
    ("gemm_packed", "panel filled with ones", change(f.Load, "w0", fill=1.0), "rejected", "J1", "1.0"),
    (
        "gemm_packed",
        "unmasked load of the operand",
        change(f.Load, "w0", where=()),
        "rejected",
        "J1",
        "outside its axis",
    ),
    (
        "gemm_packed",
        "chunk a step too long",
        change(f.Loop, "kk", hi=minimum(const(256), K - k0) + 1),
        "rejected",
        "J1|J4",
        "",
    ),
    (
        "gemm_packed",
        "chunk a step too short",
        change(f.Loop, "kk", hi=minimum(const(256), K - k0) - 1),
        "rejected",
        "J1",
        "",
    ),
    (
        "gemm_packed",
        "gap between chunks",
        change(f.Loop, "k0", enters=enters("R1", ("k", (k0, minimum(k0 + 255, K))))),
        "rejected",
        "J1",
        "R1.k",
    ),
    (
        "gemm_packed",
        "overlapping chunks",
        change(f.Loop, "k0", enters=enters("R1", ("k", (k0, minimum(k0 + 257, K))))),
        "rejected",
        "J1",
        "R1.k",
    ),
    (
        "gemm_packed",
        "gap between tasks",
        change(f.Tasks, "tm", enters=lambda e: enters("R0", ("m", (48 * tm, minimum(48 * tm + 47, M))), e[0].binds[1])),
        "rejected",
        "J1",
        "R0.m",
    ),
    (
        "gemm_packed",
        "one task too few",
        change(f.Tasks, "tm", counts=lambda c: (M // 48, c[1])),
        "rejected",
        "J1",
        "R0.m",
    ),
    ("gemm_packed", "state not kept", delete(f.Store, "C", 1), "rejected", "J1", ""),
    ("gemm_packed", "state not started", delete(f.Store, "C", 0), "rejected", "J1", "undefined at the start"),
    ("gemm_packed", "state of another block", change(f.Load, "acc", src=index(1, 1)), "rejected", "J1|J4", ""),
    ("gemm_packed", "state read after its new version", delete(f.Version, "C", 1), "rejected", "J1", ""),
    ("gemm_packed", "product added twice", repeat(f.Mma, "acc"), "rejected", "J1", "twice"),
    ("gemm_packed", "blocks of rows overlap", change(f.Loop, "i", step=const(5)), "rejected", "J1|J4", ""),
    (
        "gemm_packed",
        "rows of a block left out",
        change(f.Loop, "i", step=const(7)),
        "rejected",
        "J1",
        "at the end of the body",
    ),
    ("gemm_packed", "block larger than the buffer", rebuffer("C", (47, 128)), "rejected", "J4", "outside its axis"),
    ("gemm_packed", "output columns twice", change(f.Loop, "q", step=const(8)), "rejected", "J4", "outside its axis"),
    ("gemm_packed", "output columns left out", change(f.Loop, "q", step=const(32)), "rejected", "J1", "never"),
    (
        "gemm_packed",
        "one operand twice",
        change(f.Mma, "acc", b=ref("a0", S0)),
        "rejected",
        "J1",
        "factor",
    ),
    ("gemm_packed", "an atom of another target", change(f.Mma, "acc", atom="amx.tdpbf16ps"), "unknown", "J1", "atom"),
    # ---- a workspace between two forks
    ("two_regions", "read in the first fork", lambda p: _move_first_task_read(p), "rejected", "J1|J2", ""),
    (
        "two_regions",
        "forks in the wrong order",
        lambda p: p.kernels[0].roles[0].body.append(p.kernels[0].roles[0].body.pop(1)),
        "rejected",
        "J1",
        "before it is written",
    ),
    ("two_regions", "no version of the workspace", delete(f.Version, "T"), "unknown", "J1", "no version"),
    ("two_regions", "version inside the tasks", lambda p: _version_inside(p), "unknown", "J2", "inside tasks"),
    ("two_regions", "workspace not written", delete(f.Store, "T"), "rejected", "J1", "before it is written"),
    (
        "two_regions",
        "unmasked store to the workspace",
        change(f.Store, "T", where=lambda w: (w[0],)),
        "rejected",
        "J4",
        "outside its axis",
    ),
    ("two_regions", "tasks write one another's part", lambda p: _one_more_variable(p), "rejected", "J2", "two tasks"),
    ("two_regions", "scaled by three", change(f.Compute, "d", args=lambda a: (a[0], 3.0)), "rejected", "J1", "3.0"),
    ("two_regions", "other column subtracted", change(f.Load, "first", src=index(1, 1)), "rejected", "J1|J4", ""),
    (
        "two_regions",
        "output not transposed",
        change(f.Store, "Y", dst=lambda d: f.MemRef("Y", d.index[::-1])),
        "rejected",
        "J1",
        "",
    ),
    # ---- recurrences and pipelines
    ("recurrence", "state not advanced", delete(f.Compute, "s", 1), "rejected", "J1", "end of the body"),
    ("recurrence", "state advanced before it is used", swap(f.Compute, "p"), "rejected", "J1", ""),
    ("recurrence", "no start", delete(f.Compute, "s"), "rejected", "J1", "entry"),
    ("recurrence", "order by tasks", lambda p: _serial_as_tasks(p), "rejected", "J2", "unordered"),
    (
        "recurrence",
        "backwards",
        change(f.Loop, "t0", enters=enters("R1", ("t", (sym("T") - 1 - sym("t0"),)))),
        "rejected",
        "J1",
        "R1.t",
    ),
    ("recurrence", "other lane's scale", change(f.Compute, "p", args=lambda a: (a[0], ref("x"))), "rejected", "J1", ""),
    ("pipelined", "next block not taken over", delete(f.Compute, "x"), "rejected", "J1", "end of the body"),
    ("pipelined", "next block loaded too late", swap(f.Compute, "s", 1), "verified", "", ""),
    (
        "pipelined",
        "block of the same iteration",
        change(f.Load, "next", src=index(0, -8), claim=None),
        "rejected",
        "J1",
        "",
    ),
    (
        "pipelined",
        "blocks of another size",
        change(f.Loop, "k0", enters=enters("R0", ("k", (k0, minimum(k0 + 8, K - 1))))),
        "rejected",
        "J1",
        "R0.k",
    ),
    # ---- gathers, loaded bounds
    ("gather", "rows of another token", change(f.Load, "e", src=index(0, 1)), "rejected|unknown", "J1", ""),
    (
        "gather",
        "gather beyond the tokens",
        change(f.Load, "e", where=lambda w: w[1:]),
        "rejected|unknown",
        "J1",
        "outside|masked|no fragment",
    ),
    ("gather", "indices not masked", change(f.Load, "i", where=()), "rejected", "J1", "outside its axis"),
    ("ragged", "unclamped start", change(f.Let, "a", expr=sym("tg")), "rejected|unknown", "J1", ""),
    ("ragged", "from the start of the tensor", change(f.Loop, "i", lo=const(0)), "rejected|unknown", "J1", ""),
    (
        "ragged",
        "bounds of the next group",
        change(f.Load, "hi", src=index(0, 1), claim=None),
        "rejected",
        "J1",
        "outside its axis",
    ),
    # ---- conditions
    ("conditional", "store without its condition", lambda p: _lift_store(p), "rejected", "J1", ""),
    ("conditional", "ways exchanged", lambda p: _exchange(p), "rejected", "J1", ""),
    ("conditional", "another condition", change(f.Compute, "c", fn="ge"), "rejected", "J1", "ge"),
    ("conditional", "value of one way only", delete(f.Compute, "w", 1), "rejected", "J1", ""),
    (
        "masked_rows",
        "diagonal left out",
        change(f.Load, "x", where=lambda w: (w[0], lt(sym("j") + S0, sym("t")))),
        "rejected",
        "J1",
        "",
    ),
    (
        "masked_rows",
        "diagonal too wide",
        change(f.Load, "x", where=lambda w: (w[0], ge(sym("t") + 1, sym("j") + S0))),
        "rejected",
        "J1",
        "",
    ),
    # ---- tiles
    ("amx_gemm", "not configured", delete(f.Sync, "amx.config"), "rejected", "J4", "not configured"),
    ("amx_gemm", "not released", delete(f.Sync, "amx.release"), "rejected", "J4", "configured"),
    (
        "amx_gemm",
        "pairs not interleaved",
        change(f.Mma, "acc", b=lambda b: f.FragRef("tb", (b.coords[0], b.coords[1], const(0)))),
        "rejected",
        "J1",
        "",
    ),
    (
        "amx_gemm",
        "pairs exchanged",
        change(f.Store, "pb", dst=lambda d: f.MemRef("pb", (d.index[0], d.index[1], 1 - d.index[2]))),
        "rejected",
        "J1",
        "",
    ),
    ("amx_gemm", "rows of padding not zero", change(f.Load, "xa", fill=1.0), "rejected", "J1", "1.0"),
    ("amx_gemm", "depth not a multiple", change(f.Mma, "acc", contracted=(31,)), "rejected", "J1", "multiple"),
    (
        "amx_gemm",
        "subnormals kept",
        lambda p: p.program.numerics.update(mma_subnormals="keep"),
        "rejected",
        "J6",
        "subnormal",
    ),
    ("amx_gemm", "tiles on a target without", lambda p: setattr(p, "target", "cpu:avx512"), "rejected", "J4", "tiles"),
    # ---- main part and tail
    ("split_rows", "tail missing", delete(f.Loop, "j"), "rejected", "J1", "never stored"),
    ("split_rows", "tail from the start", change(f.Loop, "j", lo=1000 * sym("t")), "rejected", "J1", "two statements"),
    ("split_rows", "tail starts one later", change(f.Loop, "j", lo=lambda e: e + 1), "rejected", "J1", "never stored"),
    ("split_rows", "main part one vector longer", change(f.Loop, "i", hi=lambda e: e + 1), "rejected", "J1", ""),
    ("in_place", "stored before loaded", lambda p: _store_first(p), "rejected", "J1|J2", ""),
    (
        "in_place",
        "neighbour loaded",
        change(
            f.Load,
            "x",
            src=index(0, 1),
            claim=claims(coords=lambda c: (c[0] + 1,)),
            where=(lt(16 * sym("t") + S0 + 1, M),),
        ),
        "rejected|unknown",
        "J1|J2",
        "",
    ),
]


def _task_bodies(program: f.MachineProgram) -> list[f.Tasks]:
    return [s for s in program.statements() if isinstance(s, f.Tasks)]


def _move_first_task_read(program: f.MachineProgram) -> None:
    first, second = _task_bodies(program)
    read = second.body[0].body[1]
    first.body.append(f.Load(dst="first", src=f.MemRef("T", (const(0), const(0)))))
    del read


def _one_more_variable(program: f.MachineProgram) -> None:
    tasks = _task_bodies(program)[0]
    tasks.vars, tasks.counts = (*tasks.vars, "again"), (*tasks.counts, const(2))


def _version_inside(program: f.MachineProgram) -> None:
    body = program.kernels[0].roles[0].body
    version = body.pop(0)
    body[0].body.insert(0, version)


def _serial_as_tasks(program: f.MachineProgram) -> None:
    tasks = _task_bodies(program)[0]
    loop = tasks.body[2]
    assert isinstance(loop, f.Loop)
    tasks.body[2] = f.Tasks(vars=(loop.var,), counts=(loop.hi,), over="workers", enters=loop.enters, body=loop.body)


def _lift_store(program: f.MachineProgram) -> None:
    tasks = _task_bodies(program)[0]
    branch = next(s for s in tasks.body if isinstance(s, f.If))
    store = branch.then.pop()
    tasks.body.append(store)


def _exchange(program: f.MachineProgram) -> None:
    branch = next(s for s in program.statements() if isinstance(s, f.If))
    branch.then, branch.orelse = branch.orelse, branch.then


def _store_first(program: f.MachineProgram) -> None:
    body = _task_bodies(program)[0].body
    body.insert(0, body.pop())


@pytest.mark.parametrize("case", WRONG, ids=[f"{c[0]}: {c[1]}" for c in WRONG])
def test_wrong_twins_are_refused_for_their_reason(case: Case) -> None:
    name, _, apply, status, judgement, reason = case
    program = RIGHT[name]()
    apply(program)
    verdict = check(program)
    assert verdict.status in status.split("|"), str(verdict)
    if status == "verified":
        return
    assert verdict.judgement in judgement.split("|"), str(verdict)
    assert re.search(reason, verdict.reason), str(verdict)
    if verdict.status == "unknown":
        assert verdict.missing, str(verdict)


def test_a_rejection_carries_a_case() -> None:
    program = RIGHT["rows_vector"]()
    change(f.Load, "x1", where=())(program)
    verdict = check(program)
    assert verdict.counterexample is not None
    case = verdict.counterexample
    i, lane, n = (case[x] for x in ("i", "$0", "N"))
    assert 0 <= lane < 16 and i < n and i + lane >= n  # a lane beyond the row of a loop that runs


def test_names_are_used_once() -> None:
    program = RIGHT["rows_scalar"]()
    change(f.Loop, "j", var="i")(program)
    verdict = check(program)
    assert (verdict.status, verdict.judgement) == ("rejected", "J4")
