"""Finds the refs of the engine's repository that an agent changed, and restores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.run_refs import RunRefs
from windlass.text import plain


class RefChange(Struct, frozen=True):
    name: str
    before: str
    """'' when it did not exist."""
    after: str
    """'' when it is gone."""


class RefAudit(Struct, frozen=True):
    """Compares refs before and after a dispatch. Other threads and other runs move refs at the same time."""

    refs: RunRefs

    def mark(self) -> int:
        """Call it before reading the refs that a later `changes` gets as `before`."""
        return self.refs.moves.mark()

    def changes(self, run: str, before: Mapping[str, str], after: Mapping[str, str], mark: int = 0) -> list[RefChange]:
        """The changes that neither this process nor another run made."""
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        found = [RefChange(name, before.get(name, ""), after.get(name, "")) for name in names]
        own = self.refs.moves.since(mark)
        # Another run makes and moves its own refs; it never removes one while this run is at work.
        others = {
            change
            for change in found
            if change.after
            and change.name.startswith("refs/windlass/")
            and not change.name.startswith(f"refs/windlass/{run}/")
        }
        return [change for change in found if (change.name, change.after) not in own and change not in others]

    def undo(self, changes: Sequence[RefChange]) -> None:
        """Restore refs. Keep their commits first: `Slots.keep(..., undone=changes)`."""
        for change in changes:
            # Only a ref that has not changed since: the lander moves refs meanwhile, and others undo the same change.
            before = self.refs.shown.get(change.name, change.before)
            to = [before or "0" * len(change.after), change.after or "0" * len(change.before)]
            git_dir = self.refs.git_dir
            with self.refs.fence(), self.refs.moves.note((change.name, before)):
                command = [f"--git-dir={git_dir}", "update-ref", "--no-deref", change.name, *to]
                done = git.run(command, git_dir.parent, check=False)
            if done.code != 0 and self.refs.all().get(change.name, "") == change.after:
                raise GitError(f"cannot put '{change.name}' back: {plain(done.err).strip()}", hint="`windlass doctor`")
