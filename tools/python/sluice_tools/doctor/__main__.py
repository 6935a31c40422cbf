import sys

from sluice_tools.doctor.cli import main

sys.exit(main())
