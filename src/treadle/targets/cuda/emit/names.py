"""Names of the machine text as C++ identifiers."""

from __future__ import annotations

import re

_OTHER = re.compile(r"\W")


def cname(name: str, prefix: str = "x_") -> str:
    """An identifier that no keyword and no name of the prelude equals.

    *Ensures*: different names of letters, digits and underscores give different identifiers.
    """
    return prefix + _OTHER.sub(lambda m: f"_{ord(m.group()):x}_", name)
