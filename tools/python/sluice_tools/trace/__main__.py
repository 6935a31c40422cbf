import sys

from sluice_tools.trace.cli import main

sys.exit(main())
