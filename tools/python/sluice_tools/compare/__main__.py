import sys

from sluice_tools.compare.cli import main

sys.exit(main())
