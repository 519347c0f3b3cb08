"""Arguments of a simulated call: extents from shapes, private copies that keep strides and overlap, the guard
tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.ir.core import Program, Tensor
from treadle.ir.extents import told_extents
from treadle.ir.guard import Absent, Bound, Disjoint, Divisible, Guard, Injective, Pitch, Same, Unit
from treadle.ir.ops.access import Load, Store
from treadle.simulate.expression import evaluate, holds
from treadle.simulate.findings import Findings, WrongArguments
from treadle.simulate.memory import DEFINED, Arena, View, granule_of

Array = NDArray[Any]


def _mistake(found: str, expected: str) -> WrongArguments:
    return WrongArguments(
        doing="simulating a machine program",
        found=found,
        expected=expected,
        hint="give arguments that the program's declarations and its guard allow",
    )


def extents(program: Program, args: Mapping[str, Any]) -> dict[str, int]:
    """The value of every extent symbol. Errors: `simulate/arguments` where shapes disagree or do not tell."""
    env: dict[str, int] = {}
    for scalar in program.scalars:
        if scalar.name not in args:
            raise _mistake(f"no argument {scalar.name}", "a value for every scalar")
        value = args[scalar.name]
        if scalar.value.type.dtype.is_int or scalar.value.type.dtype.is_bool:
            env[scalar.name] = int(value)
    present: dict[str, Tensor] = {}
    for tensor in program.tensors:
        array = args.get(tensor.name)
        if array is None:
            if not tensor.optional:
                raise _mistake(f"no argument {tensor.name}", "an array for every tensor that is not optional")
            continue
        if array.ndim != len(tensor.dims) or array.dtype != tensor.dtype.numpy:
            expected = f"{tensor.dtype} with {len(tensor.dims)} axes"
            raise _mistake(f"{tensor.name}: {array.dtype} with {array.ndim} axes", expected)
        present[tensor.name] = tensor
    env |= told_extents(program, {name: args[name].shape for name in present})
    for name, expr in program.lets.items():
        env.setdefault(name, int(evaluate(expr, env, {})))
    for name, tensor in present.items():
        for dim, extent in zip(tensor.dims, args[name].shape):
            if dim.extent.symbols <= env.keys() and int(evaluate(dim.extent, env, {})) != extent:
                raise _mistake(f"{name}: extent {extent} of {dim}", f"{dim.extent} = {evaluate(dim.extent, env, {})}")
    return env


def functions(program: Program, args: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Scalar parameters as opaque functions without arguments, as index expressions name them."""
    table: dict[str, Callable[..., Any]] = {}
    for scalar in program.scalars:
        if scalar.value.type.dtype.is_int or scalar.value.type.dtype.is_bool:
            table[scalar.value.name] = _always(int(args[scalar.name]))
    return table


def _always(number: int) -> Callable[..., Any]:
    return lambda: number


def check_guard(guard: Guard, env: Mapping[str, int], args: Mapping[str, Any]) -> None:
    """Errors: `simulate/arguments` where a fact is false. Alignment is not asked: private copies have their own.

    As in a call, an array without elements meets every fact about its memory.
    """
    for fact in guard.facts:
        fine = True
        match fact:
            case Divisible() | Bound():
                constraint = fact.constraint() if isinstance(fact, Divisible) else fact.constraint
                fine = not constraint.symbols <= env.keys() or bool(holds(constraint, env, {}))
            case Unit(tensor, axis):
                a = args[tensor]
                fine = not a.size or a.shape[axis] <= 1 or a.strides[axis] == a.itemsize
            case Pitch(tensor, axis, by):
                a = args[tensor]
                step = a.strides[axis] // a.itemsize
                fine = not a.size or a.shape[axis] <= 1 or (step >= 0 and step % by == 0)
            case Disjoint(first, second):
                fine = not np.may_share_memory(args[first], args[second])
            case Same(first, second):
                a, b = args[first], args[second]
                fine = a.__array_interface__["data"] == b.__array_interface__["data"] and a.shape == b.shape
                fine = not a.size or (fine and a.strides == b.strides)
            case Injective(tensor):
                fine = _injective(args[tensor])
            case Absent(tensor):
                fine = args.get(tensor) is None
            case _:
                pass
        if not fine:
            raise _mistake(f"arguments for which {fact} is false", "arguments of the guard's class")


def _injective(array: Array) -> bool:
    if not array.size:
        return True
    reach = 0
    for stride, extent in sorted((abs(s), n) for s, n in zip(array.strides, array.shape) if n > 1):
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def _base(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def views(program: Program, args: Mapping[str, Any], written: frozenset[str], findings: Findings) -> dict[str, View]:
    """Private memory under every argument. Outputs that the program neither loads nor merges into are poisoned."""
    loaded = {op.tensor.name for op in program.body.walk() if isinstance(op, Load)}
    loaded |= {op.tensor.name for op in program.body.walk() if isinstance(op, Store) and op.effect != "set"}
    roots: dict[int, list[tuple[str, Array]]] = {}
    for tensor in program.tensors:
        array = args.get(tensor.name)
        if array is not None:
            roots.setdefault(id(_base(array)), []).append((tensor.name, array))
    result: dict[str, View] = {}
    by_name = {t.name: t for t in program.tensors}
    for members in roots.values():
        low = min(np.lib.array_utils.byte_bounds(a)[0] for _, a in members)
        high = max(np.lib.array_utils.byte_bounds(a)[1] for _, a in members)
        starts = {name: a.__array_interface__["data"][0] - low for name, a in members}
        numbers = [n for name, a in members for n in (a.itemsize, starts[name], *map(abs, a.strides))]
        tracked = any(name in written for name, _ in members)
        names = ", ".join(name for name, _ in members)
        arena = Arena(names, high - low, granule_of(*numbers), tracked=tracked, findings=findings)
        arena.state[...] = DEFINED
        for name, array in members:
            view = View(name, arena, by_name[name].dtype, starts[name], array.shape, array.strides)
            result[name] = view
            if array.size:
                view.array[...] = array
        for name, array in members:
            if by_name[name].out and name in written and name not in loaded and len(members) == 1 and array.size:
                result[name].poison()
                arena.state[...] = DEFINED
    for scalar in program.scalars:
        value = np.asarray(args[scalar.name], scalar.value.type.dtype.numpy)
        arena = Arena(scalar.name, value.nbytes, value.itemsize, tracked=False, findings=findings)
        arena.state[...] = DEFINED
        view = View(scalar.name, arena, scalar.value.type.dtype, 0, (), ())
        view.array[...] = value
        result[scalar.name] = view
    return result
