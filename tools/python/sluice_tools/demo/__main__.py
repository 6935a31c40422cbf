import sys

from sluice_tools.demo.cli import main

sys.exit(main())
