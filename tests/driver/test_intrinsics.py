"""Operations of the user's own: opaque to the judge, the author's text in compiled code, the pattern interpreted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.marks import assembled

import treadle as td
from treadle import f16, f32, i32, i64
from treadle.base.errors import TreadleError, UserError
from treadle.checker import check
from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.simulate.run import simulate
from treadle.toolchain.nvrtc import compile_cuda

M, N, K = td.dims("M N K")


def clipped(x):
    return td.minimum(td.maximum(x, 0.0), 6.0)


def blend(x, y, n):
    return td.where(n > 2, x * 2.0 + y, y)


CLIPPED = {
    "cpu": """define internal float @clipped(float %x) alwaysinline {
  %a = call float @llvm.maximum.f32(float %x, float 0.0)
  %b = call float @llvm.minimum.f32(float %a, float 6.0)
  ret float %b
}
declare float @llvm.maximum.f32(float, float)
declare float @llvm.minimum.f32(float, float)
""",
    "cuda": """__device__ __forceinline__ float clipped(float x) {
  float y;
  asm("min.NaN.f32 %0, %1, 0f40C00000;" : "=f"(y) : "f"(x));
  return fmaxf(y, 0.0f);
}""",
}
BLEND = """define internal float @blend(float %x, float %y, i32 %n) alwaysinline {
  %c = icmp sgt i32 %n, 2
  %p = fmul float %x, 2.0
  %s = fadd float %p, %y
  %r = select i1 %c, float %s, float %y
  ret float %r
}"""
clip = td.intrinsic(clipped, emit=CLIPPED)
mix = td.intrinsic(blend, numerics="2ulp", emit={"cpu": BLEND})
lie = td.intrinsic(clipped, emit={"cpu": CLIPPED["cpu"].replace("float 6.0", "float 7.0")})


@td.kernel
def rows(X: td.Tensor[M, N], Y: td.Out[M, N] = None, S: td.Out[M] = None):
    for m in td.parallel(M):
        y = clip(X[m, N])
        Y[m, N] = y
        S[m] = clip(X[m, N].sum(N)) + y.max(N)


@td.kernel
def product(A: td.Tensor[M, K], B: td.Tensor[K, N], W: td.Tensor[N, i32], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        Y[m, n] = mix(clip(acc), 1.0, W[n]) + mix(acc, acc, W[n])


@td.kernel
def lying(X: td.Tensor[N], Y: td.Out[N] = None):
    Y[N] = lie(X[N])


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


def test_compiled_code_calls_the_text() -> None:
    x = numbers(0, 5, 37)
    a, b, w = numbers(1, 7, 5), numbers(2, 5, 19), np.arange(19, dtype=np.int32) % 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, s = rows(x)
        z = product(a, b, w)
        assert lying(x[0]).max() == min(x[0].max(), 7)  # what the text says, not the pattern: it is trusted
    np.testing.assert_equal(y, np.clip(x, 0, 6))
    np.testing.assert_equal((y, s), rows.reference(x))
    np.testing.assert_equal(z, product.reference(a, b, w))
    for kernel, trusted in ((rows, ["intrinsic user_clipped (exact)"]),
                            (product, ["intrinsic user_blend (2ulp)", "intrinsic user_clipped (exact)"])):  # fmt: skip
        (variant,) = kernel.variants
        assert variant.verdict["status"] == "verified"
        assert [p for p in variant.verdict["permissions"] if p.startswith("intrinsic")] == trusted
    assert rows.sanitize(x) == []


def test_programs_and_machine_programs_as_text() -> None:
    x = numbers(3, 4, 21)
    plan = rows.plan(x)
    program = parse_program(plan.source_program())
    assert print_program(program) == plan.source_program() and [m.name for m in program.intrinsics] == ["user_clipped"]
    verify(expand(program))
    machine = parse_machine(plan.machine())
    assert print_machine(machine) == plan.machine() and check(machine).status == "verified"
    run = simulate(machine, {"X": x, "Y": np.empty_like(x), "S": np.empty(4, np.float32)}, seed=1)
    assert run.clean
    np.testing.assert_equal((run.outputs["Y"], run.outputs["S"]), rows.reference(x))
    head, kernel = plan.machine().split("kernel main", 1)
    wrong = parse_machine(f"{head}kernel main{kernel.replace('= user_clipped ', '= abs ')}")
    assert check(wrong).status == "rejected"


def test_one_named_like_a_function_of_ours() -> None:
    """An emitter would put its text in the place of that function, and the judge knows functions by name."""
    X = numbers(1, 5, 7)
    text = rows.plan(X, target="cpu:avx2").machine().replace("user_clipped", "abs")
    verdict = check(parse_machine(text))
    assert verdict.status == "rejected" and "an intrinsic named abs" in verdict.reason, verdict


def test_operands_that_differ_are_refused_by_the_judge() -> None:
    plan = product.plan(numbers(1, 3, 4), numbers(2, 4, 5), np.zeros(5, np.int32))
    line = next(
        x for x in plan.machine().split("kernel main")[1].splitlines() if "= user_blend " in x and ", 1.0, " in x
    )
    first, second, _ = line.split("= user_blend ")[1].split(", ", 2)
    swapped = line.replace(f"{first}, {second}", f"{second}, {first}", 1)
    assert swapped != line
    assert check(parse_machine(plan.machine().replace(line, swapped))).status != "verified"


@assembled
def test_cuda_text_is_assembled() -> None:
    plan = rows.plan(td.like(f32, 64, 256), target="cuda:sm_90a")
    assert plan.check().status == "verified" and "clipped(" in plan.source()
    assert plan.record.code and compile_cuda is not None
    assert plan.source().count("float clipped(float x)") == 1


def test_a_target_without_a_text() -> None:
    a, b, w = td.like(f32, 4, 4), td.like(f32, 4, 4), td.like(i32, 4)
    with pytest.raises(TreadleError) as caught:
        product.plan(a, b, w, target="cuda:sm_90a")
    assert caught.value.code == "limit/intrinsic" and "td.intrinsic(blend)" in str(caught.value)


def test_a_call_on_a_target_without_a_text() -> None:
    """The author means the text: the interpreter's pattern would be another program."""
    once = td.intrinsic(clipped, emit={"cuda": CLIPPED["cuda"]})

    @td.kernel
    def on_gpus(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = once(X[N])

    x = numbers(0, 9)
    for call in (on_gpus, on_gpus.bind):
        with pytest.raises(TreadleError, match=r"(?s)limit/intrinsic.*Y\[N\] = once\(X\[N\]\).*texts for cuda"):
            call(x)
    np.testing.assert_equal(on_gpus.reference(x), np.clip(x, 0, 6))


BROKEN = {
    "a number of the wrong type": ("%y = fmul float %x, 3", "<string>:2:"),
    "a name that nothing defines": ("%y = fadd float %x, %z", "use of undefined value"),
    "two types": ("%y = sitofp i32 %x to float", "defined with type 'float'"),
    "inline assembly": ('%y = call float asm "nop", "=x,x"(float %x)', "inline assembly"),
    "a function that is nowhere": (
        "%y = call float @no_such_function_anywhere(float %x)",
        "@no_such_function_anywhere",
    ),
    "an intrinsic that LLVM lacks": ("%y = call float @llvm.no.such(float %x)", "@llvm.no.such"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_text_that_the_compiler_refuses_is_the_authors_mistake(case: str) -> None:
    def thrice(x):
        return x * 3.0

    line, words = BROKEN[case]
    declared = f"declare float @{words[1:]}(float)\n" if words.startswith("@") else ""
    text = f"define internal float @thrice(float %x) {{\n  {line}\n  ret float %y\n}}\n{declared}"
    own = td.intrinsic(thrice, emit={"cpu": text})

    @td.kernel
    def tripled(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = own(X[N])

    with pytest.raises(UserError, match=r"(?s)plan/intrinsic-text.*Y\[N\] = own\(X\[N\]\)") as caught:
        tripled(numbers(0, 9))
    assert words in caught.value.found and "td.intrinsic(thrice)" in caught.value.expected


def test_texts_that_only_clash_with_one_another() -> None:
    def first(x):
        return x

    def second(x):
        return x

    one = "define internal float @{0}(float %x) {{ ret float %x }}\n"
    a, b = (td.intrinsic(f, emit={"cpu": one.format("same") + one.format(f.__name__)}) for f in (first, second))

    @td.kernel
    def both(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = a(X[N]) + b(X[N])

    with pytest.raises(UserError, match=r"(?s)plan/intrinsic-text.*beside the others.*same"):
        both(numbers(0, 9))


@assembled
@pytest.mark.parametrize("body, words", [("return 3.0f * x", "expected a"), ('asm("foo.f32;"); return x;', "foo")])
def test_a_cuda_text_that_its_compiler_refuses(body: str, words: str) -> None:
    def thrice(x):
        return x * 3.0

    own = td.intrinsic(thrice, emit={"cuda": f"__device__ float thrice(float x) {{ {body} }}"})

    @td.kernel
    def tripled(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = own(X[N])

    with pytest.raises(UserError, match=r"(?s)plan/intrinsic-text.*Y\[N\] = own\(X\[N\]\)") as caught:
        tripled.plan(td.like(f32, 64), target="cuda:sm_90a").record
    assert words in caught.value.found


@pytest.mark.parametrize(
    "text, found",
    [
        ("__device__ double clipped(double x) { return x; }", "double clipped(double)"),
        ("__device__ __forceinline__ int clipped(const float x) { return x; }", "int clipped(float)"),
        ("static __device__ float clipped(float x, unsigned n) { return x; }", "float clipped(float, unsigned int)"),
        (
            "/* float clipped(float x) { */ __device__ float clipped(long int x) { return x; }",
            "float clipped(long long)",
        ),
    ],
)
def test_cuda_texts_of_other_types_are_refused_at_the_call(text: str, found: str) -> None:
    """C++ converts without a word."""
    own = td.intrinsic(clipped, emit={"cuda": text})

    @td.kernel
    def clips(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = own(X[N])

    with pytest.raises(UserError, match=r"(?s)capture/argument.*Y\[N\] = own\(X\[N\]\)") as caught:
        clips.plan(td.like(f32, 64), target="cuda:sm_90a")
    assert f"{found} in the text for cuda" in caught.value.found
    assert caught.value.expected.startswith("float clipped(float)")


def test_a_wrong_declaration_names_its_line() -> None:
    with pytest.raises(UserError, match=r'td.intrinsic\(clipped, convergence="warp"\)'):
        td.intrinsic(clipped, convergence="warp")


def wrong_cases():
    def loads(x):
        return x + HIDDEN[0]  # noqa: F821 (the mistake that is looked for)

    def halves(x):
        return x.to(f16)

    @td.kernel
    def outer(X: td.Tensor[N], Y: td.Out[N] = None, *, own=None):
        Y[N] = own(X[N])

    @td.kernel
    def narrow(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = clip(X[N].to(f16))

    @td.kernel
    def no_tile(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = X[N] + clip(1.0)

    @td.kernel
    def wide(X: td.Tensor[N], Y: td.Out[N, i64] = None):
        Y[N] = mix(X[N], X[N], 10**30).to(i64)

    x = numbers(0, 4)
    text = {"cpu": "define internal float @{0}(float %x) {{ ret float %x }}"}

    def named(fn):
        return td.intrinsic(fn, emit={t: s.format(fn.__name__) for t, s in text.items()})

    return {
        "a result of f16": ("capture/argument", lambda: outer(x, own=named(halves))),
        "an operand of f16": ("capture/argument", lambda: narrow(x)),
        "no tile": ("capture/argument", lambda: no_tile(x)),
        "without a function clipped": ("capture/argument", lambda: td.intrinsic(clipped, emit={"cpu": "ret"})),
        "which is none of": ("capture/argument", lambda: td.intrinsic(clipped, emit={"metal": "clipped"})),
        "texts call it by its name": ("capture/argument", lambda: td.intrinsic(lambda x: x, emit={"cpu": "x"})),
        "who arrives together": (
            "capture/argument",
            lambda: td.intrinsic(clipped, convergence="subgroup", emit={"cpu": "clipped"}),
        ),
        "reading HIDDEN": ("capture/unbound", lambda: outer(x, own=named(loads))),
    }


@pytest.mark.parametrize("found", list(wrong_cases()))
def test_contracts_that_cannot_be_stated(found: str) -> None:
    code, call = wrong_cases()[found]
    with pytest.raises(TreadleError) as caught:
        call()
    assert caught.value.code == code and found in str(caught.value), str(caught.value)


TRIPLE = (
    "define internal {0} {cc}@triple({1} noundef %x, {2} %n) alwaysinline {{\n  %y = {3} {0} %x, %x\n  ret {0} %y\n}}"
)


@pytest.mark.parametrize(
    "types",
    [
        ("double", "double", "i64", "fadd", ""),
        ("float", "float", "i32", "fadd", ""),
        ("i32", "i32", "i64", "add", ""),
        ("float", "float", "i64, i64", "fadd", ""),
        ("float", "float", "i64", "fadd", "fastcc "),
        ("float", "float", "i64", "fadd", "; "),
    ],
)
def test_texts_of_other_types_are_refused_at_the_call(types: tuple[str, str, str, str, str]) -> None:
    """LLVM takes such a call without a word, and reads another register."""

    def triple(x, n):
        return x + x

    first, rest, last, op, cc = types
    texts = {"cpu": TRIPLE.format(first, rest, last, op, cc="" if cc == "; " else cc)}
    texts["cpu"] = ("; " if cc == "; " else "") + texts["cpu"]
    twice = td.intrinsic(triple, emit=texts)

    @td.kernel
    def doubled(X: td.Tensor[M], L: td.Tensor[M, i64], Y: td.Out[M] = None):
        Y[M] = twice(X[M], L[M])

    with pytest.raises(
        TreadleError,
        match=r"(?s)mistake while computing triple.*twice\(X\[M\], L\[M\]\).*define float @triple\(float, i64\)",
    ):
        doubled.plan(numbers(1, 5), np.zeros(5, np.int64))


def test_the_right_types_are_found_among_attributes() -> None:
    def triple(x, n):
        return x + x

    text = "; define double @triple(double)\n" + TRIPLE.format("float", "float", "i64", "fadd", cc="")
    text = text.replace("noundef", "nofpclass(nan inf) noundef")
    twice = td.intrinsic(triple, emit={"cpu": text})

    @td.kernel
    def doubled(X: td.Tensor[M], L: td.Tensor[M, i64], Y: td.Out[M] = None):
        Y[M] = twice(X[M], L[M])

    X = numbers(1, 5)
    plan = doubled.plan(X, np.zeros(5, np.int64))
    assert np.array_equal(doubled(X, np.zeros(5, np.int64)), X + X)
    wrong = plan.machine().replace("define internal float @triple", "define internal double @triple")
    verdict = check(parse_machine(wrong))
    assert verdict.status == "rejected" and "define double @triple" in str(verdict)
