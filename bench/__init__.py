"""Side-by-side measurements: what this package costs against bare mpiexec, kubectl and a bare interpreter.

`python -m bench` runs them all; each module holds one measurement and yields `Line`s. Nothing here
is a test: a missed goal is reported, not raised.
"""
