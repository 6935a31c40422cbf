import sys

from sluice_tools.predict.cli import main

sys.exit(main())
