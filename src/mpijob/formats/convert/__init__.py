"""Bringing jobs along: what other systems' files say, as our jobs, with a report on every field; and out again.

Nothing here runs anything. Of a script the header is read; its body goes along as it is. What is not understood is
kept or told, never left out in silence.
"""
