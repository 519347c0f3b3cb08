"""Components that turn decisions into machine programs for any target: schedules, rings, roles, trees, packing.

A family of a target is a composition of these; none of them knows an operator.
"""
