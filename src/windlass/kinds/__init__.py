"""The kinds of phases. A new kind is one file in this folder and one line here."""

from windlass.kinds import ask, command, dialogue, elicit, produce, publish, report, review, tasks

KINDS = {
    kind.name: kind
    for kind in (
        ask.KIND,
        command.KIND,
        dialogue.KIND,
        elicit.KIND,
        produce.KIND,
        publish.KIND,
        report.KIND,
        review.KIND,
        tasks.KIND,
    )
}
