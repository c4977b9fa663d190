"""Bringing jobs along: what other systems' files say, as our jobs, with a report on every field; and out again.

Nothing here runs anything. A shell script is read word by word; what is not understood is kept or told,
never left out in silence.
"""
