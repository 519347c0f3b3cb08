"""The adversarial simulator of machine programs: runs a text under schedules chosen to break it.

It shares no code with the checker, so that each can find the mistakes of the other.

Start at `run.py`; `thread.py` is what statements do, `control.py` bodies, tasks and synchronisation, `engines.py` and
`contractions.py` asynchronous work, `memory.py` and `clocks.py` how races are seen, `schedule.py` who takes a step.
"""
