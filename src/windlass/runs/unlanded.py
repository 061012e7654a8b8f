"""Work of tasks that has not landed: find it, show its diff, make a branch from it."""

from __future__ import annotations

from msgspec import Struct

from windlass.errors import UserError, near
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import TaskWork, base_of, newest, take, task_work
from windlass.git.state_folder import repo_id
from windlass.git.trees import diff
from windlass.paths import state_dir
from windlass.runs.service import Service
from windlass.store.tips import tip_of_run
from windlass.views.state import View


class FoundWork(Struct, frozen=True):
    """A task's work, or everything that the run has landed."""

    task: str
    """'' for everything that the run has landed."""
    ref: str
    commit: str
    base: str


def unlanded_work(service: Service, view: View) -> list[TaskWork]:
    """Commits of the run's tasks that have not landed, oldest first."""
    home = state_dir(service.host.environ).resolve() / "windlass" / repo_id(service.host.place.common)
    if not (home / "repo.git").exists():
        # Reading must not create the repository.
        return []
    started = _start_times(service, view.run)
    found = task_work(_engine(service), view.run, {task.id for task in view.tasks}, view.tip)
    return sorted(found, key=lambda work: (work.task, started.get((work.key, work.n), 0.0), work.ref))


def find_work(service: Service, view: View, name: str) -> FoundWork:
    """`name`: a task's id, number or title, a ref that `windlass show` lists, or '' for everything landed."""
    engine = _engine(service)
    tip = tip_of(service, engine, view.run)
    if not name:
        return FoundWork("", view.published, tip, view.base)
    works = unlanded_work(service, view)
    work = next((work for work in works if work.ref == name), None)
    landed = ""
    if work is None:
        tasks = [task for task in view.tasks if name in (task.id, str(task.index), task.title)]
        if len(tasks) != 1:
            raise UserError(f"run {view.run} has no task '{name}'", hint=near(name, [task.id for task in view.tasks]))
        [task] = tasks
        work = newest([work for work in works if work.task == task.id], _start_times(service, view.run))
        landed = task.landed
    if work is not None:
        return FoundWork(work.task, work.ref, work.commit, base_of(engine, work.commit, tip))
    if landed:
        return FoundWork(task.id, "", landed, f"{landed}^")
    raise UserError(f"task '{name}' left no work: none of its attempts made a commit", hint=f"windlass show {view.run}")


def take_work(service: Service, view: View, name: str, branch: str) -> tuple[FoundWork, str, bool]:
    """Returns the work, its branch, and whether this call made the branch."""
    work, engine = find_work(service, view, name), _engine(service)
    default = f"{view.published or view.branch or f'windlass/{view.run}'}-{work.task}"
    return (work, *take(engine, view.run, work.commit, branch or default, exact=bool(branch)))


def diff_of(service: Service, work: FoundWork, limit: int) -> str:
    return diff(_engine(service), work.base, work.commit, limit)


def _start_times(service: Service, run: str) -> dict[tuple[str, int], float]:
    return {(row.intent.key, row.intent.n): row.started_at for row in service.store.attempts.all(run)}


def _engine(service: Service) -> EngineRepo:
    return EngineRepo.open(user_repo.discover(service.host.cwd), state_dir(service.host.environ))


def tip_of(service: Service, engine: EngineRepo, run: str) -> str:
    """The run's tip in the journal; the base if nothing has landed."""
    return tip_of_run(service.store, run, engine.refs.tip(run))
