"""`python -m ringfence.control.cli` is the same as `ringfence`."""

from ringfence.control.cli import main

main()
