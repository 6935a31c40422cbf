import sys

from sluice_tools.cdi.cli import main

sys.exit(main())
