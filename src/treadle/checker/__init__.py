"""The judge of machine programs. No rule for a case means unknown, never yes.

It imports only what its contract lists, and works from an installation that has no planner, rules, realise or targets.
"""
