"""Writes to the user's repository: the run's branch and, on request, their checkout."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from windlass.errors import GitError, UserError
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import transfer
from windlass.git.run_refs import base_ref
from windlass.git.user_checkout import FOLLOW, LAND, CheckoutMove, Record, advance, no_record, require_clean, settle
from windlass.git.user_repo import UserRepo, names_like
from windlass.model import LandResult, LandStyle
from windlass.private_files import replace_file
from windlass.text import plain

STATE_FILES = (".superteam-workflow.json", ".agents/tmp")


class PublishedBranch(Struct, frozen=True):
    branch: str
    commit: str
    """The branch's commit now; '' when it does not exist."""
    note: str = ""
    """For a person: why the branch was not moved, or has another name."""


def publish(engine: EngineRepo, run: str, branch: str, tip: str, last: str) -> PublishedBranch:
    """Move the run's branch to `tip`. `last` is the commit of the last `Published` ('' at first). Never forces."""
    _require_branch_name(branch)
    base, ref = base_ref(run), f"refs/heads/{branch}"
    present = engine.watch.refs()
    transfer(engine, [tip], [present[name] for name in (base, ref) if name in present])
    for name in names_like(branch):
        now, known = present.get(f"refs/heads/{name}", ""), last if name == branch else ""
        if not now or now in (tip, known) or _is_ours(engine, now, tip, known or present.get(base, "")):
            done = _move(engine, run, name, tip, now)
            if done is None:
                return publish(engine, run, branch, tip, last)
            if name == branch:
                return done
            moved = f"'{branch}' was changed by someone else and is left alone; published as '{done.branch}'"
            return PublishedBranch(done.branch, done.commit, f"{moved}; {done.note}" if done.note else moved)
    raise GitError(f"no free branch name like '{branch}'", hint="delete some of them")


def _require_branch_name(branch: str) -> None:
    if not git.is_branch_name(branch):
        raise UserError(f"'{branch}' is not a valid branch name", hint="see `git help check-ref-format`")


def _is_ours(engine: EngineRepo, now: str, tip: str, floor: str) -> bool:
    """A publish that was killed before its record left the branch between the last known commit and the tip."""
    root = engine.user.root
    return now != floor and git.is_ancestor(root, floor, now) and git.is_ancestor(root, now, tip)


def _move(engine: EngineRepo, run: str, branch: str, tip: str, now: str) -> PublishedBranch | None:
    """None: another process moved it this moment."""
    root, ref = engine.user.root, f"refs/heads/{branch}"
    if now == tip:
        return PublishedBranch(branch, tip)
    where = checkout_folder(engine.user, branch)
    if where:
        return PublishedBranch(branch, now, f"'{branch}' is checked out in '{where}' and stays as it is there")
    with engine.fence(), engine.user_refs.intent([ref]):
        done = git.run(["update-ref", "-m", f"windlass: {run}", ref, tip, now], root, check=False)
    if done.code == 0:
        engine.barrier.settle()
        return PublishedBranch(branch, tip)
    if git.read_refs(root, ref).get(ref, "") != now:
        return None
    raise git.lock_in_the_way(done.err) or GitError(
        f"cannot move branch '{branch}': {_why(done.err)}", hint="rename the branch in the way"
    )


def checkout_folder(user: UserRepo, branch: str) -> str:
    """The user's folder in which the branch is checked out; '' for none."""
    # A cheap test first. A repository with another ref format has '.invalid' in every HEAD file.
    heads = (user.common_dir / "HEAD", *user.common_dir.glob("worktrees/*/HEAD"))
    texts = (head.read_text(errors="replace") for head in heads)
    if not any(text.strip() == f"ref: refs/heads/{branch}" or ".invalid" in text for text in texts):
        return ""
    folder = ""
    for field in git.run(["worktree", "list", "--porcelain", "-z"], user.root).fields:
        word, _, value = field.partition(" ")
        folder = value if word == "worktree" else folder
        if field == f"branch refs/heads/{branch}":
            return folder
    return ""


