"""One folder per target: its families, its costs and the last step from machine program to text.

The folders ignore one another; adding a target changes nothing outside this room and `hardware`.
"""
