"""What a text says beside its statements, and what numbers are: names in guards, tags, numbers of a dtype, infinities,
sums that wrap, names of arguments, comparisons of words. Each wrong text was verified once; its right twin is."""

from __future__ import annotations

import pytest
from machine_text import judged, refused, text, verified

from treadle.checker import check
from treadle.machine.parse import parse_machine
from treadle.machine.verify import form_problems

NEGATION = """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m] = load X[m]
        %y: f32[m] = neg %x
        store Y[m] = %y
"""
APART = "  injective(Y)\n  disjoint(X, Y)"
STEP = """
  frag x f32[{shape}]
  frag y f32[{shape}]
  role worker agents 1 threads 1 {{
    tasks (t < {count}) over workers enters R0(m = {block}) {{
      x = load X[{at}] ; %x[{at}]
      y = neg x ; %y[{at}]
      store Y[{at}] = y ; store 0 [{at}]
    }}
  }}
"""
LONE = STEP.format(shape="", count="M", block="t .. t + 1", at="t")
FOURS = STEP.format(shape="4", count="M // 4", block="4*t .. 4*t + 4", at="4*t + $0")


def lone(guard: str = "", kernel: str = LONE) -> str:
    return text("cpu:avx512", NEGATION, APART + guard, "grid 1 threads 1", kernel)


# what the guard says, and what is read where that is believed
GUARDS = {
    "a variable of the tasks": ("\n  t == 0", LONE.replace("X[t]", "X[0]"), "t == 0 is about t"),
    "a coordinate of a slot": (
        "\n  M % 4 == 0\n  $0 == 0",
        FOURS.replace("X[4*t + $0]", "X[4*t]"),
        "$0 == 0 is about $0",
    ),
    "a bound of a block": ("\n  m.start == 0", LONE, "m.start == 0 is about m.start"),
    "no name of anything": ("\n  z >= 1", LONE, "is about z"),
    "a multiple of nothing": ("\n  align(X) >= 0", LONE, "align(X) >= 0 asks for a multiple of no positive number"),
    "a pitch of nothing": ("\n  pitch(X, 0) % 0 == 0", LONE, "asks for a multiple of no positive number"),
}


@pytest.mark.parametrize("which", GUARDS)
def test_a_guard_speaks_of_what_a_call_tests(which: str) -> None:
    guard, kernel, why = GUARDS[which]
    machine = parse_machine(lone(guard, kernel))
    assert any(why in p.text for p in form_problems(machine)), form_problems(machine)
    assert check(machine).status == "rejected"


def test_a_guard_about_extents_is_one() -> None:
    verified(lone("\n  M % 4 == 0\n  M >= 8", FOURS))


BOOLS = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor Y: bool[M] out
    body
      region R0 parallel (m in M)
        %y: bool[m] = full false
        store Y[m] = %y
""",
    "  injective(Y)",
    "grid 1 threads 1",
    """
  frag y bool[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      y = copy false ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
""",
)


@pytest.mark.parametrize("number", ["0.5", "-0.25", "2", "-1", "nan", "inf"])
def test_a_number_is_one_of_its_dtype(number: str) -> None:
    """Machines take 0.5 for true: it is not 0."""
    verified(BOOLS)
    verified(BOOLS.replace("copy false", "copy 0"))
    machine = parse_machine(BOOLS.replace("copy false", f"copy {number}"))
    assert [p.text for p in form_problems(machine)] == [f"the number {number.lstrip('+')} as a bool"]
    assert check(machine).status != "verified"


@pytest.mark.parametrize("number", ["3.5", "128", "-129"])
def test_a_number_of_bytes_too(number: str) -> None:
    bytes_ = BOOLS.replace("bool", "i8").replace("full false", "full 3").replace("copy false", "copy 3")
    verified(bytes_)
    machine = parse_machine(bytes_.replace("copy 3", f"copy {number}"))
    assert len(form_problems(machine)) == 1 and check(machine).status != "verified"


def functions(accuracy: str, tag: str = "", ledger: str = "") -> str:
    program = NEGATION.replace("neg", "exp").replace(
        "    dim M\n", f'    numerics functions = "{accuracy}"\n    dim M\n'
    )
    kernel = LONE.replace("neg x", f"exp x{tag}").replace("threads 1", "threads 128").replace("workers", "threads")
    return text("cuda:sm_90a", program, APART, "grid 4 threads 128", kernel, ledger)


@pytest.mark.parametrize("accuracy", ["exact", "2ulp"])
def test_a_statement_hands_functions_to_the_hardware_only_by_leave(accuracy: str) -> None:
    verified(functions(accuracy))
    verified(functions("fast", " tags (approx)"))
    refused(functions(accuracy), "exp x", "exp x tags (approx)", "J6", "rejected")
    assert judged(functions("fast", " tags (approx)")).permissions == ("functions",)


def test_a_tag_is_a_known_word() -> None:
    machine = parse_machine(lone().replace("neg x", "neg x tags (quick)"))
    assert any("no tag quick" in p.text for p in form_problems(machine)) and check(machine).status == "rejected"


PRODUCT = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim K
    tensor A: f16[M, K]
    tensor B: f16[K]
    tensor Y: f32[M] out
    tensor Z: f32[M, K] out
    body
      region R0 parallel (m in M)
        %a: f16[m, K] = load A[m, K]
        %b: f16[K] = load B[K]
        %z: f32[m] = full 0.0
        %c: f32[m] = mma %a, %b, %z
        store Y[m] = %c
        %w: f32[m, K] = cast %a
        store Z[m, K] = %w
""",
    "".join(f"  disjoint({x}, {y})\n" for x, y in ("AY", "BY", "AZ", "BZ", "YZ")) + "  injective(Y)\n  injective(Z)",
    "grid 1 threads 1",
    """
  frag a f16[]
  frag b f16[]
  frag w f32[]
  frag v f32[]
  frag s f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      s = copy 0.0 ; %z[t]
      loop k = 0 .. K step 1 {
        invariant s ; %c[t] over (n) : 0 <= n, n < k
        a = load A[t, k] ; %a[t, k]
        b = load B[k] ; %b[k]
        w = cast a ; %w[t, k]
        v = cast b
        store Z[t, k] = w ; store 1 [t, k]
        s = mma fma w[], v[] onto s ; %c[t] over (n) : 0 <= n, n < k + 1
      }
      store Y[t] = s ; store 0 [t]
    }
  }
""",
)


