"""The kinds, written by hand; a test walks the folder and compares."""

from windlass.phases import ask, command, dialogue, elicit, produce, publish, report, review, tasks

KINDS = {
    "ask": ask,
    "command": command,
    "dialogue": dialogue,
    "elicit": elicit,
    "produce": produce,
    "publish": publish,
    "report": report,
    "review": review,
    "tasks": tasks,
}
