import sys

from sluice_tools.records.cli import main

sys.exit(main())
