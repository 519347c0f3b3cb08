"""The lowering engine: what its decisions do to the machine program."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.realise.texts import program

from treadle.algebra.expr import Fn, const, ge, minimum, of, sym
from treadle.analysis.uses import Uses
from treadle.base.names import Names
from treadle.checker import check
from treadle.dtype.formats import DType, i32, i64
from treadle.ir.guard import Guard
from treadle.ir.parser import parse_program
from treadle.ir.ranges import reach
from treadle.machine.form import Compute, Fold, Frag, Load, Loop, MachineProgram, Mma, Store, walk
from treadle.realise.blocks import realise
from treadle.realise.choices import Choices, Pack
from treadle.realise.frame import Frame, Lane, Parts, ends, surely
from treadle.realise.pull import split
from treadle.realise.universal import base_facts


def lowered(name: str, choices: Choices) -> MachineProgram:
    source = program(name)
    uses = Uses(source)
    return realise(source, choices, Guard(tuple(base_facts(source, uses, disjoint=True))), "cpu:avx512", uses)


def only_verified(machine: MachineProgram) -> MachineProgram:
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    return machine


SWEEP = Choices(cuts={"R0.m": 4}, tasks=frozenset({"R0"}), sweep={"N": 64}, vector=("N",), fuse=True)
PACKS = (
    Pack("%b", "R0", (("N", "panel", 32), ("K", "all", 1), ("N", "lane", 32)), (("N", 32),)),
    Pack("%a", "R0", (("M", "panel", 14), ("K", "all", 1), ("M", "lane", 14)), (("M", 14),)),
)


def test_a_fold_keeps_one_accumulator_a_lane_and_joins_them_once() -> None:
    machine = only_verified(lowered("softmax", SWEEP))
    folds = [s for s in machine.statements() if isinstance(s, Fold)]
    assert [f.axes for f in folds] == [(), (0,), (), (0,)]


def test_only_what_a_later_pass_reads_again_is_stored() -> None:
    # exp is dear and read twice; the difference before it is recomputed from the input.
    assert [b.name for b in lowered("softmax", SWEEP).kernels[0].buffers] == ["b_e"]
    assert lowered("layernorm", SWEEP).kernels[0].buffers == []


def test_code_that_does_not_vary_leaves_its_loop() -> None:
    machine = lowered("layernorm", SWEEP)
    inner = [s for s in machine.statements() if isinstance(s, Loop) and "n" in s.var]
    means = [s for s in machine.statements() if isinstance(s, Compute) and s.fn in ("div", "rsqrt")]
    assert means and not any(m in list(walk(loop.body)) for m in means for loop in inner)


def test_a_wrapped_region_holds_its_accumulators_in_registers() -> None:
    held = Choices(
        cuts={"R0.m": 28, "R0.n": 64, "R1.k": 1},
        tasks=frozenset({"R0"}),
        tile={"M": 14, "N": 32},
        vector=("N",),
        wrap=frozenset({"R1"}),
        packs=PACKS,
        fuse=True,
    )
    machine = only_verified(lowered("linear", held))
    assert {b.name for b in machine.kernels[0].buffers} == {"b_b", "b_a"}
    (mma,) = (s for s in machine.statements() if isinstance(s, Mma))
    # The epilogue is computed on the accumulators themselves.
    adds = [s for s in machine.statements() if isinstance(s, Compute) and s.fn == "add"]
    assert any(getattr(a, "name", None) == mma.dst for s in adds for a in s.args)


def test_blocks_of_the_contraction_keep_accumulators_in_a_buffer_in_place() -> None:
    blocked = Choices(
        cuts={"R0.m": 28, "R0.n": 64, "R1.k": 16},
        tasks=frozenset({"R0"}),
        tile={"M": 14, "N": 32},
        sweep={"N": 32},
        vector=("N",),
        packs=tuple(Pack(p.value, "R1", p.layout, p.slots) for p in PACKS),
        fuse=True,
    )
    machine = only_verified(lowered("linear", blocked))
    assert {b.name for b in machine.kernels[0].buffers} == {"b_acc", "b_b", "b_a"}


def test_contractions_over_the_same_axes_share_their_operand() -> None:
    both = Choices(
        cuts={"R0.m": 14, "R0.n": 32}, tasks=frozenset({"R0"}), tile={"M": 7, "N": 32}, vector=("N",), fuse=True
    )
    machine = only_verified(lowered("swiglu", both))
    loads = [s for s in machine.statements() if isinstance(s, Load) and s.src.name == "X"]
    assert len(loads) == 1


def test_moves_that_read_each_other_go_through_a_copy() -> None:
    machine = only_verified(lowered("swap", Choices()))
    assert [s.dst.name for s in machine.statements() if isinstance(s, Store)].count("b_a") == 2


def test_a_sum_of_coordinates_is_an_address() -> None:
    machine = only_verified(lowered("stencil", Choices(tasks=frozenset({"R0"}))))
    loads = [s for s in machine.statements() if isinstance(s, Load)]
    assert not any(isinstance(a, Fn) for s in loads for e in s.src.index for a in e.atoms())


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 9))
def test_tiles_cover(lo: int, extent: int, width: int) -> None:
    """tiles(lo, min(a, b), w) == ceil((min(a, b) - lo) / w)."""
    a, b = sym("a"), sym("b")
    count = parts(i32).tiles(const(lo), minimum(a, b), width)
    for first, second in ((lo + extent, lo + extent + 3), (lo + extent + 7, lo + extent)):
        assert count.evaluate({"a": first, "b": second}) == -(-extent // width)


@given(st.integers(0, 9), st.integers(0, 60), st.sampled_from([0, 7, 2**62, 2**63 - 1]), st.integers(1, 9))
def test_tiles_of_a_bound_of_64_bits_stay_in_64_bits(lo: int, extent: int, told: int, width: int) -> None:
    """A bound that is told at run time is compared before anything is added: no sum in between leaves 64 bits."""
    u = of(Fn("u", ()))
    count = parts(i64).tiles(const(lo), minimum(sym("a"), u), width)
    (low, high), peak = reach(count, {"a": (0, 60 + lo)}, lambda _: (0, 2**63 - 1))
    assert peak < 2**63 and high <= 60 + lo
    least = min(lo + extent, max(told, lo))
    assert max(0, count.evaluate({"a": lo + extent}, {"u": lambda: told})) == -(-(least - lo) // width)


def parts(dtype: DType) -> Parts:
    """The pieces of a kernel with one fragment `u`."""
    made = Parts(program("swap"), Names())
    made.frags.append(Frag("u", dtype, ()))
    return made


def test_ends_of_a_minimum_are_its_arguments() -> None:
    assert set(ends(minimum(sym("a"), sym("b")))) == {sym("a"), sym("b")}
    assert ends(sym("a") + 1) == (sym("a") + 1,)


@given(st.integers(0, 20), st.integers(1, 8), st.integers(1, 8))
def test_split_is_division(base: int, width: int, lanes: int) -> None:
    """split(e, w) == (e // w, e % w) for every value of the slot."""
    frame = Frame([], lanes=(Lane((program("swap").dims[0], const(0), const(9)), const(0), lanes, "@0"),))
    expr = sym("t") * width + const(base) + sym("@0")
    quotient, rest = split(expr, width, frame)
    for slot in range(lanes):
        env = {"t": 3, "@0": slot}
        assert (quotient.evaluate(env), rest.evaluate(env)) == divmod(3 * width + base + slot, width)


def test_surely_knows_what_coordinates_are() -> None:
    zero = const(0)
    assert surely(ge(sym("$0") * 2 + 1, zero)) and not surely(ge(sym("$0") - 1, zero))
    assert not surely(ge(of(Fn("x")), zero))


@pytest.mark.parametrize("order", ["unordered", "ordered", "fold_left"])
def test_dimensions_are_folded_in_the_order_in_which_they_are_named(order: str) -> None:
    source = parse_program(f"""program sums
  dim M
  dim H
  dim V
  tensor X: f32[M, H, V]
  tensor Y: f32[M] out
  body
    region R0 parallel (m in M each)
      %0: f32[H, V] = load X[m, H, V]
      %1: f32[] = reduce add %0 over V, H{"" if order == "unordered" else f" order {order}"}
      store Y[m] = %1
""")
    uses = Uses(source)
    guard = Guard(tuple(base_facts(source, uses, disjoint=True)))
    machine = only_verified(realise(source, Choices(), guard, "cpu:avx512", uses))
    loops = [s.var for s in walk(machine.kernels[0].roles[0].body) if isinstance(s, Loop)]
    assert loops[1:] == (["h", "v"] if order == "unordered" else ["v", "h"])
    # memory's order where any will do, else that of the source
