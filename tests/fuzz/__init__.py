"""Bytes that nobody would write, given to everything that reads what others wrote.

`targets` are the readers, each with what is promised of it; `hunt` looks for inputs that break a promise, guided by
the branches that an input reaches; `corpus` keeps one input for each set of branches, in the tree. `make fuzz` hunts
for a bounded time, and `tests/unit/project/test_fuzz.py` gives the kept inputs to every reader in each `make test`.
"""
