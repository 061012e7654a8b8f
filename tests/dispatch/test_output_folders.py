"""The folder of a declared output is there before its agent begins: the sandbox of a CLI may not let it make one."""

from __future__ import annotations

from pathlib import Path

from front import Front, plan_of
from staged import TWO


def test_an_agent_can_write_a_declared_output_without_making_its_folder(tmp_path: Path) -> None:
    write = f"cat > {{plan_path}} <<'END'\n{plan_of(TWO)}\nEND"
    planner = {"when": {"role": "planner"}, "run": [write], "say": "done"}
    done = Front(tmp_path).start([{"when": {"role": "scout"}, "say": "small"}, planner], "--flow", "plan")
    assert "plan -> docs/plans/" in done.out, done.out + done.err
