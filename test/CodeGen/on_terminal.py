"""Runs a command with a terminal as standard error and prints the terminal's text: on_terminal.py COMMAND..."""

import os
import pty
import subprocess
import sys

ours, theirs = pty.openpty()
process = subprocess.Popen(sys.argv[1:], stderr=theirs)
os.close(theirs)
shown = b""
try:
    while piece := os.read(ours, 65536):
        shown += piece
except OSError:
    # A terminal ends with this error when no process has it open.
    pass
sys.stdout.write(shown.decode().replace("\r", "\n"))
sys.exit(process.wait())
