"""What functions there are for f32, in which accuracy classes, by which expansion, and how far off each was measured.

An ulp is the distance of neighbouring f32 numbers at the exact result, 2^-149 below the normal numbers. The stated
bound holds for every argument that was tried: 2^24 per function (benchmarks/accuracy), some 2^17 in `tests/math`, dense
where an expansion changes its branch, and all special values. Infinities, NaN, zeros with their signs and overflow are
as in NumPy for class `2ulp`; what `fast` leaves out is stated in its row.

f16 and bf16 are computed in f32 and rounded once. `wide` is the expansion in f64, its error in ulp of f64: functions of
f64 have that one in every class. The classes `exact` and `storage` of f32 are made of it, too: computed in f64 and
rounded once, they are within half an ulp of f32 and 2^-28 more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from treadle.base.errors import LimitError
from treadle.math import (
    error_function,
    exponential,
    hardware,
    logarithm,
    power,
    roots,
    trigonometry,
    wide_error_function,
    wide_exponential,
    wide_logarithm,
    wide_trigonometry,
)

Expand = Callable[..., Any]
"""`expand(ops, *arguments)`; generic in the emitter's value, see `ops.Ops`."""


class NoExpansion(LimitError):
    """A function, or an accuracy class of one, that has no expansion."""

    code = "math/no-expansion"


@dataclass(frozen=True)
class Expansion:
    """One way to compute a function. `ulp` is the largest error seen, rounded up; `note` is what it leaves out."""

    expand: Expand = field(compare=False)
    ulp: float
    note: str = ""


@dataclass(frozen=True)
class Function:
    """`domain` is where the result is a number; `classes` has an expansion in f32 for each accuracy class that has one;
    `wide` is the one in f64 (`wide_ops.WideOps`); `hardware`, for an architecture, one of class `2ulp` around its
    instructions (`hardware.NearOps`); `picked`, for CPUs, one of class `2ulp` by permuted registers (`ops.PickOps`)."""

    name: str
    arity: int
    domain: str
    classes: dict[str, Expansion]
    wide: Expansion | None = None
    hardware: dict[str, Expansion] = field(default_factory=dict[str, Expansion])
    picked: Expansion | None = None


_BEYOND = "beyond 2 ulp between -10 and -8: no operation of the language is this function"
_FLUSH = "subnormal results become 0 or lose digits"


def _row(name: str, domain: str, precise: Expansion, fast: Expansion | None = None, arity: int = 1) -> Function:
    classes = {"2ulp": precise, "fast": fast or precise}
    return Function(name, arity, domain, classes, _WIDE.get(name), picked=_PICKED.get(name))


_WIDE = {
    "exp": Expansion(wide_exponential.exp, 1.0),
    "exp2": Expansion(wide_exponential.exp2, 0.9),
    "expm1": Expansion(wide_exponential.expm1, 1.7),
    "tanh": Expansion(wide_exponential.tanh, 2.0),
    "log": Expansion(wide_logarithm.log, 0.9),
    "log2": Expansion(wide_logarithm.log2, 1.0),
    "log1p": Expansion(wide_logarithm.log1p, 1.5),
    "pow": Expansion(wide_logarithm.pow, 1.4),
    "erf": Expansion(wide_error_function.erf, 1.1),
    "sin": Expansion(wide_trigonometry.sin, 1.5),
    "cos": Expansion(wide_trigonometry.cos, 1.5),
    "sqrt": Expansion(roots.sqrt, 0.5),
    "rsqrt": Expansion(roots.rsqrt_wide, 1.5),
}

_PICKED = {"erf": Expansion(error_function.erf_by_pieces, 1.6)}


