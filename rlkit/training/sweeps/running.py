"""`Running`: trains groups of trials, in the process that it is in."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rlkit.errors import EnvFailedError, NonFiniteError
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.records import Record
from rlkit.training.sweeps.config import ranges_in, with_changes
from rlkit.training.sweeps.directory import SweepFiles
from rlkit.training.sweeps.joint_records import trial_records
from rlkit.training.sweeps.launchers.protocol import Say, Watch
from rlkit.training.sweeps.plan import Plan
from rlkit.training.sweeps.population import Population
from rlkit.training.sweeps.results import TrialResult, score_of
from rlkit.training.sweeps.shapes import Group
from rlkit.training.sweeps.stages import (
    Carried,
    Trained,
    lanes_of,
    lanes_subset,
    skipped_updates,
    train_alone,
    train_jointly,
    write_trial,
)
from rlkit.training.sweeps.standing import Standing
from rlkit.training.sweeps.stores.store import Workplace
from rlkit.validation import PlainData


class Running:
    """Trains a group of trials of a plan, in this process.

    `work` is where, of the process that holds the group's lock. `watch` and `say` are as in
    `run_sweep`.
    """

    def __init__(self, files: SweepFiles, plan: Plan, work: Workplace, watch: Watch, say: Say):
        self._files, self._plan, self._work = files, plan, work
        self._watch, self._say = watch, say
        self._num_seeds = plan.config.run.trainer.num_seeds

    def train(self, rung: int, group: Group) -> None:
        """Does what is left for the group to be at a rung; all rungs before are done.

        Raises `Interrupted` if it was asked to stop.
        """
        standing = Standing(self._files, self._plan)
        ended, _ = standing.unwritten(rung, group)
        self._write_trained(rung - 1, group, ended)
        if missing := standing.untrained(rung, group):
            self._train(rung, group, standing.members(rung, group), missing)
        _, ended = Standing(self._files, self._plan).unwritten(rung, group)
        self._write_trained(rung, group, ended)

    def _train(
        self, rung: int, group: Group, members: Sequence[int], missing: Sequence[int]
    ) -> None:
        """Trains the trials of a group that are left, of which some are at this rung already."""
        if group.traced and not self._files.is_split(group.first):
            try:
                with self._joint(rung, group, members) as trained:
                    self._files.add_results(group.first, self._results(rung, members, trained))
                    if len(self._plan.rungs) == 1:  # while the state is at hand
                        self._write(members, members, trained)
                return
            except (NonFiniteError, EnvFailedError) as error:
                self._files.split(group.first)
                reason = str(error).partition(";")[0]
                is_population = self._plan.config.exploit_every is not None
                lost = ", and from now on none copies another" if is_population else ""
                self._say(f"a trial failed ({reason}): its group is trained one by one{lost}")
        for trial in missing:
            self._files.add_results(group.first, [self._alone(rung, trial)])

    def _alone(self, rung: int, trial: int) -> TrialResult:
        config, name = self._plan.configs[trial], self._files.trial(trial)
        directory = self._work.directory(name)
        self._say(f"trial {trial:03d}: {_told(self._plan.changes[trial])}")
        failure = skipped = None
        try:
            progress = train_alone(
                config,
                directory,
                self._plan.rungs[rung],
                callbacks=self._work.callbacks(name),
                watch=self._watch,
            )
            skipped = progress.skipped_updates
        except (NonFiniteError, EnvFailedError) as error:
            failure = str(error).partition(";")[0]
            self._say(f"trial {trial:03d} failed: {failure}")
        records = load_run(directory).records
        self._work.publish(name)
        if skipped is None:
            skipped = skipped_updates(records)
        return self._result(rung, trial, records, failure, self._plan.changes[trial], skipped)

    @contextmanager
    def _joint(self, rung: int, group: Group, members: Sequence[int]) -> Iterator[Trained]:
        """The trials of a group at the end of a rung, which is trained if it was not."""
        configs = [self._plan.configs[trial] for trial in members]
        name = self._files.joint(rung, group.first)
        with train_jointly(
            configs,
            members,
            group.traced,
            self._work.directory(name),
            self._plan.rungs[rung],
            carried=None if rung == 0 else lambda: self._carried(rung - 1, group, members),
            population=self._population(group),
            callbacks=self._work.callbacks(name),
            watch=self._watch,
            say=self._say,
        ) as trained:
            self._work.keep(name)  # before results say that it is there
            yield trained

    def _carried(self, rung: int, group: Group, members: Sequence[int]) -> Carried:
        """What trials bring along from `rung`, where there were more of them."""
        before = self._at(rung, group)
        lanes = [
            lane for trial in members for lane in lanes_of(before.index(trial), self._num_seeds)
        ]
        with self._joint(rung, group, before) as trained:
            return lanes_subset(trained, lanes)

    def _at(self, rung: int, group: Group) -> list[int]:
        """The trials of a group that were trained up to `rung`."""
        done = self._files.results()
        return [trial for trial in group.trials if (rung, trial) in done]

    def _write_trained(self, rung: int, group: Group, trials: Sequence[int]) -> None:
        """Writes the run directories of trials that a program trained up to a rung."""
        if not trials:
            return
        members = self._at(rung, group)
        with self._joint(rung, group, members) as trained:
            self._write(trials, members, trained)

    def _write(self, trials: Sequence[int], members: Sequence[int], trained: Trained) -> None:
        """Writes the run directories of some of the `members` that one program trained."""
        for trial in trials:
            if self._files.has_trial(trial):
                continue
            name = self._files.trial(trial)
            directory = self._work.fresh(name)
            lanes = lanes_of(members.index(trial), self._num_seeds)
            records = self._records(trial)
            config = with_changes(self._plan.configs[trial], trained.values_of(lanes[0]))
            write_trial(config, directory, trained, lanes, records)
            self._work.publish(name)

    def _records(self, trial: int) -> list[Record]:
        """All records of a trial that was trained with others, over all of its rungs."""
        group = next(group for group in self._plan.groups if trial in group.trials)
        found = []
        for rung in range(len(self._plan.rungs)):
            members = self._at(rung, group)
            if trial not in members:
                break
            joint = load_run(self._work.directory(self._files.joint(rung, group.first))).records
            lanes = lanes_of(members.index(trial), self._num_seeds)
            found += trial_records(joint, lanes, len(members) * self._num_seeds)
        return found

    def _population(self, group: Group) -> Population | None:
        """What the trials of a group do to each other, in population-based training."""
        config = self._plan.config
        if config.exploit_every is None:
            return None
        return Population(
            every=config.exploit_every,
            ranges=ranges_in(config),
            seed=config.search_seed,
            store=self._files.store,
            rows="population.jsonl",
        )

    def _results(self, rung: int, members: Sequence[int], trained: Trained) -> list[TrialResult]:
        found = []
        for place, trial in enumerate(members):
            lanes = lanes_of(place, self._num_seeds)
            records = [
                *self._records(trial),  # of earlier rungs
                *trial_records(trained.records, lanes, trained.num_lanes),
            ]
            settings = self._plan.changes[trial] | trained.values_of(lanes[0])
            skipped = skipped_updates(records)
            found.append(self._result(rung, trial, records, None, settings, skipped))
        return found

    def _result(
        self,
        rung: int,
        trial: int,
        records: Sequence[Record],
        failure: str | None,
        settings: PlainData,
        skipped: int,
    ) -> TrialResult:
        scores = () if failure is not None else score_of(records, self._plan.config.rank)
        return TrialResult(
            trial=trial,
            rung=rung,
            settings=settings,
            scores=scores,
            env_steps=max((record.env_steps for record in records), default=0),
            skipped_updates=skipped,
            failure=failure,
        )


def _told(changes: Mapping) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())
