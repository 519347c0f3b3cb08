"""From emitted text and a call's arguments to launches: every parameter's value, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from treadle.dtype.formats import BY_NAME
from treadle.runtime.arrays import itemsize_of
from treadle.runtime.cuda import CudaArgument, Geometry, Pointer, Scalar
from treadle.runtime.tensor_map import Fill, Promotion, Swizzle, TensorMapSpec
from treadle.targets.cuda.emit.emitted import ARRIVALS, Argument, EmittedCuda, KernelLaunchSpec, MapPlan
from treadle.targets.cuda.emit.errors import CudaExtentTooLarge


@dataclass(frozen=True)
class Call:
    """The arguments of a call. Units: `strides` in elements. `scalars`: name -> (bits, value as an integer or None)."""

    extents: Mapping[str, int]
    pointers: Mapping[str, int]
    strides: Mapping[str, Sequence[int]]
    scalars: Mapping[str, tuple[int, int | None]]
    workspace: int = 0


@dataclass(frozen=True)
class PreparedLaunch:
    """One launch, ready for `treadle.runtime.cuda.CudaLaunch`."""

    kernel: str
    geometry: Geometry
    arguments: tuple[CudaArgument, ...]


def environment(emitted: EmittedCuda, extents: Mapping[str, int]) -> dict[str, int]:
    """Extents, and the names that the host computes from them."""
    env = dict(extents)
    for name, expr in emitted.lets.items():
        env[name] = int(expr.evaluate(env))
    return env


def workspace_bytes(emitted: EmittedCuda, call: Call) -> int:
    """Bytes of the workspace that the launches share."""
    return int(emitted.workspace.evaluate(environment(emitted, call.extents), _functions(call)))


def cleared_bytes(emitted: EmittedCuda, call: Call) -> int:
    """Bytes at the end of the workspace that are zero when the first launch begins: all counters."""
    return emitted.cleared + int(emitted.counted.evaluate(environment(emitted, call.extents), _functions(call)))


def prepare(emitted: EmittedCuda, call: Call) -> list[PreparedLaunch]:
    """The launches of a call in order, those of no workgroups left out.

    *Errors*: emit/cuda-extent where an extent is beyond what the kernels' index arithmetic holds.
    """
    env = environment(emitted, call.extents)
    functions = _functions(call)
    need = workspace_bytes(emitted, call)
    own = (call.workspace + need - emitted.cleared, call.workspace + need - cleared_bytes(emitted, call))
    found: list[PreparedLaunch] = []
    for spec in emitted.launches:
        grid = int(spec.grid.evaluate(env, functions))
        if grid <= 0:
            continue
        _within(spec, env, functions)
        arguments = tuple(_argument(a, spec, env, call, own) for a in spec.arguments)
        shape = ((grid, 1, 1), (spec.threads, 1, 1), (spec.cluster, 1, 1))
        geometry = Geometry(*shape, spec.shared, spec.cooperative, spec.dependent)
        found.append(PreparedLaunch(spec.kernel, geometry, arguments))
    return found


def _functions(call: Call) -> dict[str, Callable[..., Any]]:
    """Scalar arguments as the opaque terms of index expressions."""

    def constant(value: int) -> Callable[..., Any]:
        return lambda: value

    return {n: constant(v) for n, (_, v) in call.scalars.items() if v is not None}


def _within(spec: KernelLaunchSpec, env: Mapping[str, int], functions: Mapping[str, Callable[..., Any]]) -> None:
    for expr, most in spec.limits:
        value = int(expr.evaluate(env, functions))
        if value > most:
            raise CudaExtentTooLarge(
                doing=f"launching {spec.kernel}",
                found=f"{expr} = {value}",
                expected=f"at most {most}, which its 32-bit index arithmetic holds",
                hint="pin another plan: target='cuda', plan='universal'",
            )


def _argument(
    argument: Argument, spec: KernelLaunchSpec, env: Mapping[str, int], call: Call, own: tuple[int, int]
) -> CudaArgument:
    match argument.kind:
        case "map":
            return _map(next(m for m in spec.maps if m.name == argument.name), env, call)
        case "tensor":
            return Pointer(call.pointers[argument.name])
        case "stride":
            return Scalar(int(call.strides[argument.name][argument.axis]), 8)
        case "extent":
            return Scalar(env[argument.name], argument.size)
        case "scalar":
            return Scalar(call.scalars[argument.name][0], argument.size)
        case "workspace":
            return Pointer(call.workspace)
        case "arrivals":
            return Pointer(own[0] + ARRIVALS * argument.axis)
        case "counted":
            return Pointer(own[1])
        case _:
            raise AssertionError(argument.kind)


def _map(plan: MapPlan, env: Mapping[str, int], call: Call) -> TensorMapSpec:
    """The map of one call. Axes of extent 0 or 1 take any legal pitch: no coordinate beyond the first is inside."""
    halves = BY_NAME[plan.dtype].packed
    dtype = "u8" if halves else plan.dtype
    size = itemsize_of(dtype)
    if plan.start is None:
        strides, address = call.strides[plan.tensor], call.pointers[plan.tensor]
    else:
        strides = [int(s.evaluate(env)) for s in plan.strides]
        address = call.workspace + int(plan.start.evaluate(env))
    extents = [int(plan.extents[a].evaluate(env)) for a in plan.axes]
    box = [plan.box[a] for a in plan.axes]
    if halves:
        # Two elements a byte: the engine copies bytes.
        extents[0], box[0] = -(-extents[0] // 2), box[0] // 2
    pitches: list[int] = []
    for axis, extent in zip(plan.axes[1:], extents[1:]):
        pitches.append(int(strides[axis]) * size if extent > 1 else 16)
    return TensorMapSpec(
        dtype=dtype,
        address=address,
        extents=tuple(max(1, e) for e in extents),
        pitches=tuple(pitches),
        box=tuple(box),
        element_strides=tuple(1 for _ in plan.axes),
        interleave="none",
        swizzle=cast(Swizzle, f"{plan.swizzle}B" if plan.swizzle else "none"),
        promotion=cast(Promotion, f"{plan.promotion}B" if plan.promotion else "none"),
        fill=cast(Fill, plan.fill),
    )
