import sys

from sluice_tools.bench.cli import main

sys.exit(main())
