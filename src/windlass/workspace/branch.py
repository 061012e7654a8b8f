"""What reaches the user's repository: the run's branch, and on demand their checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from windlass import git
from windlass.errors import GitError, UserError
from windlass.git import UserRepo
from windlass.workspace.keep import transfer
from windlass.workspace.repo import EngineRepo

STATE_FILES = (".superteam-workflow.json",)


@dataclass(frozen=True)
class Published:
    branch: str
    commit: str
    """Where the branch is now; '' when it does not exist."""
    note: str = ""
    """What a person should know: not moved because it is checked out, published under another name."""


def publish(engine: EngineRepo, run: str, branch: str, tip: str, last: str) -> Published:
    """Move the run's branch to `tip`. `last` is the commit of the last `Published` ('' at first). Never forces."""
    _require_branch_name(branch)
    base, ref = f"refs/windlass/base/{run}", f"refs/heads/{branch}"
    present = engine.watch.refs()
    transfer(engine, [tip], [present[name] for name in (base, ref) if name in present])
    for name in _names(branch):
        now, known = present.get(f"refs/heads/{name}", ""), last if name == branch else ""
        if not now or now in (tip, known) or _is_ours(engine, now, tip, known or present.get(base, "")):
            done = _move(engine, run, name, tip, now)
            if done is None:
                return publish(engine, run, branch, tip, last)
            return done if name == branch else _under_another_name(done, branch)
    raise GitError(f"no free branch name like '{branch}'", hint="delete some of them")


def _require_branch_name(branch: str) -> None:
    if not git.is_branch_name(branch):
        raise UserError(f"'{branch}' is not a valid branch name", hint="see `git help check-ref-format`")


def _names(branch: str) -> list[str]:
    return [branch, *(f"{branch}-{k}" for k in range(2, 100))]


def _under_another_name(done: Published, branch: str) -> Published:
    moved = f"'{branch}' was changed by someone else and is left alone; published as '{done.branch}'"
    return Published(done.branch, done.commit, f"{moved}; {done.note}" if done.note else moved)


def _is_ours(engine: EngineRepo, now: str, tip: str, floor: str) -> bool:
    """A publish that was killed before it was recorded left the branch between what is known and the tip."""
    root = engine.user.root
    return now != floor and git.is_ancestor(root, floor, now) and git.is_ancestor(root, now, tip)


def _move(engine: EngineRepo, run: str, branch: str, tip: str, now: str) -> Published | None:
    """None: somebody moved it this very moment."""
    root, ref = engine.user.root, f"refs/heads/{branch}"
    if now == tip:
        return Published(branch, tip)
    where = checked_out(engine.user, branch)
    if where:
        return Published(branch, now, f"'{branch}' is checked out in '{where}' and stays as it is there")
    with engine.moving_user_refs([ref]):
        done = git.run(["update-ref", "-m", f"windlass: {run}", ref, tip, now], root, check=False)
    if done.code == 0:
        engine.settle()
        return Published(branch, tip)
    if git.read_refs(root, ref).get(ref, "") != now:
        return None
    raise git.lock_in_the_way(done.err) or GitError(
        f"cannot move branch '{branch}': {_why(done.err)}", hint="rename the branch in the way"
    )


def checked_out(user: UserRepo, branch: str) -> str:
    """The folder of the user's that has the branch checked out, '' when none has."""
    if not any(
        _may_be_on(head, branch) for head in (user.common_dir / "HEAD", *user.common_dir.glob("worktrees/*/HEAD"))
    ):
        return ""
    folder = ""
    for field in git.run(["worktree", "list", "--porcelain", "-z"], user.root).fields:
        word, _, value = field.partition(" ")
        folder = value if word == "worktree" else folder
        if field == f"branch refs/heads/{branch}":
            return folder
    return ""


def _may_be_on(head: Path, branch: str) -> bool:
    """Cheap and never wrong with a no. A repository with another ref format says '.invalid' in every HEAD file."""
    text = head.read_text(errors="replace")
    return text.strip() == f"ref: refs/heads/{branch}" or ".invalid" in text


