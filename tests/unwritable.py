"""Files that may not be written, for whoever runs the tests."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unwritable(*paths: Path) -> Iterator[None]:
    """Root may write everything but what is immutable."""
    if os.geteuid() != 0:
        for path in paths:
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    else:
        subprocess.run(["chattr", "+i", *map(str, paths)], check=True)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", *map(str, paths)], check=True)
        for path in paths:
            path.chmod(stat.S_IRWXU)
