"""What Parley costs, every figure beside its limit measured in the same run.

`python -m bench` prints a table and writes build/bench.json; `python -m bench NAME…` takes only the rows whose name
starts with one of the NAMEs. The README beside this file says how to read the rows.
"""
