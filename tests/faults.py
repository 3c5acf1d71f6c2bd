"""Faults that tests of stores inject: a process that is killed, and the bytes it must end in."""

import os
import signal
import subprocess
import sys

PREAMBLE = """
import os, signal, sys
from pathlib import Path
from aspect.scale import blocks

def killing(folder, *arguments, **values):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    note(folder, *arguments, **values)

left, note = int(sys.argv[1]), blocks.BlockFolder.note
blocks.BlockFolder.note = killing  # the block is on the disk and not yet noted
"""


def contents(path):
    """Every file of a folder, by name."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != ".lock"}


def run_and_kill(script, at_block, *arguments):
    """Run a script in a process that kills itself when it has written so many blocks."""
    command = [sys.executable, "-c", PREAMBLE + script, str(at_block), *map(str, arguments)]
    ended = subprocess.run(command, check=False, env=os.environ, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
