"""`python -m ringfence` is the same as the command `ringfence`."""

import runpy

# By name: the client imports nothing of the control plane, and this file is run only as a program.
runpy.run_module("ringfence.control.cli", run_name="__main__", alter_sys=True)
