"""The fuzzer's modules stand beside each other, as `run.py` is a script."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
