"""Types of a plan: decisions, guards, the interface of a kernel, the protocol of a family, costs, rewrite records.

Only types and their text; the rooms `planner` and `realise` do the work.
"""
