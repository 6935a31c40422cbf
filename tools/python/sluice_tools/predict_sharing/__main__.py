import sys

from sluice_tools.predict_sharing.cli import main

sys.exit(main())
