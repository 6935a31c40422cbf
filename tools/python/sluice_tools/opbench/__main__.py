import sys

from sluice_tools.opbench.cli import main

sys.exit(main())
