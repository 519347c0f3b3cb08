"""J6: every permission that the judged text spends, by what it does or by a line of its ledger, the program grants; and
every line of the ledger is spent.

What statements do is found where they are judged (`Spent`): fused products, regrouped folds, flushing atoms. Emitters
read ledger lines (functions by the hardware), so a line is more than a note: one that no statement needs says something
else than the text does, and is refused. A permission that is spent without a line stands in the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.checker.verdict import Refused, Spent, Unsure
from treadle.ir.ops.elementwise import Elementwise
from treadle.machine.form import Compute, MachineProgram, Stmt
from treadle.machine.vocabulary import APPROXIMATE


def granted(numerics: Mapping[str, object], name: str) -> bool:
    """Whether a program grants a permission that a contracting instruction spends."""
    match name:
        case "mma_subnormals":
            return (numerics.get("mma_subnormals") or "any") != "keep"
        case "tf32":
            return numerics.get("tf32", False) is True
        case "fp8_accumulate":
            return numerics.get("fp8_accumulate") == "hardware"
        case _:
            return False


def check_permissions(program: MachineProgram, spent: Spent) -> None:
    """Adds the ledger's permissions to what was spent. *Errors*: refused, or unsure of an unknown word, J6."""
    numerics = program.program.numerics
    functions = str(numerics.get("functions") or "2ulp")
    for stmt in program.statements():
        if isinstance(stmt, Stmt) and APPROXIMATE in stmt.tags:
            if functions != "fast":
                reason = "a statement hands its function to the hardware, which the program does not grant"
                raise Refused("J6", reason, {}, at=stmt)
            spent.names.add("functions")
    done = frozenset(spent.names)
    for line in program.numerics:
        word = line.partition(":")[0].split(" ")[0]
        match word:
            case "contract":
                allowed = numerics.get("contract", True) is not False
            case "mma_subnormals" | "tf32" | "fp8_accumulate":
                allowed = granted(numerics, word)
            case "functions" if "by the hardware's " in line and "by the hardware (" not in f"{line} (":
                # expansions around instructions, measured to keep the class; their bits are the machine's own
                allowed = functions not in ("exact", "storage")
            case "functions" if "by the hardware" in line:
                allowed = functions == "fast"
            case "functions":
                allowed = functions != "exact"
            case "regroup" | "permute":
                allowed = True  # a note: the order of every fold is judged at its steps
            case _:
                raise Unsure("J6", f"the permission {word!r}", missing="a rule for it")
        if not allowed:
            raise Refused("J6", f"the text spends what the program does not grant: {line}", {})
        if not _needed(program, word, line, done):
            raise Refused("J6", f"nothing in the text spends what its ledger says: {line}", {})
        spent.names.add(word)


def _needed(program: MachineProgram, word: str, line: str, done: frozenset[str]) -> bool:
    """Whether statements do what a line says; of functions, whether the program has them."""
    if word == "functions":
        named = {n.strip() for n in line.partition(":")[2].partition(" by ")[0].split(",")}
        have = {s.fn for s in program.statements() if isinstance(s, Compute)}
        have |= {op.fn for op in program.program.body.walk() if isinstance(op, Elementwise)}
        return named <= have
    return word in done or word == "permute"  # the order of every fold is judged at its steps