def test_a_conversion_that_saturates_is_no_widening() -> None:
    """Of an infinity it makes a number."""
    verified(PRODUCT)
    wrong = PRODUCT.replace("cast %a", "cast %a saturate").replace("w = cast a", "w = cast.saturate a")
    assert judged(wrong).status != "verified"


WRAPPED = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor Y: i64[M] out
    body
      region R0 parallel (m in M)
        %k: i64[m] = full 4611686018427387904
        %s: i64[m] = add %k, %k
        %z: i64[m] = full 0
        %c: bool[m] = gt %s, %z
        %a: i64[m] = full 1
        %b: i64[m] = full 2
        %y: i64[m] = where %c, %a, %b
        store Y[m] = %y
""",
    "  injective(Y)",
    "grid 1 threads 1",
    """
  frag y i64[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      y = copy 1 ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
""",
)


@pytest.mark.parametrize("fn", ["add", "mul"])
def test_sums_that_wrap_are_no_index_arithmetic(fn: str) -> None:
    """2^62 + 2^62 is negative: the first value is never stored."""
    assert judged(WRAPPED.replace("add %k", f"{fn} %k")).status != "verified"
    less = {"add": "2305843009213693952", "mul": "2147483648"}[fn]
    verified(WRAPPED.replace("4611686018427387904", less).replace("add %k", f"{fn} %k"))


def test_what_coordinates_may_reach_is_no_index_arithmetic_either() -> None:
    """For coordinates below 2^31: 3 * 10^9 times one of them fits, times itself it need not."""
    coordinate = "%i: i64[m] = coords m\n        "
    fits = WRAPPED.replace("%s: i64[m] = add %k, %k", f"{coordinate}%s: i64[m] = mul %i, %k")
    fits = fits.replace("full 0", "full -1").replace("4611686018427387904", "3000000000")
    verified(fits)
    squared = "%q: i64[m] = mul %i, %k\n        %s: i64[m] = mul %q, %q"
    assert judged(fits.replace("%s: i64[m] = mul %i, %k", squared)).status != "verified"


SIBLINGS = text(
    "cpu:avx512",
    """
  program p
    dim N
    dim L
    dim K
    tensor I: i64[N]
    tensor J: f32[L]
    tensor Y: f32[N] out
    tensor W: f32[N] out
    body
      region R0 parallel (m in N[0 : min(K, N)])
        %i: i64[m] = load I[m]
        %j: f32[m] = load J[in_range(%i)]
        store Y[m] = %j
      region R1 parallel (n in N)
        %z: f32[n] = full 0.0
        store W[n] = %z
""",
    "".join(f"  disjoint({x}, {y})\n" for x, y in ("IY", "IW", "JY", "JW", "YW"))
    + "  injective(Y)\n  injective(W)\n  K >= 1\n  N >= 1",
    "grid 1 threads 1",
    """
  frag i i64[]
  frag j f32[]
  frag z f32[]
  role worker agents 1 threads 1 {
    loop b = 0 .. min(K, N) step 1 {
      i = load I[b] ; %i[b]
      j = load J[i()] ; %j[b]
    }
    tasks (t < min(K, N)) over workers enters R0(m = t .. t + 1) {
      i = load I[t] ; %i[t]
      j = load J[i()] ; %j[t]
      store Y[t] = j ; store 0 [t]
    }
    tasks (u < N) over workers enters R1(n = u .. u + 1) {
      z = copy 0.0 ; %z[u]
      store W[u] = z ; store 1 [u]
    }
  }
""",
)


def test_arguments_of_two_regions_are_told_apart_by_name() -> None:
    """Of a promise for `min(K, N)` rows nothing follows for N, whatever a sibling's argument is called."""
    verified(SIBLINGS)
    refused(SIBLINGS, "b = 0 .. min(K, N)", "b = 0 .. N", "J1")
    named = SIBLINGS.replace("(n in N)", "(m in N)").replace("[n]", "[m]").replace("R1(n =", "R1(m =")
    verdict = refused(named, "b = 0 .. min(K, N)", "b = 0 .. N", "J1", "unknown")
    assert verdict.reason == "two regions have an argument m.start"


COMPARED = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor X: i32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: i32[m] = load X[m]
        %k: i32[m] = full 5
        %c: bool[m] = gt %x, %k
        %o: f32[m] = full 1.0
        %p: f32[m] = full 2.0
        %y: f32[m] = where %c, %o, %p
        store Y[m] = %y
""",
    APART,
    "grid 1 threads 1",
    """
  frag x i32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      x = load X[t] ; %x[t]
      y = copy 1.0 where x() >= 6 fill 2.0 ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
""",
)


def test_unsigned_words_are_compared_as_such() -> None:
    """Machines compare indices as signed words: of 2^63 one says that it is less than 6."""
    verified(COMPARED)
    verified(COMPARED.replace("i32", "u32"))
    assert judged(COMPARED.replace("i32", "u64")).status == "unknown"


CLAMPED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor I: i64[M]
    tensor J: f32[N]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %i: i64[m] = load I[m]
        %k: i64[m] = full 3
        %c: i64[m] = minimum %i, %k
        %j: f32[m] = load J[in_range(%c)]
        store Y[m] = %j
""",
    "  injective(Y)\n  disjoint(I, Y)\n  disjoint(J, Y)",
    "grid 1 threads 1",
    """
  frag x i64[]
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      x = load I[t] ; %i[t]
      y = load J[min(x(), 3)] ; %j[t]
      store Y[t] = y ; store 0 [t]
    }
  }
""",
)


