"""The rewrites, each a function from a program and arguments to a program and the step that records it.

A scheduling library is made of these steps; each is replayable and checked.
"""
