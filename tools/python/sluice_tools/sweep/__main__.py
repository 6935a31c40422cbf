import sys

from sluice_tools.sweep.cli import main

sys.exit(main())