@pytest.mark.parametrize(("fn", "index"), [("minimum", "min(x(), 3)"), ("floordiv", "x() // 3"), ("mod", "x() % 3")])
def test_unsigned_words_are_clamped_and_divided_as_such(fn: str, index: str) -> None:
    """As signed words the largest are negative: their minimum with 3 is no 3."""
    right = CLAMPED.replace("minimum", fn).replace("min(x(), 3)", index)
    verified(right)
    verified(right.replace("i64", "u32"))
    assert judged(right.replace("i64", "u64")).status != "verified"


TWO_NESTS = text(
    "cuda:sm_90a",
    NEGATION.replace("tensor Y", "tensor B: bool[M]\n    tensor Y")
    .replace("%y: f32[m] = neg %x", "%b: bool[m] = load B[m]")
    .replace("= %y", "= %x"),
    APART + "\n  disjoint(B, Y)",
    "grid 4 threads 128",
    """
  frag x f32[] dist (lane 32 axis - stride 0, warp 4 axis - stride 0)
  frag b bool[] dist (lane 32 axis - stride 0, warp 4 axis - stride 0)
  frag y f32[] dist (lane 32 axis - stride 0, warp 4 axis - stride 0)
  role worker agents 1 threads 128 {
    tasks (t < M) over persistent {
      x = load X[t] ; %x[t]
      b = load B[t] ; %b[t]
      store W[t] = x ; %x[t]
    }
    tasks (u < M) over persistent enters R0(m = u .. u + 1) {
      y = load W[M - u - 1]
      store Y[u] = y ; store 0 [u]
    }
  }
""",
    host="  buffer W f32[M] workspace align 64\n",
)


def test_nests_of_one_launch_are_rejected_only_where_workgroups_surely_meet() -> None:
    """In reverse order the same workgroup has both; what a run-time mask stores nobody knows."""
    assert judged(TWO_NESTS).status == "rejected"
    reverse = refused(TWO_NESTS, "(u < M) over persistent", "(u < M) over persistent raster (reverse)", "J2")
    masked = refused(TWO_NESTS, "store W[t] = x", "store W[t] = x mask b", "J2")
    assert reverse.status == masked.status == "unknown"
