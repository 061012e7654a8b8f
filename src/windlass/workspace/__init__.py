"""Where agents work and what becomes of it.

`repo` the engine's own repository; `slots` the folders agents get; `trees` what is in them; `files` single files,
safely; `keep` nothing is lost; `branch` what reaches the user's repository;
`checkout` how their checkout moves; `watch` what else happens to it; `collect`
what may go.
"""

from windlass.workspace.branch import (
    LandPlan,
    LandResult,
    LandStyle,
    Published,
    bring,
    checked_out,
    enter_in_place,
    follow,
    land_commit,
    land_plan,
    names_like,
    plan_landing,
    publish,
)
from windlass.workspace.checkout import CheckoutMove, Settled, settle
from windlass.workspace.collect import Collected, OwnBranch, Remains, Removed, collect_homes, gc
from windlass.workspace.disk import MIN_FREE_BYTES, lacking
from windlass.workspace.files import check_path, copy_into, lock_hash, read_file, safe_path, write_artifacts
from windlass.workspace.home import repo_id
from windlass.workspace.keep import Attempt, Kept
from windlass.workspace.proof_slot import ProofSlot
from windlass.workspace.repo import EngineRepo, RefChange, locked, name_held, tip_ref
from windlass.workspace.slot import Slot
from windlass.workspace.slots import Lease, Slots, Use
from windlass.workspace.trees import (
    Change,
    Kind,
    SlotStatus,
    changes,
    commit_artifacts,
    commit_tree,
    diff,
    edited_tree,
    harvest,
    patch_id,
    restaged_tree,
    status,
    work_tree,
)
from windlass.workspace.watch import UserSignature, Watch, user_signature
from windlass.workspace.work import TaskWork, base_of, newest, take, task_work

__all__ = [
    "MIN_FREE_BYTES",
    "Attempt",
    "Change",
    "CheckoutMove",
    "Collected",
    "EngineRepo",
    "Kept",
    "Kind",
    "LandPlan",
    "LandResult",
    "LandStyle",
    "Lease",
    "OwnBranch",
    "ProofSlot",
    "Published",
    "RefChange",
    "Remains",
    "Removed",
    "Settled",
    "Slot",
    "SlotStatus",
    "Slots",
    "TaskWork",
    "Use",
    "UserSignature",
    "Watch",
    "base_of",
    "bring",
    "changes",
    "check_path",
    "checked_out",
    "collect_homes",
    "commit_artifacts",
    "commit_tree",
    "copy_into",
    "diff",
    "edited_tree",
    "enter_in_place",
    "follow",
    "gc",
    "harvest",
    "lacking",
    "land_commit",
    "land_plan",
    "lock_hash",
    "locked",
    "name_held",
    "names_like",
    "newest",
    "patch_id",
    "plan_landing",
    "publish",
    "read_file",
    "repo_id",
    "restaged_tree",
    "safe_path",
    "settle",
    "status",
    "take",
    "task_work",
    "tip_ref",
    "user_signature",
    "work_tree",
    "write_artifacts",
]
