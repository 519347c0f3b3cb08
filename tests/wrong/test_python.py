"""Python's constructs around traced values: what would need a number, a truth value or a name that is not there."""

# ruff: noqa: F823 (names used before they are assigned are the mistake)
from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from tests.wrong.pairs import Pairs

import treadle.lang.api as td
from treadle.dtype.formats import f32, i32

M, N = td.dims("M N")
D = td.dims("D", 4)
LIMIT = 3
pairs = Pairs()


# ---- numbers


@pairs.wrong("capture/traced-number")
def list_index(X: td.Tensor[M], c: td.Scalar[i32], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * [1.0, 2.0, 4.0][c]  # wrong


@pairs.right
def list_index_staged(X: td.Tensor[M], Y: td.Out[M], *, c=1):
    for m in td.parallel(M):
        Y[m] = X[m] * [1.0, 2.0, 4.0][c]


@pairs.wrong("capture/traced-number")
def length_of_a_tile(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m] = x.sum(N) / len(x)  # wrong


@pairs.right
def extent_of_a_dimension(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N) / N.extent


@pairs.wrong("capture/traced-number")
def rows_by_iteration(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        total = 0.0
        for x in X[m, N]:  # wrong
            total = total + x
        Y[m] = total


@pairs.right
def rows_by_a_region(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        total = td.zeros(m)
        for n in td.reduce(N.each):
            total = total + X[m, n]
        Y[m] = total


@pairs.wrong("capture/traced-number")
def repeated_text(X: td.Tensor[M], c: td.Scalar[i32], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + float(c)  # wrong


@pairs.right
def converted(X: td.Tensor[M], c: td.Scalar[i32], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + c.to(f32)


@pairs.wrong("capture/traced-number")
def block_size_from_data(X: td.Tensor[M], c: td.Scalar[i32], Y: td.Out[M]):
    for m in td.parallel(M.by(c)):  # wrong
        Y[m] = X[m]


@pairs.right
def block_size_staged(X: td.Tensor[M], Y: td.Out[M], *, c=4):
    for m in td.parallel(M.by(c)):
        Y[m] = X[m]


# ---- truth


@pairs.wrong("capture/tile-bool")
def tile_or_default(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] or 1.0  # wrong


@pairs.right
def tile_where_default(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = td.where(x != 0, x, 1.0)


@pairs.wrong("capture/tile-bool")
def conditional_of_a_tile(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = x if x > 0 else 0.1 * x  # wrong


@pairs.right
def conditional_of_a_scalar(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        x = X[m]
        Y[m] = x if x > 0 else 0.1 * x


@pairs.wrong("capture/tile-bool")
def tile_in_a_list(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = 1.0 if X[m] in (1.0, 2.0) else 0.0  # wrong


@pairs.right
def tile_equal_to_one_of(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = td.where((x == 1.0) | (x == 2.0), 1.0, 0.0)


@pairs.wrong("capture/tile-bool")
def python_minimum(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = min(X[m], 1.0)  # wrong


@pairs.right
def elementwise_minimum(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.minimum(X[m], 1.0)


@pairs.wrong("capture/tile-bool")
def filtered_comprehension(X: td.Tensor[M, D], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = sum([X[m, d] for d in range(4) if X[m, d] > 0])  # wrong


@pairs.right
def summed_with_where(X: td.Tensor[M, D], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = sum([td.where(X[m, d] > 0, X[m, d], 0.0) for d in range(4)])


@pairs.wrong("capture/argument")
def assertion_of_a_value(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        x = X[m]
        assert x >= 0, "negative"  # wrong
        Y[m] = td.sqrt(x)


@pairs.right
def checked_value(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m] * X[m]
        td.check(x >= 0, "negative")
        Y[m] = td.sqrt(x)


# ---- statements


@pairs.wrong("capture/unsupported")
def swallowed_exception(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        try:  # wrong
            Y[m] = 1 / X[m]
        except ZeroDivisionError:
            Y[m] = 0.0


@pairs.right
def selected_quotient(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = td.where(x == 0, 0.0, 1 / x)


@pairs.wrong("capture/unsupported")
def structural_match(X: td.Tensor[M], Y: td.Out[M], *, mode="plus"):
    for m in td.parallel(M):
        match mode:  # wrong
            case "plus":
                Y[m] = X[m] + 1
            case _:
                Y[m] = X[m] - 1


@pairs.right
def staged_if(X: td.Tensor[M], Y: td.Out[M], *, mode="plus"):
    for m in td.parallel(M):
        if mode == "plus":
            Y[m] = X[m] + 1
        else:
            Y[m] = X[m] - 1


@pairs.wrong("capture/unsupported")
def global_counter(X: td.Tensor[M], Y: td.Out[M]):
    global LIMIT  # wrong
    LIMIT = 4
    Y[M] = X[M] * LIMIT


@pairs.right
def global_constant(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] * LIMIT


@pairs.wrong("capture/unsupported")
def local_class(X: td.Tensor[M], Y: td.Out[M]):
    class State:  # wrong
        total = 0.0

    Y[M] = X[M] + State.total


@dataclass
class Total:
    """A state of two parts."""

    value: td.Tile
    count: int


@pairs.right
def module_dataclass(X: td.Tensor[M], Y: td.Out[M]):
    state = Total(td.zeros(), 0)
    for m in td.serial(M.each):
        state.value = state.value + X[m]
        state.count = state.count + 1
    Y[M] = state.value / state.count


@pairs.wrong("capture/unsupported")
def deleted_name(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = x
        del x  # wrong


@pairs.right
def rebound_name(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        x = x + 1
        Y[m] = x


@pairs.wrong("capture/unsupported")
def locked(X: td.Tensor[M], Y: td.Out[M], *, lock=None):
    for m in td.parallel(M):
        with lock:  # wrong
            Y[m] = X[m]


@pairs.right
def unlocked(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m]


def numbered(x):  # wrong
    for i in range(3):
        yield x + i


@pairs.wrong("capture/unsupported", marked=numbered)
def generator(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = sum(numbered(X[m]))


def listed(x):
    return [x + i for i in range(3)]


@pairs.right
def list_function(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = sum(listed(X[m]))


@pairs.wrong("capture/unsupported")
def decorated_inside(X: td.Tensor[M], Y: td.Out[M]):
    @functools.cache  # wrong
    def double(x):
        return x * 2

    Y[M] = double(X[M])


@pairs.right
def plain_inside(X: td.Tensor[M], Y: td.Out[M]):
    def double(x):
        return x * 2

    Y[M] = double(X[M])


@pairs.wrong("capture/jump")
def search_with_break(X: td.Tensor[M], Y: td.Out[()]):
    found = td.full(value=-1.0)
    for m in td.serial(M.each):
        if X[m] > 2:
            found = X[m]
            break  # wrong
    Y[()] = found


@pairs.right
def search_with_a_flag(X: td.Tensor[M], Y: td.Out[()]):
    found = td.full(value=-1.0)
    for m in td.serial(M.each):
        if found < 0 and X[m] > 2:
            found = X[m]
    Y[()] = found


@pairs.wrong("capture/jump")
def skip_with_continue(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        if X[m] < 0:
            continue  # wrong
        Y[m] = td.sqrt(X[m])


@pairs.right
def skip_with_if(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = 0.0
        if X[m] >= 0:
            Y[m] = td.sqrt(X[m])


@pairs.wrong("capture/jump")
def early_return(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M):
        Y[m] = X[m]
        return  # wrong


@pairs.right
def staged_return(X: td.Tensor[M], Y: td.Out[M], *, only_copy=True):
    Y[M] = X[M]
    if only_copy:
        return
    Y[M] = X[M] * 2


@pairs.wrong("capture/while")
def newton(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        a, r = X[m] * X[m] + 1, td.full(value=1.0)
        while abs(r * r - a) > 1e-3:  # wrong
            r = (r + a / r) / 2
        Y[m] = r


@pairs.right
def newton_with_a_bound(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        a, r = X[m] * X[m] + 1, td.full(value=1.0)
        for _ in td.serial(20):
            if abs(r * r - a) > 1e-3:
                r = (r + a / r) / 2
        Y[m] = r


# ---- functions and names


@pairs.wrong("capture/opaque-call")
def numpy_of_a_tile(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = np.clip(X[m], 0, 1)  # wrong


@pairs.right
def clipped(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.minimum(td.maximum(X[m], 0.0), 1.0)


@pairs.wrong("capture/opaque-call")
def math_of_a_scalar(X: td.Tensor[M], s: td.Scalar[f32], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * math.exp(s)  # wrong


@pairs.right
def language_of_a_scalar(X: td.Tensor[M], s: td.Scalar[f32], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * td.exp(s) * math.exp(1.0)


@pairs.wrong("capture/unbound")
def assigned_on_another_path(X: td.Tensor[M], Y: td.Out[M], *, scaled=False):
    if scaled:
        factor = 2.0
    Y[M] = X[M] * factor  # wrong


@pairs.right
def assigned_on_both_paths(X: td.Tensor[M], Y: td.Out[M], *, scaled=False):
    factor = 2.0 if scaled else 1.0
    Y[M] = X[M] * factor


@pairs.wrong("capture/unbound")
def local_before_assignment(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + LIMIT  # wrong
        LIMIT = 2


@pairs.right
def local_after_assignment(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        LIMIT = 2
        Y[m] = X[m] + LIMIT


@pairs.wrong("capture/gone")
def block_kept(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        last = m
        Y[m] = X[m]
    Y[last] = 0.0  # wrong


@pairs.right
def whole_dimension(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m]
    Y[M] = 0.0


@pairs.wrong("capture/gone")
def one_branch(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        if X[m] > 0:
            sign = 1.0
        Y[m] = sign  # wrong


@pairs.right
def both_branches(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        if X[m] > 0:
            sign = 1.0
        else:
            sign = -1.0
        Y[m] = sign


@pairs.wrong("capture/assignment")
def outer_tile_of_a_closure(X: td.Tensor[M], Y: td.Out[M]):
    t = td.empty(M)

    def put(m):
        t[m] = X[m]  # wrong

    for m in td.parallel(M):
        put(m)
    Y[M] = t


@pairs.right
def tile_passed_and_returned(X: td.Tensor[M], Y: td.Out[M]):
    t = td.empty(M)

    def put(t, m):
        t[m] = X[m]
        return t

    for m in td.serial(M):
        t = put(t, m)
    Y[M] = t


@pairs.wrong("capture/assignment")
def attribute_of_a_tensor(X: td.Tensor[M], Y: td.Out[M]):
    X.scale = 2.0  # wrong
    Y[M] = X[M] * X.scale


@pairs.right
def name_beside_a_tensor(X: td.Tensor[M], Y: td.Out[M]):
    scale = 2.0
    Y[M] = X[M] * scale


@pairs.wrong("capture/python-error")
def missing_attribute(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = X[m, N].astype("float32")  # wrong


@pairs.right
def converted_tile(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = X[m, N].to(f32)


def two_numbers(x, y):
    return x + y


@pairs.wrong("capture/python-error")
def too_few_arguments(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = two_numbers(X[m])  # wrong


@pairs.right
def enough_arguments(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = two_numbers(X[m], 1)


@pairs.wrong("capture/python-error")
def too_many_names(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        a, b, c = X[m], 1.0  # wrong
        Y[m] = a + b + c


@pairs.right
def as_many_names(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        a, b, *c = X[m], 1.0
        Y[m] = a + b + len(c)


def factorial(n):
    return n * factorial(n - 1)  # wrong


@pairs.wrong("capture/recursion", marked=factorial)
def recursion_without_an_end(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] * factorial(4)


def finite_factorial(n):
    return n * finite_factorial(n - 1) if n > 1 else 1


@pairs.right
def recursion_with_an_end(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] * finite_factorial(4)


@pairs.wrong("capture/argument")
def returned_result(X: td.Tensor[M], Y: td.Out[M]):  # wrong
    Y[M] = X[M]
    return X[M]


@pairs.right
def stored_result(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M]


test_wrong, test_right = pairs.tests()
