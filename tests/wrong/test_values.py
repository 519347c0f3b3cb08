"""dtypes, functions of the language and their arguments: what no value can be, or would silently lose bits."""

from __future__ import annotations

from tests.wrong.pairs import Pairs

import treadle.lang.api as td
from treadle.dtype.formats import bf16, f16, f32, i8, i32, i64, u64

M, N, K = td.dims("M N K")
F8 = td.dims("F8", 8)
pairs = Pairs()


# ---- dtypes


@pairs.wrong("dtype/no-common")
def unsigned_with_signed(A: td.Tensor[M, u64], B: td.Tensor[M, i64], Y: td.Out[M, i64]):
    for m in td.parallel(M):
        Y[m] = A[m] + B[m]  # wrong


@pairs.right
def unsigned_converted(A: td.Tensor[M, u64], B: td.Tensor[M, i64], Y: td.Out[M, i64]):
    for m in td.parallel(M):
        Y[m] = A[m].to(i64) + B[m]


@pairs.wrong("dtype/no-arithmetic")
def sum_of_small_floats(A: td.Tensor[M, td.f8e4m3], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = A[m] * 2  # wrong


@pairs.right
def sum_of_widened_floats(A: td.Tensor[M, td.f8e4m3], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = A[m].to(f32) * 2


@pairs.wrong("dtype/no-arithmetic")
def largest_of_small_floats(A: td.Tensor[M, N, td.f8e5m2], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = A[m, N].max(N)  # wrong


@pairs.right
def largest_of_widened_floats(A: td.Tensor[M, N, td.f8e5m2], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = A[m, N].to(f32).max(N)


@pairs.wrong("dtype/number-out-of-range")
def number_beyond_a_byte(A: td.Tensor[M, i8], Y: td.Out[M, i8]):
    for m in td.parallel(M):
        Y[m] = A[m] + 200  # wrong


@pairs.right
def number_in_a_wider_type(A: td.Tensor[M, i8], Y: td.Out[M, i8]):
    for m in td.parallel(M):
        Y[m] = (A[m].to(i32) + 200).to(i8)


@pairs.wrong("dtype/operand")
def bits_of_floats(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = A[m] & 1  # wrong


@pairs.right
def bits_of_bits(A: td.Tensor[M, f32], Y: td.Out[M, i32]):
    for m in td.parallel(M):
        Y[m] = A[m].bitcast(i32) & 1


@pairs.wrong("dtype/operand")
def bits_of_another_width(A: td.Tensor[M, f32], Y: td.Out[M, i64]):
    for m in td.parallel(M):
        Y[m] = A[m].bitcast(i64)  # wrong


@pairs.right
def bits_of_the_same_width(A: td.Tensor[M, f32], Y: td.Out[M, i64]):
    for m in td.parallel(M):
        Y[m] = A[m].bitcast(i32).to(i64)


@pairs.wrong("dtype/operand")
def choice_by_a_float(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = td.where(A[m], 1.0, 0.0)  # wrong


@pairs.right
def choice_by_a_bool(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = td.where(A[m] != 0, 1.0, 0.0)


@pairs.wrong("dtype/operand")
def inverted_float(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = ~A[m]  # wrong


@pairs.right
def inverted_bool(A: td.Tensor[M, f32], Y: td.Out[M, td.bool_]):
    for m in td.parallel(M):
        Y[m] = ~(A[m] > 0)


@pairs.wrong("dtype/operand")
def condition_of_a_store(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = 0.0
        Y.set_at(m, A[m], where=A[m])  # wrong


@pairs.right
def bool_condition_of_a_store(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        Y[m] = 0.0
        Y.set_at(m, A[m], where=A[m] > 0)


@pairs.wrong("dtype/operand")
def check_of_a_float(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        td.check(A[m], "zero")  # wrong
        Y[m] = A[m]


@pairs.right
def check_of_a_bool(A: td.Tensor[M, f32], Y: td.Out[M, f32]):
    for m in td.parallel(M):
        td.check(A[m] < 100, "large")
        Y[m] = A[m]


@pairs.wrong("dtype/narrowing")
def narrow_accumulator(A: td.Tensor[M, K, f32], B: td.Tensor[K, N, f32], Y: td.Out[M, N]):
    for m in td.parallel(M):
        acc = td.zeros(m, N, dtype=f16)
        Y[m, N] = td.mma(A[m, K], B[K, N], acc)  # wrong


@pairs.right
def wide_accumulator(A: td.Tensor[M, K, f16], B: td.Tensor[K, N, f16], Y: td.Out[M, N]):
    for m in td.parallel(M):
        acc = td.zeros(m, N, dtype=f32)
        Y[m, N] = td.mma(A[m, K], B[K, N], acc)


@pairs.wrong("dtype/narrowing")
def narrow_dot(A: td.Tensor[M, K, f32], B: td.Tensor[K, N, f32], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.dot(A[m, K], B[K, N], over=K, dtype=bf16)  # wrong


@pairs.right
def rounded_dot(A: td.Tensor[M, K, f32], B: td.Tensor[K, N, f32], Y: td.Out[M, N, bf16]):
    for m in td.parallel(M):
        Y[m, N] = td.dot(A[m, K], B[K, N], over=K).to(bf16)


# ---- functions and their arguments


@pairs.wrong("capture/argument")
def unknown_format(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m].to("float32x")  # wrong


@pairs.right
def known_format(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m].to("bf16").to(f32)


@pairs.wrong("capture/argument")
def axis_of_a_number(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + td.zeros(8).sum()  # wrong


@pairs.right
def axis_of_a_dimension(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + td.zeros(F8).sum()


@pairs.wrong("capture/argument")
def tensor_without_a_subscript(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X * 2  # wrong


@pairs.right
def tensor_with_a_subscript(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] * 2


@pairs.wrong("capture/argument")
def sum_of_a_tensor(X: td.Tensor[M, N], Y: td.Out[M]):
    Y[M] = sum(X)  # wrong


@pairs.right
def sum_of_a_tile(X: td.Tensor[M, N], Y: td.Out[M]):
    Y[M] = X[M, N].sum(N)


@pairs.wrong("capture/argument")
def fill_of_a_tile(X: td.Tensor[M], Z: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X.at(m + 1, fill=Z[m])  # wrong


@pairs.right
def fill_of_a_number(X: td.Tensor[M], Z: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        c = m.coords
        Y[m] = td.where(c + 1 < M.extent, X.at(m + 1, fill=0), Z[m])


@pairs.wrong("capture/argument")
def full_of_a_tile(X: td.Tensor[M], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.full(m, N, value=X[m])  # wrong


@pairs.right
def broadcast_of_a_tile(X: td.Tensor[M], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = X[m]


@pairs.wrong("capture/argument")
def unknown_way_of_nan(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].max(N, nan="skip")  # wrong


@pairs.right
def known_way_of_nan(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].max(N, nan="ignore")


@pairs.wrong("capture/argument")
def fact_inside(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        td.require(M.extent >= 4)  # wrong
        Y[m] = X[m]


@pairs.right
def fact_at_the_top(X: td.Tensor[M], Y: td.Out[M]):
    td.require(M.extent >= 4)
    for m in td.parallel(M):
        Y[m] = X[m]


@pairs.wrong("capture/argument")
def fact_about_data(X: td.Tensor[M, i32], Y: td.Out[M, i32]):
    td.require(X[M].min() >= 0)  # wrong
    Y[M] = X[M]


@pairs.right
def check_of_data(X: td.Tensor[M, i32], Y: td.Out[M, i32]):
    td.check(X[M].min() >= 0, "negative")
    Y[M] = X[M]


@pairs.wrong("dtype/operand")
def extent_of_a_fraction(X: td.Tensor[M], Y: td.Out[N]):
    td.let(N, M.extent / 2)  # wrong
    Y[N] = 0.0


@pairs.right
def extent_of_a_quotient(X: td.Tensor[M], Y: td.Out[N]):
    td.let(N, M.extent // 2)
    Y[N] = 0.0


@pairs.wrong("capture/argument")
def flag_of_a_tile(X: td.Tensor[N], Y: td.Out[N]):
    Y[N] = td.scan(X[N], N, td.Add, exclusive=1)  # wrong


@pairs.right
def flag_of_a_bool(X: td.Tensor[N], Y: td.Out[N]):
    Y[N] = td.scan(X[N], N, td.Add, exclusive=True)


@pairs.wrong("capture/argument")
def fold_by_a_function(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, max)  # wrong


@pairs.right
def fold_by_a_monoid(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, td.Max)


@pairs.wrong("capture/argument")
def monoid_of_no_function(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, td.Monoid(0.0, "add"))  # wrong


@pairs.right
def monoid_of_a_function(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, td.Monoid(0.0, lambda a, b: a + b, commutative=True))


@pairs.wrong("capture/argument")
def buffers_below_one(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros(M)
    for n in td.pipeline(N, versions=0):  # wrong
        s = s + X[M, n].sum(N)
    Y[M] = s


@pairs.right
def two_buffers(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros(M)
    for n in td.pipeline(N, versions=2):
        s = s + X[M, n].sum(N)
    Y[M] = s


@pairs.wrong("capture/argument")
def unknown_level(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M, scope="warp"):  # wrong
        Y[m] = X[m]


@pairs.right
def known_level(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M, scope="workgroup"):
        Y[m] = X[m]


@pairs.wrong("region/device")
def several_devices(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each, scope="device"):  # wrong
        Y[m] = X[m]


@pairs.right
def one_device(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = X[m]


# ---- parameters


@pairs.wrong("capture/signature")
def untyped_parameter(X: td.Tensor[M], factor, Y: td.Out[M]):  # wrong
    Y[M] = X[M] * factor


@pairs.right
def staged_parameter(X: td.Tensor[M], Y: td.Out[M], *, factor=2):
    Y[M] = X[M] * factor


@pairs.wrong("capture/signature")
def numeric_default(X: td.Tensor[M], s: td.Scalar[f32] = 1.0, Y: td.Out[M] = None):  # wrong
    Y[M] = X[M] * s


@pairs.right
def scalar_without_default(X: td.Tensor[M], s: td.Scalar[f32], Y: td.Out[M] = None):
    Y[M] = X[M] * s


@pairs.wrong("capture/signature")
def any_number_of_tensors(*X: td.Tensor[M], Y: td.Out[M]):  # wrong
    Y[M] = X[0][M]


@pairs.right
def two_tensors(X: td.Tensor[M], Z: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + Z[M]


@pairs.wrong("capture/signature")
def annotation_of_another_library(X: "jax.Array", Y: td.Out[M]):  # wrong  # noqa: F821, UP037 (not imported)
    Y[M] = X[M]


@pairs.right
def annotation_as_text(X: "td.Tensor[M]", Y: td.Out[M]):  # noqa: UP037 (text is the case)
    Y[M] = X[M]


@pairs.wrong("dims/twice")
def square_of_one_dimension(X: td.Tensor[M, M], Y: td.Out[M]):  # wrong
    Y[M] = X[M, M].sum(M)


M2 = M.alias("M2")


@pairs.right
def square_of_an_alias(X: td.Tensor[M, M2], Y: td.Out[M]):
    Y[M] = X[M, M2].sum(M2)


@pairs.wrong("capture/argument")
def extent_in_an_annotation(X: td.Tensor[M, 64], Y: td.Out[M]):  # wrong
    Y[M] = X[M, 0]


@pairs.right
def dimension_of_a_fixed_extent(X: td.Tensor[M, F8], Y: td.Out[M]):
    Y[M] = X[M, 0]


@pairs.wrong("dtype/argument", arg_dtypes={"X": f32})
def declared_otherwise(X: td.Tensor[M, bf16], Y: td.Out[M]):  # wrong
    Y[M] = X[M]


@pairs.right
def declared_open(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M]


@pairs.wrong("capture/staged")
def staged_without_a_value(X: td.Tensor[M], Y: td.Out[M], *, factor):  # wrong
    Y[M] = X[M] * factor


@pairs.right
def staged_with_a_default(X: td.Tensor[M], Y: td.Out[M], *, factor=1.5):
    Y[M] = X[M] * factor


test_wrong, test_right = pairs.tests()