def enter_in_place(user: UserRepo, branch: str, base: str) -> None:
    """Switch the user's checkout to the run's new branch, as `--in-place` requests."""
    settle(user)
    require_clean(user, "start in place")
    _require_branch_name(branch)
    exists = git.run(["rev-parse", "--verify", "-q", f"refs/heads/{branch}"], user.root, check=False).code == 0
    if exists and user_repo.discover(user.root).branch != branch:
        raise UserError(f"branch '{branch}' exists already", hint=f"git branch -m {branch} another-name")
    if not exists:
        git.run(["checkout", "-q", "-b", branch, base], user.root)
    # State files in the checkout belong to Windlass: `git add -A` must not add them.
    exclude = user.common_dir / "info" / "exclude"
    old = exclude.read_text() if exclude.exists() else ""
    new = [f"/{name}" for name in STATE_FILES if f"/{name}" not in old.splitlines()]
    if new:
        text = old + ("" if old.endswith("\n") or not old else "\n") + "\n".join(new) + "\n"
        replace_file(exclude.resolve(), text, private=False)


def follow(engine: EngineRepo, run: str, branch: str, tip: str) -> None:
    """In place: move the user's checkout forward to `tip`. Refuses to touch their uncommitted work."""
    settle(engine.user)
    user = user_repo.discover(engine.user.root)
    if user.branch != branch:
        where = f"'{user.branch}'" if user.branch else "no branch"
        raise UserError(f"the checkout is on {where}, not on '{branch}'", hint=f"git switch {branch}")
    require_clean(user, "bring the checkout forward")
    transfer(engine, [tip], [user.head])
    if not git.is_ancestor(user.root, user.head, tip):
        raise _own_commits(user, run, tip)
    if user.head != tip:
        with engine.fence():
            advance(user, CheckoutMove(FOLLOW, run, branch, user.head, tip))


def _own_commits(user: UserRepo, run: str, tip: str) -> UserError:
    """The run cannot move the branch over commits that it does not have. Two commands put them on another branch."""
    theirs = git.run(["rev-list", f"{tip}..{user.head}"], user.root).out.split()
    meet = git.run(["merge-base", user.head, tip], user.root, check=False).line
    taken = git.read_refs(user.root, "refs/heads/")
    own = next(name for name in names_like(f"{user.branch}-mine") if f"refs/heads/{name}" not in taken)
    what = "a commit" if len(theirs) == 1 else f"{len(theirs)} commits"
    return UserError(
        f"'{user.branch}' has {what} of your own ({theirs[0][:12]}): the run cannot bring it forward over that",
        hint=f"git branch {own} && git reset --keep {meet[:12]}; then windlass resume {run}, "
        f"and when it is done: git merge {own}",
    )


class LandPlan(Struct, frozen=True):
    """What landing would do to the checked-out branch; nothing is changed yet."""

    branch: str
    before: str
    tip: str
    kind: str
    """already | fast-forward | merge | squash"""
    tree: str
    """The tree after the landing."""


def copy_tip(engine: EngineRepo, tip: str) -> None:
    """Copy the tip into the user's repository: the run's branch may be gone, or behind."""
    root = engine.user.root
    # A commit that a ref leads to is complete.
    if not git.run(["for-each-ref", "--count=1", f"--contains={tip}"], root, check=False).out:
        transfer(engine, [tip], [engine.user.head])


