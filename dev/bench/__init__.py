"""Benchmarks of Parley; each figure is compared with a limit measured in the same run.

`python -m dev.bench` prints a table and writes build/bench.json; `python -m dev.bench NAME…` takes only the rows whose
name starts with one of the NAMEs. The README beside this file says how to read the rows.
"""
