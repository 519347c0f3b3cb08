"""Search over the registered families: enumeration under guards with an analytic cost.

The planner knows families by their protocol only, never a target or an operator.
"""
