"""What is known about each architecture, as pure data: facts, contracts of atoms, memory-model tables.

This room is trusted by the checker and has tests of its own; it decides nothing.
"""
