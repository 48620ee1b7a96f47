"""Run `ut` with the arguments of this script, in processor time; the last line is the largest memory in bytes."""

import resource
import sys
import time

from universal_transformer.cli import main

time.monotonic = time.perf_counter = time.process_time  # other programs take time, and no processor time
code = main(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(code)
