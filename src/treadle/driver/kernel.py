"""`td.kernel`: a captured function that plans itself for its arguments and runs.

A `Kernel` keeps one `Specialisation` for each set of dtypes, ranks, staged values and present arguments: a program, its
argument layout, and a short list of variants. A call finds its variant by the shapes, strides and alignment of its
arguments; a variant found once is found again by one dictionary look-up.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.driver.arguments import Call, Like, bind_arguments, known_extents
from treadle.driver.extents import shape_of, solve
from treadle.driver.rooms import compile_native, room
from treadle.driver.specialisation import Specialisation
from treadle.driver.variants import Variant
from treadle.dtype.formats import BY_NAME
from treadle.ir.core import Program
from treadle.lang.definition import Definition
from treadle.lang.errors import NeedsExtent
from treadle.runtime import native
from treadle.runtime.launch import CpuLaunch
from treadle.runtime.memory import empty

Launch = CpuLaunch

native.install_compiler(compile_native)


class Kernel:
    """A kernel: call it with arrays, or plan, check, bind, and inspect it.

    `kernel(*arrays, **staged)` runs it on the arrays' device and returns the Outs (one, or a tuple of several).
    *Errors*: `call/*` and `array/*` for arguments that do not fit, `capture/*` and others from capturing the function.
    """

    def __init__(self, definition: Definition, *, variants: int = 8) -> None:
        functools.update_wrapper(self, definition.fn)
        self.__treadle_definition__ = definition  # a kernel called in a kernel is inlined
        self.definition = definition
        self.limit = variants
        self._special: dict[Any, Specialisation] = {}
        self._fixed: dict[Any, tuple[str, ...]] = {}  # dimensions that the program needs as numbers
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<treadle kernel {self.definition.name}>"

    # ---- running

    def __call__(self, *args: Any, **staged: Any) -> Any:
        special, call = self.prepare(args, staged)
        return special.run(call)

    def bind(self, *args: Any, **staged: Any) -> Launch:
        """The kernel on these arguments, made ready: `f()` runs it again and returns the Outs.

        Arguments are checked once and kept alive; omitted Outs are allocated once.
        """
        special, call = self.prepare(args, staged)
        return special.bind(call)

    def reference(self, *args: Any, **staged: Any) -> Any:
        """What a call does, by the reference interpreter: no planner, no generated code. Returns the Outs."""
        special, call = self.prepare(args, staged)
        arrays = {name: np.asarray(a) for name, a in call.arrays.items()}
        room("interpreter").evaluate(special.program, arrays, call.scalars, extents=call.extents)
        return call.outs

    def sanitize(self, *args: Any, **staged: Any) -> list[Any]:
        """Findings of the checked interpreter on these arguments, which stay as they are; empty when all is well."""
        special, call = self.prepare(args, staged)
        arrays = {name: np.asarray(a) for name, a in call.arrays.items()}
        return room("sanitize").sanitize(special.program, arrays, call.scalars, call.extents)

    # ---- planning

    def plan(self, *args: Any, target: str | None = None, where: Sequence[Any] = (), **staged: Any) -> Any:
        """The plan for these arguments (arrays, or `td.like`), as a `Plan`. Needs no device.

        `where` pins decisions: `td.tile(...)`, `td.place(...)`, `td.atom(...)`, `td.versions(...)`.
        """
        special, call = self.prepare(args, staged, allocate=False)
        return room("plan").plan_call(self, special, call, target, where)

    @property
    def variants(self) -> list[Variant]:
        """The variants that calls have made so far."""
        return [v for s in self._special.values() for v in s.variants]

    def program(self, *args: Any, **staged: Any) -> Program:
        """The captured program for these arguments (arrays or `td.like`)."""
        return self.prepare(args, staged, allocate=False)[0].program

    # ---- the way to a call

    def prepare(
        self, args: tuple[Any, ...], staged: dict[str, Any], *, allocate: bool = True
    ) -> tuple[Specialisation, Call]:
        """The specialisation for a call, and the call with its extents known and omitted Outs allocated."""
        call = bind_arguments(self.definition, args, staged)
        fixed = self._fixed.get(call.key, ())
        key = (call.key, tuple(known_extents(self.definition, call, fixed).items()))
        special = self._special.get(key)
        if special is None:
            with self._lock:
                special = self._special.get(key) or self._specialise(call, key)
        call.extents = solve(special.program, {n: v.shape for n, v in call.views.items()})
        self._outputs(special.program, call, allocate)
        return special, call

    def _specialise(self, call: Call, key: Any) -> Specialisation:
        """Captures the program; a dimension that Python needs as a number becomes part of the key."""
        fixed = self._fixed.get(call.key, ())
        while True:
            extents = known_extents(self.definition, call, fixed)
            try:
                special = Specialisation(self.definition, call, self.limit, extents)
            except NeedsExtent as error:
                if error.name in fixed or error.name not in known_extents(self.definition, call, (error.name,)):
                    raise
                fixed = (*fixed, error.name)
                continue
            self._fixed[call.key] = fixed
            self._special[(call.key, tuple(extents.items()))] = special
            return special

    def _outputs(self, program: Program, call: Call, allocate: bool) -> None:
        """Allocates omitted Outs (or describes them, for planning), in the dtype that the program stores."""
        for tensor in program.tensors:
            if not tensor.out:
                continue
            if tensor.name not in call.views:
                shape = shape_of(program, tensor, call.extents)
                if allocate:
                    call.give(tensor.name, empty(shape, tensor.dtype.name))
                else:
                    call.views[tensor.name] = Like(BY_NAME[tensor.dtype.name], shape).view(tensor.name)
        call.order_outs([t.name for t in program.tensors if t.out])


def kernel(function: Any = None, /, *, numerics: Any = None, variants: int = 8) -> Any:
    """Makes a kernel of a function: `@td.kernel`, or `@td.kernel(numerics=td.Numerics(...), variants=1)`.

    `variants` bounds how many plans the kernel may keep for different shapes.
    *Errors*: `capture/no-source` when the function's source cannot be read; `capture/*` for a signature that is wrong.
    """
    # String annotations may name what only the defining scope knows.
    frame = inspect.currentframe()
    names: dict[str, Any] = dict(frame.f_back.f_locals) if frame is not None and frame.f_back is not None else {}

    def define(fn: Any) -> Kernel:
        return Kernel(Definition(fn, numerics, names), variants=variants)

    return define if function is None else define(function)
