"""Read-only facts about programs: effects, reaching values, dependences between regions, liveness, observed cuts.

Start here to ask a question about a program; nothing in this room changes one.
"""
