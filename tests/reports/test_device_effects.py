"""What the plans for a GPU do, on the simulator; tiles between random pairs of distributions; updates inside roles."""

from __future__ import annotations

import random
from dataclasses import replace
from math import isinf
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.reports import test_loops as loops
from tests.reports import test_meaning as meaning
from tests.reports import test_process as process
from tests.reports.test_device_plans import TARGET, chained, planned, tiled
from tests.reports.ways import same

import treadle as td
from treadle import bf16, f16, f32, i32, like
from treadle.algebra.expr import const
from treadle.checker import check
from treadle.driver.mutation import study
from treadle.driver.trial import try_machine
from treadle.driver.tuning_space import space
from treadle.ir.expand import expand
from treadle.machine.parse import parse_machine
from treadle.plan.facts import contiguous
from treadle.plan.family import points
from treadle.simulate.run import run_schedules, simulate
from treadle.targets.cuda.families import families

PATTERNS = Path(__file__).resolve().parents[1] / "checker" / "patterns"
SIZES: dict[str, dict[str, int]] = {
    "u01 store and load": {"M": 2, "N": 12},
    "u04 ranges from data": {"N": 12, "K": 4},
    "u05 neighbours": {"M": 60},
    "u07 store and load of another shape": {"M": 3, "H": 8},
    "u08 a branch with a fold": {"M": 5, "N": 7},
    "u11 u82 collisions": {"N": 40, "V": 16},
    "u12 turned and not": {"M": 32, "N": 32},
    "u16 maximum of short rows": {"M": 40, "N": 11},
    "u20 scan of pairs": {"M": 2, "N": 40},
    "u24 positions with NaN": {"M": 7, "N": 3},
    "u26 ties": {"M": 13, "N": 17},
    "u46 rows of an odd length": {"M": 2, "N": 1185},
    "u50 rows of 96": {"M": 1, "N": 96},
    "u50 rows of 48, columns broadcast": {"M": 2, "N": 48},
    "u50 rows of 229": {"M": 1, "N": 229},
    "u50 rows of 192": {"M": 3, "N": 192},
    "u56 a fold along one axis": {"N": 129},
    "u58 an update written in one order": {"M": 4, "N": 4, "K": 8},
    "u58 and in the other": {"M": 4, "N": 4, "K": 8},
}


@pytest.mark.parametrize("name", SIZES)
def test_simulated_as_the_interpreter_says(name: str) -> None:
    run = try_machine(planned(name).machine(), name, SIZES[name], 0, 2)
    assert run.clean, run.text()


def test_mutants_are_refused_or_never_wrong() -> None:
    """A few of each plan; the others differ in speed, or in nothing."""
    refused = 0
    subjects = [name for name in SIZES if not name.startswith("u58")]  # long ones, with twins of their own
    for number, name in enumerate(subjects):
        machine = parse_machine(planned(name).machine(), "plan")
        found = study(machine, [SIZES[name]], 1, 2, seed=number, show=False)
        assert found.holes == [] and found.total == 2, name
        refused += sum(n for (_, outcome), n in found.counts.items() if not outcome.startswith("accepted"))
    assert refused >= len(subjects), refused


def on_the_simulator(kernel: Any, *args: Any, schedules: int = 1, **outs: Any) -> dict[str, Any]:
    """What a call stores by its plan for the GPU. *Ensures*: no finding, and every schedule stores the same bits."""
    machine = parse_machine(kernel.plan(*args, target=TARGET).machine(), "plan")
    assert check(machine).status == "verified"
    given = dict(
        zip(
            [p.name for p in kernel.__treadle_definition__.parameters.values() if p.kind != "staged"],
            args,
            strict=False,
        )
    )
    run = simulate(machine, {n: np.copy(a) for n, a in {**given, **outs}.items()})
    assert run.findings == []
    if schedules > 1:
        trials = run_schedules(machine, {**given, **outs}, schedules, 0, expected=run.outputs, same=same)
        assert trials.right, trials.failures
    return run.outputs


# U04: fewer trips than versions, in the plan for a GPU.


def test_u04_any_number_of_trips_on_a_gpu() -> None:
    kernel = loops.make_trips(td.pipeline, 4)
    x = np.arange(6 * 9, dtype=np.float32).reshape(6, 9)
    machine = parse_machine(kernel.plan(x, 3, target=TARGET).machine(), "plan")
    assert check(machine).status == "verified"
    for n in range(6):
        run = simulate(machine, {"X": x, "n": n, "Y": np.full(9, np.nan, np.float32)})
        assert run.findings == [] and np.array_equal(run.outputs["Y"], 7 + 2 * x[:n].sum(0))


# U05: the same bits by every schedule, where one barrier of some warps is seen to give others.


