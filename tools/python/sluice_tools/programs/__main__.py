import sys

from sluice_tools.programs.cli import main

sys.exit(main())
