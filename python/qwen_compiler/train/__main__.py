"""qwen-train as python -m qwen_compiler.train."""
import sys

from ._command import main

sys.exit(main())