def test_u05_the_same_bits_by_a_hundred_schedules() -> None:
    x = np.arange(1, 65, dtype=np.float32)
    y = on_the_simulator(loops.neighbours, x, schedules=4, Y=np.full(64, np.nan, np.float32))["Y"]
    assert np.array_equal(y, loops.neighbours.reference(x))
    kept, dropped = (
        parse_machine((PATTERNS / f"barrier_of_some_warps.{w}.tdm").read_text()) for w in ("right", "wrong")
    )
    rows = np.arange(48, dtype=np.float32).reshape(1, 48)  # of 64 threads
    for text, right, schedules in ((kept, True, 100), (dropped, False, 8)):
        one = replace(text, host=replace(text.host, launches=[replace(k, grid=const(1)) for k in text.host.launches]))
        out = np.full((1, 48), np.nan, np.float32)
        trials = run_schedules(one, {"X": rows, "Y": out}, schedules, 0, expected={"Y": rows}, same=same)
        assert trials.right == right


# U11: updates in one role of several.


def test_u11_a_role_counts_like_a_plain_kernel() -> None:
    text = (PATTERNS / "updates_and_a_meeting_inside_a_role.right.tdm").read_text()
    machine = parse_machine(text)
    assert check(machine).status == "verified" and len(machine.kernels[0].roles) == 2
    machine = replace(machine, host=replace(machine.host, launches=[replace(machine.host.launches[0], grid=const(2))]))
    ids = np.random.default_rng(0).integers(0, 16, (20, 40)).astype(np.int32)
    expected = np.bincount(ids.ravel(), ids.ravel(), 16).astype(np.int32)
    run = simulate(machine, {"L": ids, "C": np.zeros(16, np.int32)})
    assert run.findings == [] and np.array_equal(run.outputs["C"], expected)
    plain = np.zeros(16, np.int64)
    loops.scattered(ids.ravel(), ids.ravel().astype(np.int64), plain)
    assert np.array_equal(plain, expected)


def test_u11_updates_of_shared_memory_are_refused_by_name() -> None:
    text = (PATTERNS / "updates_and_a_meeting_inside_a_role.right.tdm").read_text()
    shared = text.replace("  frag x i32", "  buffer S i32[16] shared align 16 @ 4128\n  frag x i32", 1)
    verdict = check(parse_machine(shared.replace("shared 4128", "shared 4192").replace("store C[x(", "store S[x(")))
    assert verdict.status == "unknown" and "an atomic store to S" in str(verdict)


# U12: a tile between random pairs of distributions.

MOVED = """tdm 1
target cuda:sm_90a
program {{
  program moved
    dim T
    dim M = 32
    dim N = 32
    tensor X: i32[T, M, N]
    tensor Y: i32[T, M, N] out
    body
      region R0 parallel (t in T each)
        %x: i32[M, N] = load X[t, M, N]
        store Y[t, M, N] = %x
}}
guard {{
  disjoint(X, Y)
  injective(Y)
}}
host {{
  launch main grid max(1, min(T, 132)) threads {threads} shared 4096
}}
kernel main {{
  buffer S i32[32, 32] shared align 16 @ 0
  frag x i32[32, 32] dist ({source})
  frag y i32[32, 32] dist ({destination})
  role all agents 1 threads {threads} {{
    tasks (p < T) over persistent enters R0(t = p) {{
      x = load X[p, $0, $1] ; %x[$0, $1]
      sync barrier.sync (id = 0, threads = {threads})
      version S ; %x[$0, $1]
      store S[$0, $1] = x
      sync barrier.sync (id = 0, threads = {threads})
      y = load S[$0, $1] ; %x[$0, $1]
      store Y[p, $0, $1] = y ; store 0 [$0, $1]
    }}
  }}
}}
"""
EXCHANGE = """      sync barrier.sync (id = 0, threads = {threads})
      version S ; %x[$0, $1]
      store S[$0, $1] = x
      sync barrier.sync (id = 0, threads = {threads})
      y = load S[$0, $1] ; %x[$0, $1]
"""


def distribution(warps: int, rng: random.Random) -> tuple[str, frozenset[tuple[str, int, int, int]]]:
    """The ten bits of a 32 x 32 tile, dealt to lanes, warps and slots; and who has which bit where."""
    bits = [(axis, 1 << bit) for axis in (0, 1) for bit in range(5)]
    rng.shuffle(bits)
    owners = ["lane"] * 5 + ["warp"] * warps + ["slot"] * (5 - warps)
    digits = [f"{owner} 2 axis {axis} stride {stride}" for owner, (axis, stride) in zip(owners, bits, strict=True)]
    places = frozenset((o, owners[:i].count(o), *bits[i]) for i, o in enumerate(owners) if o != "slot")
    return ", ".join(digits), places


