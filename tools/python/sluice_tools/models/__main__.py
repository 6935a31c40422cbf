import sys

from sluice_tools.models.cli import main

sys.exit(main(in_child=True))
