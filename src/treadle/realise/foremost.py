"""What a row needs beside its own elements, asked for with them.

A task that folds its row waits for each fold; what it loads behind one (the scale and shift of a norm, say) is asked
for when the row's elements have long come, and takes its way through the caches with nothing to hide it. Such a load
moves to the first load of its task, where registers have room for what it brings.
"""

from __future__ import annotations

from treadle.machine.form import Body, Claim, Fold, Let, Load, MachineProgram, Store, Tasks, walk


def loads_first(machine: MachineProgram) -> MachineProgram:
    """The program with the loads that stand behind folds of their tasks in front of them.

    *Ensures*: every element is loaded as often as before, from tensors that nothing stores to.
    """
    for kernel in machine.kernels:
        stored = {s.dst.name for r in kernel.roles for s in walk(r.body) if isinstance(s, Store)}
        tensors = {t.name for t in machine.program.tensors} - stored
        for tasks in (s for r in kernel.roles for s in walk(r.body) if isinstance(s, Tasks)):
            tasks.body[:] = _sorted(tasks.body, tensors)
    return machine


def _sorted(body: Body, tensors: set[str]) -> Body:
    written = [str(getattr(s, "dst", "")) for s in walk(body)]
    fold = next((n for n, s in enumerate(body) if isinstance(s, Fold)), len(body))
    named = {s.name for s in walk(body) if isinstance(s, Let)}
    late = [s for s in body[fold:] if isinstance(s, Load) and _free(s, tensors, named) and written.count(s.dst) == 1]
    reads = [n for n, s in enumerate(body[:fold]) if isinstance(s, Load)]
    if not late or not reads:
        return body
    rest = [s for s in body if not any(s is x for x in late)]
    return [*rest[: reads[-1] + 1], *late, *rest[reads[-1] + 1 :]]


def _free(item: Load, tensors: set[str], named: set[str]) -> bool:
    """Whether a load is of a tensor at places that nothing loaded, computed or named in the task tells."""
    exprs = [*item.src.index, *(c.expr for c in item.where)]
    if item.src.name not in tensors or not isinstance(item.claim, Claim) or item.by:
        return False
    return not any(e.functions or e.symbols & named for e in exprs)
