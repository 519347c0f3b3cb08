"""treadle: an execution-first tile language and compiler.

    import treadle as td

Names are loaded when they are first used: importing treadle needs neither a compiler nor a GPU library, and `treadle
check` runs without the rooms that plan. `_ROOMS` is the one table that says where a name lives.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

# name -> the module that has it; every other public name is one of the language (`treadle.lang.api`).
_ROOMS = {
    **dict.fromkeys(("kernel", "Kernel", "Launch"), "treadle.driver.kernel"),
    **dict.fromkeys(("Plan", "load"), "treadle.driver.plan"),
    **dict.fromkeys(("like",), "treadle.driver.arguments"),
    **dict.fromkeys(("tile", "place", "atom", "versions"), "treadle.plan.pins"),
    **dict.fromkeys(("rewrite",), "treadle.driver.rewriting"),
    **dict.fromkeys(("set_workers",), "treadle.runtime.pool"),
    **dict.fromkeys(("graph",), "treadle.runtime.graph"),
    **dict.fromkeys(("TreadleError", "UserError", "LimitError", "InternalError"), "treadle.base.errors"),
}
_LANGUAGE = "treadle.lang.api"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    module = importlib.import_module(_ROOMS.get(name, _LANGUAGE))
    try:
        value = getattr(module, name)
    except AttributeError:
        text = f"treadle has no {name!r}: see docs/language.md for its names"
        raise AttributeError(text, name=name, obj=sys.modules[__name__]) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    language = importlib.import_module(_LANGUAGE)
    return sorted({*_ROOMS, *language.__all__, *(name for name in globals() if name.startswith("__"))})
