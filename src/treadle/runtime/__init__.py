"""Artifacts, cache, loaders per device, the worker pool, workspace, streams and arrays.

A kernel that was compiled yesterday runs from here without any compiler.
"""
