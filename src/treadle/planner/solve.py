"""The exact solver (CP-SAT, extra `solve`) over the same points: the offline judge of what other searches miss.

How costs enter: a family's cost is a function that the solver cannot look into, so it is tabulated. Each scope is one
table: the settings of its axes, and the predicted time in whole picoseconds; axes that scopes share are one variable,
the objective is the sum of the tables, what scopes hold together is bounded. For a family that decides all scopes at
once that is one table of all points: then the solver checks the enumeration and saves nothing. For families of several
scopes the tables are far smaller than their product.

A clock that ends while tables are filled leaves a table of some points: what is found is an incumbent. One that ends
later leaves the bound that the solver has proved. A time-out is never taken for a proof that there is no point.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

from treadle.base.errors import UserError
from treadle.plan.family import Composed
from treadle.planner.compose import Settings, rows
from treadle.planner.space import Space

UNIT = 1e-12
"""Seconds of one step of the objective."""

MOST = 1 << 50
"""What a table may say: longer times are as bad as this one."""

SCALE = 1 << 40
"""Steps into which a limit is cut; what is held is rounded up to one, so that no limit is exceeded."""


class SolverAbsent(UserError):
    """The exact search without its solver."""

    code = "plan/no-solver"


Row = tuple[Settings, float, Mapping[str, float]]


def solver() -> Any:
    """The solver's module. *Errors*: `plan/no-solver`."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise SolverAbsent(
            doing="planning with search='solve'",
            found=f"no solver: {error}",
            expected="OR-tools, the extra `solve`",
            hint="leave search= out, which proves the same optimum, or ./dev setup solve in a checkout",
        ) from error


def solve(space: Space) -> float:
    """Asks the solver for the cheapest point, prices it, and returns a proved lower bound of all points, in seconds (0:
    none). *Errors*: `plan/no-solver`."""
    cp = solver()
    tables = _tables(space)
    whole = not space.over()
    if any(not table for table in tables):
        if whole:
            space.whole()  # a scope without any setting: no point can run
        return 0.0
    model = cp.CpModel()
    places = {a.name: model.new_int_var(0, len(a.values) - 1, a.name) for a in space.axes}
    totals: list[Any] = []
    limits = _limits(space)
    held: dict[str, list[Any]] = {kind: [] for kind in limits}
    for number, table in enumerate(tables):
        names = sorted({name for settings, _, _ in table for name, _ in settings})
        kinds = sorted(limits)
        time = model.new_int_var(0, MOST, f"time {number}")
        uses = [model.new_int_var(0, MOST, f"{kind} {number}") for kind in kinds]
        lines = [
            [
                *(dict(settings)[n] for n in names),
                _steps(seconds),
                *(_part(holds.get(k, 0.0), limits[k]) for k in kinds),
            ]
            for settings, seconds, holds in table
        ]
        model.add_allowed_assignments([*(places[n] for n in names), time, *uses], lines)
        totals.append(time)
        for kind, used in zip(kinds, uses, strict=True):
            held[kind].append(used)
    for uses in held.values():
        model.add(sum(uses) <= SCALE)
    model.minimize(sum(totals))
    return _answer(space, cp, model, places, whole, len(tables))


def _answer(space: Space, cp: Any, model: Any, places: Mapping[str, Any], whole: bool, tables: int) -> float:
    run = cp.CpSolver()
    run.parameters.num_workers = 1  # one answer for one question
    run.parameters.random_seed = 0
    left = space.clock.left()
    if left is not None:
        run.parameters.max_time_in_seconds = max(left, 0.05)
    status = run.solve(model)
    if status in (cp.OPTIMAL, cp.FEASIBLE):
        space.price(tuple(run.value(places[a.name]) for a in space.axes))
    if not whole:
        return 0.0
    if status in (cp.OPTIMAL, cp.INFEASIBLE):
        space.whole()
        return 0.0
    # Each table's times are rounded: by half a step at most.
    return max(0.0, (run.best_objective_bound - 0.5 * tables) * UNIT)


def _tables(space: Space) -> list[list[Row]]:
    scopes = space.scopes()
    if scopes:
        return [[(settings, share.cost.total, share.holds) for settings, share in rows(space, s)] for s in scopes]
    table: list[Row] = []
    for index in space.indices():
        if space.over():
            break
        seconds = space.price(index)
        if not math.isinf(seconds):
            named = zip((a.name for a in space.axes), index, strict=True)
            table.append((tuple(named), seconds, {}))
    return [table]


def _limits(space: Space) -> Mapping[str, float]:
    family = space.family
    return family.limits(space.program, space.facts) if space.scopes() and isinstance(family, Composed) else {}


def _part(held: float, most: float) -> int:
    """The steps of a limit that are taken; more than all of them where it is exceeded."""
    return min(2 * SCALE, math.ceil(held / most * SCALE)) if most > 0 else (0 if held <= 0 else 2 * SCALE)


def _steps(seconds: float) -> int:
    return min(MOST, round(seconds / UNIT))
