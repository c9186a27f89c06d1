"""Carries out a Python block of a page: `python snippet.py FILE`. What the reader would call `main` is called."""

import asyncio
import inspect
import runpy
import sys

sys.path.insert(0, ".")
made = runpy.run_path(sys.argv[1], run_name="page")
if inspect.iscoroutinefunction(made.get("main")):
    asyncio.run(made["main"]())