def test_u12_every_pair_of_distributions_is_an_identity() -> None:
    rng, x = random.Random(12), np.arange(2048, dtype=np.int32).reshape(2, 32, 32)
    refused = 0
    for number in range(40):
        warps = number % 3
        (source, held), (destination, wanted) = distribution(warps, rng), distribution(warps, rng)
        text = MOVED.format(threads=32 << warps, source=source, destination=destination)
        machine = parse_machine(text)
        assert check(machine).status == "verified", text
        if number < 12:
            run = simulate(machine, {"X": x, "Y": np.full((2, 32, 32), -1, np.int32)})
            assert run.findings == [] and np.array_equal(run.outputs["Y"], x)
        renamed = text.replace(EXCHANGE.format(threads=32 << warps), "      y = copy x ; %x[$0, $1]\n")
        verdict = check(parse_machine(renamed))
        assert verdict.status == ("verified" if held == wanted else "rejected")
        refused += verdict.status == "rejected"
    assert refused > 30


# U15: a product of a product, in the registers of the tensor cores.


@td.kernel
def chained_in_registers(
    A: td.Tensor[loops.M, loops.K],
    B: td.Tensor[loops.K, loops.N],
    C: td.Tensor[loops.N, meaning.H],
    Y: td.Out[loops.M, meaning.H] = None,
):
    for m in td.parallel(loops.M):
        acc = td.zeros(m, meaning.H)
        for n in td.reduce(loops.N):
            first = td.dot(A[m, loops.K], B[loops.K, n], over=loops.K, dtype=f32)
            acc = td.mma(first.to(bf16), C[n, meaning.H], acc)
        Y[m, meaning.H] = acc


def test_u15_a_product_of_a_product_in_registers() -> None:
    a, b, c = (np.ones(shape, ml_dtypes.bfloat16) for shape in ((64, 128), (128, 64), (64, 128)))
    plan = chained_in_registers.plan(a, b, c, target=TARGET)
    assert plan.decisions.family == "streams"
    y = on_the_simulator(chained_in_registers, a, b, c, Y=np.zeros((64, 128), np.float32))["Y"]
    assert set(y.reshape(-1).tolist()) == {8192.0}
    assert set(chained_in_registers(a, b, c).reshape(-1).tolist()) == {8192.0}
    assert chained.plan(a, b, c, target=TARGET).check().status == "verified"


# U40: more elements than 32 bits count.


@td.kernel
def filled(Y: td.Out[loops.N, td.f16]):
    for n in td.parallel(loops.N):
        Y[n] = 1.0


@pytest.mark.parametrize("target", [TARGET, "cpu:avx512"])
def test_u40_as_many_elements_as_were_reported_are_planned(target: str) -> None:
    assert filled.plan(like(f16, 3_270_000_000), target=target).check().status == "verified"


def test_u40_arrays_beyond_32_bits_are_planned_with_offsets_that_hold_them() -> None:
    plan = process.row_sums.plan(like(f16, 3, 1_090_000_000), target=TARGET)
    assert plan.check().status == "verified" and "long long" in plan.source()


# U64: what a target has no room for is dropped before anything is compiled.


def test_u64_the_cost_model_drops_giants() -> None:
    source = expand(tiled.program(like(bf16, 64, 64), like(bf16, 64, 64)))
    facts = contiguous(source, TARGET, {"M": 4096, "N": 4096, "K": 4096})
    found = space(source, facts, families())
    kept = {p.line() for p in found.plans}
    assert len(kept) == len(found.plans) > 100
    family = next(f for f in families() if f.name == "streams")
    dropped = 0
    for point in list(points(family.axes(source, facts)))[::7]:
        giant = isinf(family.cost(source, facts, point).total)
        dropped += giant
        assert giant or all(n.total <= n.limit for n in family.needs(source, facts, point, ()))
    assert dropped > 100
    giant = {"consumers": 2, "columns": 256, "step": 256, "versions": 8}
    assert not any(p.family == "streams" and giant.items() <= p.point.items() for p in found.plans)
    assert found.plans[0].cost is not None and found.plans[0].cost.total < 1e-3


# U74: a whole tile is printed.


def test_u74_a_gpu_prints_every_element() -> None:
    plan = process.printed.plan(like(i32, 16, 128), target=TARGET)
    assert plan.check().status == "verified"
    machine = parse_machine(plan.machine(), "plan")
    x = np.arange(16 * 128, dtype=np.int32).reshape(16, 128)
    outs = {t.name: np.zeros((16, 128), t.dtype.numpy) for t in machine.program.tensors if t.out}
    run = simulate(machine, {"X": x, **outs})
    assert run.findings == []
    whole, some = run.outputs["shown"], run.outputs["shown_1"]  # which of `printed` the host shows
    assert (whole == 1).all() and np.array_equal(run.outputs["printed"], x)
    assert np.array_equal(some == 1, x % 2 == 1) and np.array_equal(run.outputs["printed_1"], x)