_ROWS = (
    _row("exp", "all", Expansion(exponential.exp, 1.1), Expansion(exponential.exp_fast, 2.6, _FLUSH)),
    _row("exp2", "all", Expansion(exponential.exp2, 0.9), Expansion(exponential.exp2_fast, 2.4, _FLUSH)),
    _row("expm1", "all", Expansion(exponential.expm1, 1.5)),
    _row("sigmoid", "all", Expansion(exponential.sigmoid, 1.7), Expansion(exponential.sigmoid_fast, 3.0, _FLUSH)),
    _row("tanh", "all", Expansion(exponential.tanh, 1.8)),
    _row("log", "x >= 0", Expansion(logarithm.log, 0.9), Expansion(logarithm.log_fast, 1.2)),
    _row("log2", "x >= 0", Expansion(logarithm.log2, 1.1), Expansion(logarithm.log2_fast, 2.2)),
    _row("log1p", "x >= -1", Expansion(logarithm.log1p, 1.5)),
    _row("pow", "x >= 0, or y an integer", Expansion(power.pow, 1.0), arity=2),
    _row("erf", "all", Expansion(error_function.erf, 1.2)),
    _row("normal_cdf", "all", Expansion(error_function.normal_cdf, 2.3, _BEYOND)),
    _row("sin", "finite", Expansion(trigonometry.sin, 1.5)),
    _row("cos", "finite", Expansion(trigonometry.cos, 1.5)),
    _row("sqrt", "x >= 0", Expansion(roots.sqrt, 0.5)),
    _row("rsqrt", "x >= 0", Expansion(roots.rsqrt, 1.5)),
    _row("reciprocal", "all", Expansion(roots.reciprocal, 0.5)),
)
FUNCTIONS: dict[str, Function] = {f.name: f for f in _ROWS}

_MEASURED: dict[str, dict[str, Expansion]] = {
    "sm_90a": {
        "exp": Expansion(hardware.exp, 1.8),
        "exp2": Expansion(hardware.exp2, 1.8),
        "sigmoid": Expansion(hardware.sigmoid, 1.7),
        "tanh": Expansion(hardware.tanh, 1.9),
        "erf": Expansion(hardware.erf, 1.6),
    },
}
"""By architecture; each bound is the largest error over all 2^32 arguments on that hardware, rounded up."""
for _arch, _found in _MEASURED.items():
    for _name, _expansion in _found.items():
        FUNCTIONS[_name].hardware[_arch] = _expansion


BY_WIDE = ("exact", "storage")
"""The classes of f32 that are computed in f64 and rounded once."""


def expansion(name: str, accuracy: str = "2ulp", target: str = "") -> Expansion:
    """The expansion of function `name` in f32 for class `2ulp` or `fast` on a target. CPUs permute registers.

    Errors: `math/no-expansion`.
    """
    found = FUNCTIONS.get(name)
    if found is not None and accuracy in found.classes:
        if found.picked is not None and target.startswith("cpu"):
            return found.picked
        return found.classes[accuracy]
    known = f"one of {', '.join(FUNCTIONS)}" if found is None else f"class {' or '.join(found.classes)}"
    raise NoExpansion(
        doing=f"expanding {name} for accuracy class {accuracy}",
        found="no expansion",
        expected=known,
        hint="ask for another class in td.Numerics(functions=)" if found else "compose it of functions that have one",
    )


def wide_expansion(name: str) -> Expansion:
    """The expansion of function `name` in f64, for `wide_ops.WideOps`. Errors: `math/no-expansion`."""
    found = FUNCTIONS.get(name)
    if found is not None and found.wide is not None:
        return found.wide
    raise NoExpansion(
        doing=f"expanding {name} in f64",
        found="no expansion",
        expected=f"one of {', '.join(n for n, row in FUNCTIONS.items() if row.wide)}",
        hint="compose it of functions that have one",
    )


def by_hardware(name: str, arch: str) -> Expansion:
    """The expansion of class `2ulp` around instructions of `arch`. Errors: `math/no-expansion`."""
    found = FUNCTIONS.get(name)
    if found is not None and arch in found.hardware:
        return found.hardware[arch]
    raise NoExpansion(
        doing=f"expanding {name} around instructions of {arch}",
        found="no expansion whose error was measured there",
        expected="one of " + ", ".join(f"{n} on {a}" for a, row in _MEASURED.items() for n in row),
        hint="leave the function to the expansions that every machine computes alike",
    )
