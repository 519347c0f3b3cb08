"""The reference interpreter under a Python debugger: the user's own lines run, one after another, in Python frames.

A debugger of Python sees frames and lines, and a captured function has none while it is evaluated. Here each call of
a function of the user's gets a frame (`frames.code_of`) that stands on the line of the statement that runs next, and
whose local names hold what they hold in the run: tiles as NumPy arrays, blocks as ranges, tensors as the arrays
themselves. Breakpoints on lines and functions, stepping, `where`, `up` and expressions work as in any function.

The program is evaluated in a thread of its own, which stops at every statement until the frame on top goes on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Part
from treadle.algebra.expr import Expr
from treadle.evaluate.frames import CALL, CODE, ERROR, FRAME, GLOBALS, LINE, LOCALS, NEXT, STOP, arm_key, code_of
from treadle.evaluate.interpreter import evaluate
from treadle.evaluate.watch import Silent, State
from treadle.ir.core import Block, Op, Program, Tensor, Value
from treadle.ir.trail import Call, Step, Trail, trail_of


def debugged() -> bool:
    """Whether a debugger watches this thread (a tool that only counts lines is none)."""
    tracer = sys.gettrace()
    if tracer is not None:
        module = getattr(tracer, "__module__", None) or type(tracer).__module__
        return not str(module).startswith("coverage")
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


def wants_stepping(program: Program) -> bool:
    """Whether an evaluation is to be seen by a debugger: one watches, or the user wrote `breakpoint()`."""
    trail = trail_of(program)
    return trail is not None and (trail.stops or debugged())


def evaluate_stepping(
    program: Program,
    arrays: Mapping[str, NDArray[Any]],
    scalars: Mapping[str, int | float | bool] | None = None,
    *,
    extents: Mapping[str, int],
) -> None:
    """`evaluate`, statement by statement in frames of the user's functions. *Requires*: the program has a trail.

    A tracer is off when it returns, and on again after `resume_tracing`: what lies between is not the user's code.
    """
    trail = trail_of(program)
    assert trail is not None
    stepper = Stepper(trail)

    def work() -> None:
        try:
            evaluate(program, arrays, scalars, extents=extents, watcher=stepper)
        except Abandoned:
            return
        except BaseException as error:
            stepper.finish(error)
        else:
            stepper.finish(None)

    thread = threading.Thread(target=work, name=f"reference of {program.name}", daemon=True)
    thread.start()
    stepper.ready.acquire()
    _hide_callers()
    try:
        if stepper.stack:
            root = stepper.stack[0]
            exec(code_of(root.call), root.call.globals, root.names)
        elif stepper.error is not None:
            raise stepper.error
    finally:
        _paused.tracer = sys.gettrace()
        sys.settrace(None)
        _hide_callers()
        stepper.abandon()
        thread.join()


class _Paused(threading.local):
    tracer: Any = None


_paused = _Paused()


def resume_tracing() -> None:
    """Gives the thread the tracer back that `evaluate_stepping` took."""
    tracer, _paused.tracer = _paused.tracer, None
    if tracer is not None:
        sys.settrace(tracer)


def _hide_callers() -> None:
    """No debugger stops in treadle's own frames between the user's call and the user's kernel."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # a debugger would step into the public one
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("treadle."):
        frame.f_trace_lines = False
        frame.f_trace = None
        frame = frame.f_back


class Abandoned(BaseException):
    """The frames are gone (the user quit the debugger), so the evaluation ends."""


class NotComputed:
    """What a name shows whose value no later statement uses, so that it is never computed."""

    def __repr__(self) -> str:
        return "<not computed: no later statement uses it>"


