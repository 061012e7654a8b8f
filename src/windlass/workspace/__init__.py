"""Where agents work and what becomes of it.

`repo` the engine's own repository; `slots` the folders agents get; `trees` what is in them; `files` single files,
safely; `keep` nothing is lost; `branch` what reaches the user's repository; `watch` what else happens to it; `collect`
what may go.
"""

from windlass.workspace.branch import (
    LandResult,
    Published,
    checked_out,
    enter_in_place,
    follow,
    land_on_checkout,
    publish,
)
from windlass.workspace.collect import Collected, Remains, Removed, gc
from windlass.workspace.disk import MIN_FREE_BYTES, lacking
from windlass.workspace.files import check_path, copy_into, lock_hash, read_file, safe_path, write_artifacts
from windlass.workspace.keep import Attempt, Kept
from windlass.workspace.proof_slot import ProofSlot
from windlass.workspace.repo import EngineRepo, RefChange, locked, name_held, repo_id, tip_ref
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

__all__ = [
    "MIN_FREE_BYTES",
    "Attempt",
    "Change",
    "Collected",
    "EngineRepo",
    "Kept",
    "Kind",
    "LandResult",
    "Lease",
    "ProofSlot",
    "Published",
    "RefChange",
    "Remains",
    "Removed",
    "Slot",
    "SlotStatus",
    "Slots",
    "Use",
    "UserSignature",
    "Watch",
    "changes",
    "check_path",
    "checked_out",
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
    "land_on_checkout",
    "lock_hash",
    "locked",
    "name_held",
    "patch_id",
    "publish",
    "read_file",
    "repo_id",
    "restaged_tree",
    "safe_path",
    "status",
    "tip_ref",
    "user_signature",
    "work_tree",
    "write_artifacts",
]
