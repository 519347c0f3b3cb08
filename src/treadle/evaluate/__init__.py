"""The meaning of every op: the reference interpreter and the checked interpreter behind `sanitize`.

What this room computes is the truth that plans, machine programs and emitted code are compared with.
"""
