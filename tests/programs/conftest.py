"""Tests of sluice programs. Those in test_tvm*.py need TVM (./x programs), the others do not."""

import sys

from places import PACKAGE

sys.path.insert(0, str(PACKAGE))