class Activation:
    """A frame of a call: the list that its code reads, and its local names."""

    def __init__(self, call: Call, stepper: Stepper) -> None:
        self.call = call
        self.line = call.line
        self.s: list[Any] = [arm_key(call.line, LINE), None, None, None, None, None]
        self.hidden: dict[str, Any] = {
            ".s": self.s,
            ".go": stepper.resume.release,
            ".wait": stepper.ready.acquire,
            ".exec": exec,
            ".stop": breakpoint,
            ".frame": sys._getframe,  # pyright: ignore[reportPrivateUsage]  # a debugger would step into the public one
        }
        self.names: dict[str, Any] = dict(self.hidden)

    def line_events(self, on: bool) -> None:
        """Whether debuggers see the frame change its line next; it may not have begun."""
        if self.s[FRAME] is not None:
            self.s[FRAME].f_trace_lines = on

    def leave(self) -> None:
        """It returns when it goes on."""
        self.s[NEXT] = 0
        self.line_events(False)

    def enter(self, other: Activation) -> None:
        """It calls another frame when it goes on, from the line on which it is."""
        self.s[CODE], self.s[GLOBALS], self.s[LOCALS] = code_of(other.call), other.call.globals, other.names
        self.s[NEXT] = arm_key(self.line, CALL)
        self.line_events(False)

    def show(self, step: Step, trail: Trail, state: State) -> None:
        """It stands before a statement when it goes on."""
        self.line = step.line
        self.s[NEXT] = arm_key(step.line, STOP if step.stop else LINE)
        self.line_events(True)
        shown = {n: trail.mapped(v, lambda _, leaf: concrete(leaf, state)) for n, v in step.names.items()}
        self.names.clear()
        self.names.update(shown | self.hidden)


class Stepper(Silent):
    """The watcher that stops the evaluation at each statement until the frame on top goes on."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.stack: list[Activation] = []
        self.error: BaseException | None = None
        self.over = False
        self.left = False
        # Two locks hand the turn over; both are held while nobody hands it.
        self.resume, self.ready = threading.Lock(), threading.Lock()
        self.resume.acquire()
        self.ready.acquire()

    def abandon(self) -> None:
        """Lets an evaluation end that waits for frames which are gone."""
        self.left = True
        if not self.over:
            self.resume.release()

    # ---- in the thread of the evaluation

    def reach(self, place: Op | Block, state: State) -> None:
        steps = self.trail.before.get(place) if isinstance(place, Op) else self.trail.at_end.get(place)
        for step in steps or ():
            self.stand(step, state)
            self.ready.release()
            self.resume.acquire()
            if self.left:
                raise Abandoned

    def stand(self, step: Step, state: State) -> None:
        """The frames of the calls around a statement; the innermost stands on it."""
        chain = step.call.chain
        common = 0
        while common < min(len(chain), len(self.stack)) and self.stack[common].call is chain[common]:
            common += 1
        for activation in self.stack[common:]:
            activation.leave()
        del self.stack[common:]
        for call in chain[common:]:
            activation = Activation(call, self)
            if self.stack:
                self.stack[-1].enter(activation)
            self.stack.append(activation)
        self.stack[-1].show(step, self.trail, state)

    def finish(self, error: BaseException | None) -> None:
        """The evaluation is over: frames return, or the innermost raises the error."""
        self.over = True
        self.error = error
        for activation in self.stack:
            activation.leave()
        if self.stack:
            self.stack[-1].s[ERROR] = error
        self.ready.release()


def concrete(leaf: Any, state: State) -> Any:
    """What a debugger shows for a leaf: an array, a number or a range."""
    match leaf:
        case Value():
            tile = state.values.get(leaf.name)
            return NotComputed() if tile is None else _shown(tile.data)
        case Tensor():
            return state.arrays.get(leaf.name)
        case Part():
            return _tried(lambda: range(*state.range(leaf)), str(leaf))
        case Expr():
            return _tried(lambda: int(state.number(leaf)), NotComputed())
        case _:
            return leaf


def _shown(data: NDArray[Any]) -> Any:
    return data[()] if data.ndim == 0 else np.asarray(data)


def _tried(make: Any, otherwise: Any) -> Any:
    """What `make` gives; something else where a symbol has no value yet."""
    try:
        return make()
    except (KeyError, TypeError):
        return otherwise
