"""`td.kernel`: a captured function that plans itself for its arguments and runs.

A `Kernel` keeps one `Specialisation` for each set of dtypes, ranks, staged values and present arguments: a program, its
argument layout, and a short list of variants. A call finds its variant by the shapes, strides and alignment of its
arguments; a variant found once is found again by one dictionary look-up.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.base.errors import TreadleError
from treadle.base.source import user_position
from treadle.driver.arguments import Call, Like, bind_arguments, frozen, known_extents, tell_call
from treadle.driver.checks import describe_flags
from treadle.driver.extents import refuse_empty, refuse_large, shape_of, solve
from treadle.driver.outputs import fresh, refuse_read
from treadle.driver.packed import element_shapes, held_as, in_bytes
from treadle.driver.ready import MISS, Ready, quick_key
from treadle.driver.repeat import Repeated, one_library
from treadle.driver.rooms import compile_native, planning, room
from treadle.driver.specialisation import Specialisation
from treadle.driver.surroundings import Surroundings
from treadle.driver.targets import resolve
from treadle.driver.tiles import factor_dims, tap_dims, wanted_dims, whole_dims
from treadle.driver.variants import Interpreted, Variant, on_host
from treadle.dtype.formats import BY_NAME
from treadle.ir.core import Program, Tensor
from treadle.ir.devices import part_names
from treadle.ir.extents import told_extents
from treadle.ir.printer import print_program
from treadle.lang.definition import Definition
from treadle.lang.errors import BadArgument, NeedsExtent
from treadle.lang.objects import plain_number
from treadle.lang.state import span_here
from treadle.runtime import native
from treadle.runtime.launch import CpuLaunch
from treadle.runtime.signature import TensorParam

if TYPE_CHECKING:
    from treadle.rules.derivation import Derivation

Launch = CpuLaunch
_ARRAY = np.ndarray
_KEPT = 1024

native.install_compiler(compile_native)


class Kernel:
    """A kernel: call it with arrays, or plan, check, bind, and inspect it.

    `kernel(*arrays, **staged)` runs it on the arrays' device and returns the Outs (one, or a tuple of several).
    *Errors*: `call/*` and `array/*` for arguments that do not fit, `capture/*` and others from capturing the function.
    """

    def __init__(self, definition: Definition, *, variants: int = 8) -> None:
        functools.update_wrapper(self, definition.fn)
        self.__qualname__: str = definition.fn.__qualname__
        self.__treadle_definition__ = definition  # a kernel called in a kernel is inlined
        self.definition = definition
        self.limit = variants
        self.gradient: Kernel | None = None
        self._special: dict[Any, Specialisation] = {}
        self._staged = {p.name for p in definition.parameters.values() if p.kind == "staged"}
        self._by_text: dict[str, Specialisation] = {}
        self._ready: dict[Any, Ready | Repeated] = {}
        self._quick: dict[Any, Ready] = {}  # the last of them for a number of arguments and staged values
        self._fixed: dict[Any, tuple[str, ...]] = {}  # dimensions that the program needs as numbers
        self._open: dict[Any, Program] = {}  # the program with fewer numbers, whose product axes tell more of them
        self._under: dict[Any, Kernel] = {}  # the same with other numerical contracts
        self._around: Surroundings | None = None  # what the captured programs were made of beside arguments

    def __repr__(self) -> str:
        return repr(self.definition)

    def __reduce__(self) -> str:
        """Copied and pickled as Python's functions are: a copy is the kernel itself, a pickle is its name."""
        return self.__qualname__

    def derivation_of(self, text: str) -> Derivation | None:
        """The steps that led to the program of that text, for a kernel under a schedule; None for one as written."""
        return None

    def under(self, numerics: Any) -> Kernel:
        """The kernel with another numerical contract, made once for each: `kernel(x, numerics=n)` is
        `kernel.under(n)(x)`, and so for `plan`, `bind`, `reference`, `sanitize` and `program`.

        *Errors*: `capture/argument` for what is no `td.Numerics`.
        """
        found = self._under.get(numerics) if isinstance(numerics, Hashable) else None
        if found is None:
            found = self._under[numerics] = Kernel(self.definition.under(numerics), variants=self.limit)
        return found

    def backward(self, other: Kernel) -> Kernel:
        """Pairs this kernel with `other`, which computes its gradients and is an ordinary kernel; gives `other`.

        *Ensures*: `kernel.gradient is other`. *Errors*: `capture/argument` for what is no kernel.
        """
        if not isinstance(other, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not type-checked
            raise BadArgument(
                doing=f"pairing {self.definition.name}.backward",
                found=f"{other!r}",
                expected="a kernel",
                hint="decorate the function that computes the gradients with td.kernel too",
            )
        self.gradient = other
        return other

    def _asked(self, staged: dict[str, Any]) -> Kernel:
        """The kernel that a call means: `numerics=`, unless it is a parameter, is taken out of `staged`."""
        if "numerics" not in staged or "numerics" in self.definition.parameters:
            return self
        return self.under(staged.pop("numerics"))

    def _forget(self) -> None:
        """Captures anew from now on: a global, a closure or a function that the kernel uses is another."""
        self.definition = self.definition.under(self.definition.numerics)
        self.__treadle_definition__ = self.definition
        self._around = None
        self._special.clear()
        self._ready.clear()
        self._quick.clear()
        self._fixed.clear()
        self._open.clear()

    # ---- running

    def __call__(self, *args: Any, **staged: Any) -> Any:
        if self._around is not None and self._around.changed():
            self._forget()
        known = self._quick.get(quick_key(len(args), staged) if staged else len(args))
        if known is not None:
            outs = known.quick(args)
            if outs is not MISS:
                return outs
        return self._call(args, staged)

    def _call(self, args: tuple[Any, ...], staged: dict[str, Any]) -> Any:
        """A call that is not of the last few layouts."""
        key: Any = tuple([(a.dtype, a.ndim) if a.__class__ is _ARRAY else a.__class__ for a in args])
        if staged:
            asked = self._asked(staged)
            if asked is not self:
                return asked(*args, **staged)
            # Arrays that come by keyword have no short way, and are too large to be part of a key.
            key = (key, frozen(staged)) if self._staged.issuperset(staged) else None
        ready = self._ready.get(key)
        if ready is not None:
            outs = ready.run(args)
            if outs is not MISS:
                if isinstance(ready, Ready) and ready.takes:
                    self._keep_quick(ready, len(args), staged)
                return outs
        special, call = self.prepare(args, staged)
        variant = special.run(call)
        if isinstance(variant, Variant) and special.short and not call.lists:
            learn = self._learn if call.device == "cpu" else self._learn_launches
            learn(key, args, staged, special, call, variant)
        return call.outs

    def _keep_quick(self, ready: Ready, count: int, staged: dict[str, Any]) -> None:
        """Has calls with as many arguments and these staged values ask this one first."""
        if len(self._quick) > _KEPT:
            self._quick.clear()
        key = quick_key(count, staged) if staged else count
        if key is not None:
            self._quick[key] = ready

    def bind(self, *args: Any, **staged: Any) -> Any:
        """The kernel on these arguments, made ready: `f()` runs it again and returns the Outs.

        Arguments are checked once and kept alive; omitted Outs are allocated once.
        """
        special, call = self._asked(staged).prepare(args, staged)
        return special.bind(call)

    def reference(self, *args: Any, **staged: Any) -> Any:
        """What a call does, by the reference interpreter: no planner, no generated code. Returns the Outs.

        Under a Python debugger, and where the kernel says `breakpoint()`, the lines of the kernel run in a frame of
        their own, with its names at hand as NumPy arrays.
        """
        special, call = self._asked(staged).prepare(args, staged)
        stepping = room("stepping")
        seen = stepping.wants_stepping(special.program)
        evaluate = stepping.evaluate_stepping if seen else room("interpreter").evaluate
        try:
            with on_host(special.program, call) as (program, arrays):
                evaluate(program, arrays, call.scalars, extents=call.extents)
        finally:
            if seen:
                stepping.resume_tracing()
        return call.outs

    def sanitize(self, *args: Any, **staged: Any) -> list[Any]:
        """Findings of the checked interpreter on these arguments, which stay as they are; empty when all is well.

        Every index of every region is interpreted on its own, about 0.1 ms each: pass small arrays.
        """
        asked = self._asked(staged)
        given = set(bind_arguments(self.definition, args, staged, described=False).shapes)
        special, call = asked.prepare(args, staged)
        fresh_ones = {t.name for t in special.program.tensors if t.name not in given}
        with on_host(special.program, call, stack=True) as (program, arrays):
            return room("sanitize").sanitize(program, arrays, call.scalars, call.extents, fresh=fresh_ones)

    # ---- planning

    def plan(
        self,
        *args: Any,
        target: str | None = None,
        where: Any = (),
        search: str = "enumerate",
        budget: float | None = None,
        **staged: Any,
    ) -> Any:
        """The plan for these arguments (arrays, or `td.like`), as a `Plan`. Needs no device.

        `where` pins decisions, one or several: `td.tile(...)`, `td.place(...)`, `td.atom(...)`, `td.versions(...)`.
        `search` is "enumerate", "solve", "beam" or "anneal"; it ends after `budget` seconds.
        """
        kind = resolve(target).partition(":")[0] if target is not None else None
        asked = self._asked(staged)
        special, call = asked.prepare(args, staged, allocate=False, kind=kind)
        return room("plan").plan_call(asked, special, call, target, where, search, budget)

    def tune(self, *args: Any, budget: float = 60.0, **staged: Any) -> Any:
        """The fastest plan that a measured search of `budget` seconds finds for these arguments, as a `Tuned`; calls
        of their class use it from now on, in later processes too. The arguments stay as they are.

        `print(kernel.tune(...))` shows all trials; `.plan` is the plan, to run, show, save. Ctrl-C keeps the best so
        far. *Errors*: `tune/unsupported`; `capture/argument` for a budget that is no number of seconds.
        """
        seconds = plain_number(budget)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
            raise BadArgument(
                doing=f"tuning {self.definition.name}",
                found=f"budget={budget!r}",
                expected="seconds, more than 0",
                hint="leave budget= out for a minute",
                span=user_position(),
            )
        asked = self._asked(staged)
        special, call = asked.prepare(args, staged)
        with room("tuning_progress").progress_bar(self.definition.name) as progress:
            tuned = room("tuning").tune_call(special, call, kernel=asked, budget=float(seconds), progress=progress)
        for one in (self, asked):
            one._ready.clear()
            one._quick.clear()
        return tuned

    @property
    def variants(self) -> list[Variant | Interpreted]:
        """The variants that calls have made so far; last, what ran in the reference interpreter, and why."""
        specials = [i for s in self._by_text.values() for i in s.every()]
        compiled = [v for s in specials for v in s.variants]
        slow = [v for s in specials for v in s.interpreted.values()]
        return [*compiled, *slow, *(v for k in self._under.values() for v in k.variants)]

    def program(self, *args: Any, **staged: Any) -> Program:
        """The captured program for these arguments (arrays or `td.like`)."""
        return self._asked(staged).prepare(args, staged, allocate=False)[0].program

    # ---- the way to a call

    def prepare(
        self, args: tuple[Any, ...], staged: dict[str, Any], *, allocate: bool = True, kind: str | None = None
    ) -> tuple[Specialisation, Call]:
        """The specialisation for a call, and the call with its extents known and omitted Outs allocated.

        Without `allocate`, arguments may be `td.like`, and omitted Outs are only described. `kind` is that of the
        target, when it is not the one of the arguments' device.
        """
        if self._around is not None and self._around.changed():
            self._forget()
        try:
            return self._prepare(args, staged, allocate, kind)
        except TreadleError as error:
            tell_call(error)
            raise

    def _prepare(
        self, args: tuple[Any, ...], staged: dict[str, Any], allocate: bool, kind: str | None
    ) -> tuple[Specialisation, Call]:
        call = bind_arguments(self.definition, args, staged, described=not allocate)
        kind = kind or call.device.partition(":")[0]
        fixed = self._fixed.get((kind, call.key), ())
        key = (kind, call.key, tuple(self._known(kind, call, fixed).items()))
        special = self._special.get(key)
        if special is None:
            with planning():
                special = self._special.get(key) or self._specialise(call, kind)
        call.extents = solve(special.program, call.shapes, call.scalars)
        refuse_large(special.program, call.extents, call.scalars, tested=special.tests_indices)
        if special.has_positions:
            refuse_empty(special.program, call.extents)
        self._outputs(special, call, allocate)
        if not allocate:
            describe_flags(special.expanded, call)
        return special, call

    def _learn(
        self, key: Any, args: tuple[Any, ...], staged: dict[str, Any], special: Specialisation, call: Call, ran: Variant
    ) -> None:
        """Remembers the short way of a call whose arrays are NumPy's and came by position."""
        parameters = self.definition.parameters
        if any(parameters[name].kind != "staged" for name in staged):
            return
        whole = special.signature
        by_name = {p.name: p for p in whole.params}
        names = [p.name for p in parameters.values() if p.kind != "staged"]
        if any(t.dtype.packed and t.out for t in special.program.tensors):
            return  # an output of half bytes is cleared when it is allocated
        passed = [(by_name[n], a) for n, a in zip(names, args, strict=False) if a is not None]
        if any(isinstance(p, TensorParam) and type(a) is not _ARRAY for p, a in passed):
            return
        ready = self._ready.get(key)
        if not isinstance(ready, Ready):
            if len(self._ready) > _KEPT:
                self._ready.clear()
                self._quick.clear()
            ready = self._ready[key] = Ready(whole, [p for p, _ in passed], len(passed) < len(args))
        outs = {t.name: call.arrays[t.name] for t in special.program.tensors if t.out}
        ready.learn(args, ran.kernel, whole, outs)

    def _learn_launches(
        self, key: Any, args: tuple[Any, ...], staged: dict[str, Any], special: Specialisation, call: Call, ran: Variant
    ) -> None:
        """Remembers the short way of a call whose arrays are torch's or CuPy's, on a GPU, and came by position."""
        parameters, library = self.definition.parameters, one_library(args)
        if not library or any(parameters[name].kind != "staged" for name in staged):
            return
        block = special.packer.pack(special.arguments(call))
        if not block.apart and not ran.admits(special.facts(call)):
            return  # an input was copied first: the long way does that
        made = ran.kernel.ready(block)
        ready = self._ready.get(key)
        if not isinstance(ready, Repeated):
            if len(self._ready) > _KEPT:
                self._ready.clear()
            ready = self._ready[key] = Repeated(library)
        names = [p.name for p in parameters.values() if p.kind != "staged"]
        outs = {t.name: call.arrays[t.name] for t in special.program.tensors if t.out}
        ready.learn(args, names, outs, made.ordinal, made.enqueue)

    def _specialise(self, call: Call, kind: str) -> Specialisation:
        """Captures the program; a dimension that Python, or a target's tiles, need as a number is part of the key."""
        if self._around is None:
            self._around = Surroundings(self.definition)
        self._around.add(call.staged.values())
        fixed = self._fixed.get((kind, call.key), ())
        present = frozenset((*call.shapes, *call.scalars))
        while True:
            extents = self._known(kind, call, fixed)
            try:
                program = self.definition.capture(call.dtypes, call.staged, present, extents=extents)
            except NeedsExtent as error:
                if error.name in fixed or error.name not in known_extents(self.definition, call, (error.name,)):
                    raise
                fixed = (*fixed, error.name)
                continue
            if kind == "cuda":
                whole = tuple(n for n in self._whole(program, call) if n not in fixed)
                if whole:
                    fixed = (*fixed, *whole)
                    self._open[kind, call.key] = program
                    continue
            text = print_program(program)
            special = self._by_text.setdefault(text, Specialisation(program, text, self.limit))
            self._fixed[kind, call.key] = fixed
            if len(self._special) > _KEPT:  # a staged function made anew for each call is a new key each time
                self._special.clear()
            self._special[(kind, call.key, tuple(extents.items()))] = special
            return special

    def _whole(self, program: Program, call: Call) -> list[str]:
        """Dimensions that tiles want as numbers, and may have."""
        names = whole_dims(program) + factor_dims(program) + tap_dims(program)
        return wanted_dims(program, told_extents(program, element_shapes(program, call.shapes))) if names else []

    def _known(self, kind: str, call: Call, names: tuple[str, ...]) -> dict[str, int]:
        """Extents of the named dimensions: those that arguments tell directly, and factors of product axes."""
        found = known_extents(self.definition, call, names)
        program = self._open.get((kind, call.key)) if len(found) < len(names) else None
        if program is not None:
            told = told_extents(program, element_shapes(program, call.shapes))
            found |= {n: told[n] for n in names if n in told and n not in found}
        return found

    def _outputs(self, special: Specialisation, call: Call, allocate: bool) -> None:
        """Allocates omitted Outs (or describes them, for planning), in the dtype that the program stores."""
        program, passed = special.program, call.shapes
        for tensor in program.tensors:
            if tensor.out and tensor.name not in passed:
                if allocate and tensor.name in special.read_first:
                    raise refuse_read(program, tensor.name)
                shape = shape_of(program, tensor, call.extents)
                names, parameters = [tensor.name], list(self.definition.parameters)
                if tensor.devices:
                    names, shape = part_names(tensor.name, shape[0], parameters), shape[1:]
                    call.lists[tensor.name] = tuple(names)
                for name in names:
                    self._output(program, tensor, name, shape, call, allocate)
        call.order_outs([t.name for t in program.tensors if t.out])

    def _output(
        self, program: Program, tensor: Tensor, name: str, shape: tuple[int, ...], call: Call, allocate: bool
    ) -> None:
        """One array of an omitted output."""
        if not allocate:
            call.views[name] = Like(BY_NAME[tensor.dtype.name], shape).view(name)
            return
        held, dtype = in_bytes(tensor.dtype, shape), held_as(tensor.dtype)
        made = fresh(program.name, name, held, dtype.name, call.device, call.arrays.values())
        if tensor.dtype.packed:
            made[...] = 0
        call.give(name, made)


def kernel(function: Any = None, /, *, numerics: Any = None, variants: int = 8) -> Any:
    """Makes a kernel of a function: `@td.kernel`, or `@td.kernel(numerics=td.Numerics(...), variants=1)`.

    `variants` bounds how many plans the kernel may keep for different shapes.
    *Errors*: `capture/no-source` when the function's source cannot be read; `capture/*` for a signature that is wrong.
    """
    plans = plain_number(variants)
    if isinstance(plans, bool) or not isinstance(plans, int) or plans < 1:
        raise BadArgument(
            doing="making a kernel with td.kernel",
            found=f"variants={variants!r}",
            expected="how many plans it may keep, an integer of at least 1",
            hint="leave variants= out for at most 8",
            span=span_here(),
        )
    # String annotations may name what only the defining scope knows.
    frame = inspect.currentframe()
    names: dict[str, Any] = dict(frame.f_back.f_locals) if frame is not None and frame.f_back is not None else {}

    def define(fn: Any) -> Kernel:
        return Kernel(Definition(fn, numerics, names), variants=variants)

    return define if function is None else define(function)
