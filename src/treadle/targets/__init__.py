"""One folder per target: its families, its costs and the last step from machine program to text.

The folders ignore one another; what they share of families is `rewritten`. Adding a target changes nothing outside this
room and `hardware`.
"""
