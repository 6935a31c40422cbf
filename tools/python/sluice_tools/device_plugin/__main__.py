"""`python -m sluice_tools.device_plugin`"""

import sys

from sluice_tools.device_plugin.cli import main

sys.exit(main())
