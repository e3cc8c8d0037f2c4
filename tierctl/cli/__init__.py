"""The command line: its commands declare options, call a use case and print its result.

`entry.main` runs the command line of a process; no other package imports this one.
"""

import gc
import os

# NumPy's OpenBLAS starts its threads when it is imported, which takes 15 ms; tierctl calls no BLAS.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Python looks for cycles of garbage after 700 new objects. Imports make 100,000 objects that stay: a part
# of the start, a twentieth, would look for garbage among them.
gc.set_threshold(200_000)
