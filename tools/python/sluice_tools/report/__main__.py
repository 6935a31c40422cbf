import sys

from sluice_tools.report.cli import main

sys.exit(main())
