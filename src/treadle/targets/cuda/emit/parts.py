"""Texts of device functions by name, each with the names of those that it calls."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Parts:
    """The texts of one chapter. `known`: name -> text and the names that it needs."""

    known: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict[str, tuple[str, tuple[str, ...]]])

    def add(self, name: str, text: str, *needs: str) -> None:
        """One more text; blank lines around it are dropped."""
        assert name not in self.known, name
        self.known[name] = (text.strip("\n") + "\n", needs)
