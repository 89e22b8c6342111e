"""Run the command line as `python -m ringfence.control.cli`."""

from ringfence.control.cli import main

main()
