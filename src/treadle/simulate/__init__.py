"""The adversarial simulator of machine programs: runs a text under schedules chosen to break it.

It shares no code with the checker, so that each can find the mistakes of the other.
"""
