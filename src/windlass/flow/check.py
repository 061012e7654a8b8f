"""All static checks of a flow. Pure: a flow in, problems out."""

from __future__ import annotations

from collections.abc import Collection

from windlass.flow import check_names, check_questions, check_routes, check_values
from windlass.flow.document import Located
from windlass.flow.problem import FlowProblem
from windlass.flow.schema import Flow

CHECKS = (
    check_names.bad_ids,
    check_names.wrong_structure,
    check_names.unknown_references,
    check_names.unproduced_artifacts,
    check_names.wrong_needs,
    check_values.wrong_settings,
    check_values.wrong_setting_references,
    check_values.unknown_facts,
    check_values.unknown_templates,
    check_values.wrong_instructions,
    check_values.wrong_fields,
    check_questions.wrong_questions,
    check_questions.automatic_answers_that_lead_back,
    check_routes.wrong_outcomes,
    check_routes.wrong_targets,
    check_routes.unreachable,
    check_routes.unbounded_loops,
)


def check(flow: Flow, located: Located, *, roles: Collection[str], contracts: Collection[str]) -> list[FlowProblem]:
    faults = [fault for one in CHECKS for fault in one(flow)]
    faults += check_values.settings_inside_texts(located)
    faults += check_names.unknown_roles(flow, roles)
    faults += check_names.unknown_contracts(flow, contracts)
    return sorted({FlowProblem(located.line(fault.path), fault.message, fault.hint) for fault in faults})
