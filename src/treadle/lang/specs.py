"""What annotations and region constructors make: plain descriptions that capture reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from treadle.dtype.formats import DType
from treadle.ir.core import Order, RegionKind
from treadle.lang.dims import DeviceAxis, Dimension
from treadle.lang.dtypes import as_dtype
from treadle.lang.errors import BadArgument, BadDevice, BadRegion, DimTwice
from treadle.lang.objects import is_word, listed
from treadle.lang.permissions import known
from treadle.lang.state import span_here, staged_flag


@dataclass(frozen=True)
class TensorSpec:
    """`td.Tensor[M, K, bf16]` or `td.Out[M, N]`."""

    dims: tuple[Dimension, ...]
    dtype: DType | None
    out: bool
    devices: bool = False

    def __repr__(self) -> str:
        inside = [*map(str, self.dims), *([] if self.dtype is None else [str(self.dtype)])]
        if self.devices:
            inside[0] = f"{inside[0]}.device"
        return f"td.{'Out' if self.out else 'Tensor'}[{', '.join(inside) or '()'}]"

    def __or__(self, other: object) -> TensorSpec:
        """`td.Tensor[M] | None`: what makes a parameter optional is its default."""
        return self if other is None else NotImplemented


@dataclass(frozen=True)
class ScalarSpec:
    """`td.Scalar[f32]`."""

    dtype: DType

    def __repr__(self) -> str:
        return f"td.Scalar[{self.dtype}]"

    def __or__(self, other: object) -> ScalarSpec:
        """`td.Scalar[f32] | None`, as with tensors."""
        return self if other is None else NotImplemented


def _tensor_spec(items: Any, out: bool) -> TensorSpec:
    given = listed(items)
    if len(given) == 2 and given[0] == ():  # rank 0, with a dtype
        given = given[1:]
    word = "td.Out" if out else "td.Tensor"
    dims: list[Dimension] = []
    dtype: DType | None = None
    devices = bool(given) and isinstance(given[0], DeviceAxis)
    for i, item in enumerate(given):
        if isinstance(item, DeviceAxis):
            if i:
                raise BadDevice(
                    doing=f"reading {word}[...]",
                    found=f"{item} as axis {i}",
                    expected="the devices as the first axis, and once",
                    hint=f"write {word}[{item}, ...], and pass a list of arrays",
                    span=span_here(),
                )
            item = item.dimension
        if isinstance(item, Dimension):
            dims.append(item)
        elif i == len(given) - 1 and not isinstance(item, int):
            dtype = as_dtype(item, f"reading {word}[...]", span_here())
        else:
            raise BadArgument(
                doing=f"reading {word}[...]",
                found=f"{item!r} as a dimension",
                expected="dimensions that td.dims made, and a dtype last",
                hint='make a fixed dimension with td.dims("D", 64)',
                span=span_here(),
            )
    if len({d.identity for d in dims}) != len(dims):
        raise DimTwice(
            doing=f"reading {word}[...]",
            found=", ".join(map(str, dims)),
            expected="each dimension once",
            hint=f"use an alias for a square matrix: {dims[0]}2 = {dims[0]}.alias(...)",
            span=span_here(),
        )
    return TensorSpec(tuple(dims), dtype, out, devices)


class Subscripted:
    """A word of annotations, which is subscripted and never called."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise BadArgument(
            doing=f"reading td.{cls.__name__}",
            found=f"a call, td.{cls.__name__}(...)",
            expected=f"a subscript, td.{cls.__name__}[...]",
            hint="write td.Tensor[M, K], td.Out[M, N] or td.Scalar[td.f32]",
            span=span_here(),
        )


class Tensor(Subscripted):
    """A tensor parameter: `td.Tensor[M, K]`, with a dtype last if it is fixed. *Errors*: `capture/argument`."""

    def __class_getitem__(cls, items: Any) -> Any:
        return _tensor_spec(items, out=False)


class Out(Subscripted):
    """A tensor that the kernel writes, which a call may leave out: `td.Out[M, N]`; `td.Out[()]` is rank 0."""

    def __class_getitem__(cls, items: Any) -> Any:
        return _tensor_spec(items, out=True)


class Scalar(Subscripted):
    """A scalar parameter: `td.Scalar[f32]`."""

    def __class_getitem__(cls, item: Any) -> Any:
        return ScalarSpec(as_dtype(item, "reading td.Scalar[...]", span_here()))


@dataclass
class RegionSpec:
    """What `td.parallel(...)` and its kin give to the `for` statement."""

    kind: RegionKind
    args: tuple[Any, ...]
    order: Order = "unordered"
    name: str = ""
    scope: str | None = None
    versions: int | None = None

    def __iter__(self) -> NoReturn:
        raise BadRegion(
            doing=f"iterating over td.{self.kind}",
            found="no `for` statement of a captured function",
            expected="a `for` statement in a kernel or in a Python function that it calls",
            hint=f"write for i in td.{self.kind}(...): in the kernel",
            span=span_here(),
        )


@dataclass(frozen=True)
class Numerics:
    """What a kernel permits and demands numerically.

    - `tf32`: whether contractions of f32 may take their operands without the 13 lowest bits.
    - `contract`: whether a product and the sum after it may be rounded once, outside exact folds.
    - `functions`: the accuracy class of `exp` and its kin: `"2ulp"`, `"fast"`, `"exact"` or `"storage"`.
    - `subnormals`: `"keep"`; `"flush"` is refused: no plan of this version flushes subnormal numbers.
    - `fp8_accumulate`: `"promote"` sums products of fp8 in the accumulator's dtype; `"hardware"` as tensor cores do.
    - `mma_subnormals`: `"any"`, or `"keep"`, which excludes contracting instructions that flush subnormal numbers.
    - `repeatable`: `None`, `"run"` (the same bits from run to run) or `"batch"` (and whatever shares the batch).
    """

    tf32: bool = False
    contract: bool = True
    functions: str = "2ulp"
    subnormals: str = "keep"
    fp8_accumulate: str = "promote"
    mma_subnormals: str = "any"
    repeatable: str | None = None

    def __post_init__(self) -> None:
        staged_flag("reading td.Numerics", "tf32", self.tf32)
        staged_flag("reading td.Numerics", "contract", self.contract)
        _one_of("functions", self.functions, ("exact", "2ulp", "storage", "fast"))
        _one_of("subnormals", self.subnormals, ("keep", "flush"))
        _one_of("fp8_accumulate", self.fp8_accumulate, ("promote", "hardware"))
        _one_of("mma_subnormals", self.mma_subnormals, ("any", "keep"))
        if self.repeatable is not None:
            _one_of("repeatable", self.repeatable, ("run", "batch"))
        known(self, span_here())


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if not is_word(value, allowed):
        raise BadArgument(
            doing="reading td.Numerics",
            found=f"{name}={value!r}",
            expected=" or ".join(repr(a) for a in allowed),
            hint=f"leave {name}= out for the default",
            span=span_here(),
        )