def plan_landing(user: UserRepo, tip: str, name: str, style: LandStyle = LandStyle.AUTO) -> LandPlan:
    """`name`: the name of the run's work, for messages. Raises when it cannot land: a conflict, uncommitted work."""
    if not user.branch:
        raise UserError("HEAD is detached: there is no branch to land on", hint="git switch main")
    if git.is_ancestor(user.root, tip, user.head):
        return LandPlan(user.branch, user.head, tip, "already", "")
    require_clean(user, f"land '{name}'")
    forward = git.is_ancestor(user.root, user.head, tip)
    configured = git.run(["config", "--get", "merge.ff"], user.root, check=False).line.lower()
    if style is LandStyle.AUTO and forward and configured not in ("false", "no", "off", "0"):
        return LandPlan(user.branch, user.head, tip, "fast-forward", _tree_of(user, tip))
    if style is LandStyle.AUTO and not forward and configured == "only":
        raise UserError(
            f"'{user.branch}' has moved on, and merge.ff is 'only' in your git configuration",
            hint="--no-ff makes a merge commit, --squash one plain commit; or start a new run",
        )
    kind = "squash" if style is LandStyle.SQUASH else "merge"
    if forward:
        return LandPlan(user.branch, user.head, tip, kind, _tree_of(user, tip))
    command = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", user.head, tip]
    done = git.run(command, user.root, check=False)
    if done.code == 0:
        return LandPlan(user.branch, user.head, tip, kind, done.fields[0])
    if done.code != 1:
        raise GitError(f"cannot merge '{name}': {_why(done.err)}", hint="nothing was changed")
    files = ", ".join(f"'{plain(path)}'" for path in done.fields[1:6])
    hint = f"nothing was changed; `git merge {tip[:12]}` lets you resolve it yourself"
    raise UserError(f"'{name}' conflicts with '{user.branch}' in {files}", hint=hint)


def land_commit(user: UserRepo, plan: LandPlan, message: str, *, signoff: bool = False) -> str:
    """The commit that the branch moves to. Made in the user's name, so it is signed if their git signs commits."""
    if plan.kind in ("already", "fast-forward"):
        return plan.tip if plan.kind == "fast-forward" else plan.before
    parents = [plan.before] if plan.kind == "squash" else [plan.before, plan.tip]
    env: dict[str, str] = {}
    if git.run(["var", "GIT_COMMITTER_IDENT"], user.root, check=False).code != 0:
        # A merge commit needs an author even if the user never set one.
        env = {f"GIT_{person}_NAME": "Windlass" for person in ("AUTHOR", "COMMITTER")}
        env |= {f"GIT_{person}_EMAIL": "windlass@localhost" for person in ("AUTHOR", "COMMITTER")}
    if signoff:
        identity = git.run(["var", "GIT_COMMITTER_IDENT"], user.root, env=env).line.rsplit(" ", 2)[0]
        trailer = ["--if-exists", "addIfDifferent", "--trailer", f"Signed-off-by: {identity}"]
        message = git.run(["interpret-trailers", *trailer], user.root, input=message.rstrip("\n") + "\n").out
    # The user's configuration decides about signing, not Windlass's options for every git.
    asked = ["config", "--show-scope", "--type=bool", "--get-all", "commit.gpgSign"]
    scoped = [line.split("\t") for line in git.run(asked, user.root, check=False).out.splitlines()]
    values = [value for scope, value in scoped if scope != "command"]
    sign = ["-S"] if values and values[-1] == "true" else []
    command = ["commit-tree", *sign, *(word for sha in parents for word in ("-p", sha)), plan.tree]
    # The user's key may need an agent or a home folder.
    own = git.personal() if sign else {}
    done = git.run(command, user.root, env={**own, **env}, input=message.rstrip("\n") + "\n", check=False)
    if done.code != 0:
        hint = "nothing was changed; `git commit` must be able to sign here, or set commit.gpgSign to false"
        raise UserError(f"cannot make the commit: {_why(done.err)}", hint=hint if sign else "nothing was changed")
    return done.line


def land_plan(
    user: UserRepo, plan: LandPlan, after: str, run: str, facts: Mapping[str, str], record: Record = no_record
) -> LandResult:
    """Move the branch and the checkout to `after`, or change nothing."""
    if plan.kind != "already":
        advance(user, CheckoutMove(LAND, run, plan.branch, plan.before, after, facts), record)
    return LandResult(plan.branch, plan.before, after, plan.kind)


def _tree_of(user: UserRepo, commit: str) -> str:
    return git.run(["rev-parse", f"{commit}^{{tree}}"], user.root).line


def _why(err: str) -> str:
    return plain(err).strip()[-400:]
