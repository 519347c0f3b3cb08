"""J6: every permission that the judged text spends, by what it does or by a line of its ledger, the program grants.

Emitters read ledger lines (functions by the hardware), so a line is more than a note.
"""

from __future__ import annotations

from treadle.checker.verdict import Refused, Spent, Unsure
from treadle.machine.form import MachineProgram


def check_permissions(program: MachineProgram, spent: Spent) -> None:
    """Adds the ledger's permissions to what was spent. *Errors*: refused, or unsure of an unknown word, J6."""
    numerics = program.program.numerics
    functions = str(numerics.get("functions") or "2ulp")
    for line in program.numerics:
        word = line.partition(":")[0].split(" ")[0]
        match word:
            case "contract":
                granted = numerics.get("contract", True) is not False
            case "mma_subnormals":
                granted = (numerics.get("mma_subnormals") or "any") != "keep"
            case "functions" if "by the hardware's " in line and "by the hardware (" not in f"{line} (":
                # expansions around instructions, measured to keep the class; their bits are the machine's own
                granted = functions != "exact"
            case "functions" if "by the hardware" in line:
                granted = functions == "fast"
            case "functions":
                granted = functions != "exact"
            case "regroup" | "permute":
                granted = True  # a note: the order of every fold is judged at its steps
            case _:
                raise Unsure("J6", f"the permission {word!r}", missing="a rule for it")
        if not granted:
            raise Refused("J6", f"the text spends what the program does not grant: {line}", {})
        spent.names.add(word)
