"""Converts files of other systems into jobs and jobs into such files, with a report on every field.

Nothing here runs anything. The header of a batch script is converted; its body is kept unchanged. A field that is not
understood is kept or reported, never dropped silently.
"""
