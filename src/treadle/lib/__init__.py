"""Operators written in the language. Adding one is adding a function here."""
