"""The same steps as a DBOS workflow on SQLite. usage: python -m benchmarks.peer_dbos FOLDER STEPS"""

from __future__ import annotations

import logging
import sys
import time

from dbos import DBOS

TEXT = "x" * 1024


@DBOS.step()
def work(n: int) -> dict[str, str]:
    return {"text": TEXT}


@DBOS.workflow()
def workflow(steps: int) -> float:
    begun = time.perf_counter()
    for n in range(steps):
        work(n)
    return time.perf_counter() - begun


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{sys.argv[1]}/dbos.db", "run_admin_server": False})
    DBOS.launch()
    took = workflow(int(sys.argv[2]))
    DBOS.destroy()
    print(took)