def enter_in_place(user: UserRepo, branch: str, base: str) -> None:
    """Put the user's checkout on the run's new branch. They asked for it with `--in-place`."""
    _require_clean(user, "start in place")
    _require_branch_name(branch)
    exists = git.run(["rev-parse", "--verify", "-q", f"refs/heads/{branch}"], user.root, check=False).code == 0
    if exists and git.discover(user.root).branch != branch:
        raise UserError(f"branch '{branch}' exists already", hint=f"git branch -m {branch} another-name")
    if not exists:
        git.run(["checkout", "-q", "-b", branch, base], user.root)
    _ignore(user.common_dir / "info" / "exclude", STATE_FILES)


def _ignore(exclude: Path, names: tuple[str, ...]) -> None:
    """State files in the checkout are Windlass's: a `git add -A` must not take them."""
    old = exclude.read_text() if exclude.exists() else ""
    new = [f"/{name}" for name in names if f"/{name}" not in old.splitlines()]
    if new:
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text(old + ("" if old.endswith("\n") or not old else "\n") + "\n".join(new) + "\n")


def follow(engine: EngineRepo, branch: str, tip: str) -> None:
    """In place: bring the user's checkout forward to `tip`. Refuses rather than touch their uncommitted work."""
    user = git.discover(engine.user.root)
    if user.branch != branch:
        where = f"'{user.branch}'" if user.branch else "no branch"
        raise UserError(f"the checkout is on {where}, not on '{branch}'", hint=f"git switch {branch}")
    _require_clean(user, "bring the checkout forward")
    transfer(engine, [tip], [user.head])
    done = git.run(["merge", "-q", "--ff-only", tip], user.root, check=False)
    if done.code != 0:
        hint = "move what is in the way, then `windlass resume`"
        raise UserError(f"cannot bring '{branch}' forward: {_why(done.err)}", hint=hint)


@dataclass(frozen=True)
class LandResult:
    branch: str
    """The user's branch that has the work now."""
    before: str
    after: str
    kind: str
    """already | fast-forward | merge"""


def land_on_checkout(user: UserRepo, branch: str) -> LandResult:
    """Merge the run's branch into what the user has checked out, or leave everything as it was."""
    here = git.discover(user.root)
    if not here.branch:
        raise UserError("HEAD is detached: there is no branch to land on", hint="git switch main")
    theirs = git.read_refs(here.root, f"refs/heads/{branch}").get(f"refs/heads/{branch}", "")
    if not theirs:
        raise UserError(f"branch '{branch}' does not exist", hint="`windlass runs` lists what can be landed")
    if git.is_ancestor(here.root, theirs, here.head):
        return LandResult(here.branch, here.head, here.head, "already")
    _require_clean(here, f"land '{branch}'")
    return _merge(here, branch, theirs)


def _merge(here: UserRepo, branch: str, theirs: str) -> LandResult:
    forward = git.is_ancestor(here.root, here.head, theirs)
    if not forward:
        _require_no_conflict(here, branch, theirs)
    how = ["--ff-only"] if forward else ["--no-ff", "-m", f"Merge branch '{branch}'"]
    try:
        done = git.run(["merge", "-q", *how, theirs], here.root, env=_identity(here), check=False)
    except GitError:
        git.run(["merge", "--abort"], here.root, check=False)
        raise
    if done.code != 0:
        git.run(["merge", "--abort"], here.root, check=False)
        hint = "nothing was changed; move what is in the way"
        raise UserError(f"cannot land '{branch}': {_why(done.err)}", hint=hint)
    after = git.read_head(here.root)
    return LandResult(here.branch, here.head, after, "fast-forward" if forward else "merge")


def _require_no_conflict(here: UserRepo, branch: str, theirs: str) -> None:
    command = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", here.head, theirs]
    done = git.run(command, here.root, check=False)
    if done.code == 1:
        files = ", ".join(f"'{git.plain(name)}'" for name in done.fields[1:6])
        hint = f"nothing was changed; `git merge {branch}` lets you resolve it yourself"
        raise UserError(f"'{branch}' conflicts with '{here.branch}' in {files}", hint=hint)


def _require_clean(user: UserRepo, what: str) -> None:
    if git.is_dirty(user, untracked=False):
        raise UserError(f"cannot {what}: there are uncommitted changes", hint="commit or `git stash` them first")


def _identity(user: UserRepo) -> dict[str, str]:
    """A merge commit needs an author even where the user never set one."""
    if git.run(["var", "GIT_COMMITTER_IDENT"], user.root, check=False).code == 0:
        return {}
    return {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Windlass"), ("EMAIL", "windlass@localhost"))
    }


def _why(err: str) -> str:
    return git.plain(err).strip()[-400:]
