"""`python -m jaxops`: see `jaxops.command_line`."""

import sys

from jaxops.command_line import main

if __name__ == "__main__":
    sys.exit(main())
