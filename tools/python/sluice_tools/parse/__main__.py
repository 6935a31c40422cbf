import sys

from sluice_tools.parse.cli import main

sys.exit(main())
