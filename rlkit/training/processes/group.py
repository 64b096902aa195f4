"""`Processes`: those that train one run, as each of them sees them."""

import atexit
import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from rlkit import errors
from rlkit.errors import ProcessError, RlkitError, require
from rlkit.training.compile.placing import is_divided, own_part
from rlkit.training.processes.channel import Channel
from rlkit.training.processes.transfer import (
    exchanged,
    joined,
    own_pieces,
    whole_of,
    with_keys,
    without_keys,
)
from rlkit.training.processes.watch import GRACE, Watch
from rlkit.types import PyTree
from rlkit.validation import PlainData

T = TypeVar("T")
TIMEOUT, PATIENCE = 30.0, 600.0  # seconds, see `start_processes`


class Processes:
    """The processes of a run. Every process makes the same calls, in the same order.

    Process 0 is the main one: it alone writes files and calls callbacks. A single process agrees
    with itself: nothing is sent, copied or waited for.
    """

    def __init__(
        self,
        channel: Channel | None = None,
        *,
        index: int = 0,
        count: int = 1,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ):
        self.index, self.count, self._patience = index, count, patience
        self._rounds, self._is_told = 0, False
        self._watch: Watch | None = None
        if channel is not None:
            self._channel = channel
            self._watch = Watch(channel, index=index, count=count, timeout=timeout)
            atexit.register(self.leave)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.index == 0

    @property
    def lost(self) -> str | None:
        """Which process was lost, and how; None: all are there."""
        return None if self._watch is None else self._watch.lost

    def tell_how_to_go_on(self, hint: Callable[[], str]) -> None:
        """`hint()` is the end of an error's sentence, called from any thread."""
        if self._watch is not None:
            self._watch.hint = hint

    # Agreeing

    def agree(self, value: T) -> list[T]:
        """What each process says, plain JSON data; returns when all have said it.

        Raises `ProcessError` if one failed or is lost, or does not come within the patience.
        """
        if self.count == 1:
            return [value]
        # Process 0 gives up first, and says for whom.
        patience = self._patience if self.is_main else self._patience + GRACE
        said = self._round({"value": value}, patience)
        failed = [f"process {i} failed: {x['failed']}" for i, x in enumerate(said) if "failed" in x]
        if failed:
            self._is_told = True
            raise ProcessError(failed[0])
        return [each["value"] for each in said]

    def on_main(self, function: Callable[[], T]) -> T:
        """The plain JSON data that `function` returns in process 0, for all; its error is raised in
        all.
        """
        if self.count == 1:
            return function()
        outcome: dict[str, Any] = {}
        error: BaseException | None = None
        if self.is_main:
            try:
                outcome = {"value": function()}
            except RlkitError as raised:
                error, outcome = raised, {"error": [type(raised).__name__, str(raised)]}
        found = self.agree(outcome)[0]
        if error is not None:
            raise error
        if "error" in found:
            name, text = found["error"]
            kind = getattr(errors, name, None)
            if not (isinstance(kind, type) and issubclass(kind, RlkitError)):
                kind = ProcessError
            raise kind(text)
        return found["value"]

    def require_same(self, values: Mapping[str, object]) -> None:
        """Raises `ProcessError` unless all processes have the values of process 0."""
        for index, other in enumerate(said := self.agree(dict(values))):
            for name, value in said[0].items():
                require(
                    other.get(name) == value,
                    f"process {index} has {name}={other.get(name)!r}, process 0 {value!r}",
                    "start all processes with the same command and the same versions",
                    ProcessError,
                )

    def fail(self, error: BaseException) -> bool:
        """Tells the others of an error; whether all are at the same point, and can still agree."""
        watch = self._watch
        if watch is None:
            return True
        watch.is_known = True
        if not self._is_told:
            text = _told(error)
            watch.say("failed", text)
            if watch.lost is not None:
                return False
            # Others that cannot come end in GRACE seconds; this one tells its error before. Unless
            # they are why it failed, which shows after the timeout.
            patience = watch.timeout + 1 if _is_cut_off(error) else GRACE / 2
            try:
                self._round({"failed": text}, patience)
            except ProcessError:
                return False
            self._is_told = True
        return watch.lost is None

    def explain(self, error: BaseException) -> BaseException:
        """The error to raise for `error`: if another process is why, one that says so."""
        watch = self._watch
        if watch is None or isinstance(error, RlkitError | KeyboardInterrupt):
            return error
        if watch.lost is not None:
            return ProcessError(f"{watch.lost}{watch.hint()}")
        return ProcessError(watch.failed) if _is_cut_off(error) and watch.failed else error

    def settle(self) -> None:
        """After an error at which all were at the same point: they can go on together."""
        if self._watch is not None and self._is_told:
            self._is_told = False
            self._watch.settle()

    def leave(self, error: str = "", exit_code: int = 1) -> None:
        """Ends what this process shares with others, when they do too; at exit at the latest.

        They hear of an `error`. If some do not come, this process ends, with `exit_code`.
        """
        watch, self._watch = self._watch, None
        if watch is None:
            return
        raised = getattr(sys, "last_value", None)  # which nobody caught
        if error or raised is not None:
            watch.exit_code = exit_code
            watch.say("failed", error or _told(raised))
        watch.leave(self._patience)

    # Sharing arrays

    def gathered(self, tree: PyTree) -> PyTree:
        """A tree in whole, on the host, in process 0; in others, the tree as it is."""
        if self.count == 1:
            return tree
        leaves, kinds, structure = without_keys(tree)
        divided = [x for x in leaves if is_divided(x)]
        mine = joined([own_pieces(x) for x in divided])
        parts = self._exchange(mine, is_heard=self.is_main)
        if not self.is_main:
            return tree
        found = [whole_of(x, parts) if is_divided(x) else own_part(x) for x in leaves]
        return with_keys(found, kinds, structure)

    def from_main(self, tree: PyTree, like: PyTree) -> PyTree:
        """The tree that process 0 has, in all; `like` has its shapes, `tree` matters there alone.

        Leaves are on the host, keys as their data.
        """
        if self.count == 1:
            return tree
        given = jax.tree.leaves(tree) if self.is_main else []
        sent = self._exchange(joined([np.asarray(x) for x in given]))[0]
        shapes, structure = jax.tree.flatten(like)
        found = []
        for shape in shapes:
            size = np.dtype(shape.dtype).itemsize * int(np.prod(shape.shape))
            found.append(sent[:size].copy().view(shape.dtype).reshape(shape.shape))
            sent = sent[size:]
        return jax.tree.unflatten(structure, found)

    def collected(self, mine: np.ndarray) -> np.ndarray:
        """The bytes [B] uint8 of all processes as one array; see `own_share`."""
        if self.count == 1:
            return mine
        parts = self._exchange(mine)
        sizes = np.array([self.count, *(len(part) for part in parts)], np.uint64)
        return np.concatenate([sizes.view(np.uint8), *parts])

    def own_share(self, collected: np.ndarray) -> np.ndarray:
        """The bytes that this process gave to `collected`, where there are as many processes."""
        if self.count == 1:
            return collected
        sizes = collected[8 : 8 * (self.count + 1)].view(np.uint64).astype(int)
        start = 8 * (self.count + 1) + sizes[: self.index].sum()
        return collected[start : start + sizes[self.index]]

    def _exchange(self, mine: np.ndarray, *, is_heard: bool = True) -> list[np.ndarray]:
        return exchanged(mine, self.agree(len(mine)), is_heard=is_heard)

    # Rounds

    def _round(self, said: PlainData, patience: float) -> list[PlainData]:
        """What all processes say, in their order: they tell process 0, and it tells them."""
        number, self._rounds = self._rounds, self._rounds + 1
        deadline = time.monotonic() + patience
        try:
            found = self._tell_and_hear(number, said, deadline)
        except jax.errors.JaxRuntimeError:
            raise ProcessError(f"process 0 cannot be reached{self._hint()}") from None
        if "lost" in found:
            raise ProcessError(found["lost"])
        return found["said"]

    def _tell_and_hear(self, number: int, said: PlainData, deadline: float) -> PlainData:
        if not self.is_main:
            self._channel.put(f"said/{number}/{self.index}", said)
            return self._await(f"all/{number}", 0, deadline)
        others = range(1, self.count)
        try:
            each = [self._await(f"said/{number}/{i}", i, deadline) for i in others]
        except ProcessError as error:
            self._channel.put(f"all/{number}", {"lost": str(error)})
            raise
        found = {"said": [said, *each]}
        self._channel.put(f"all/{number}", found)
        if number > 1:  # all have heard of it: they took part in the round after it
            self._channel.delete(f"all/{number - 2}")
            self._channel.delete(f"said/{number - 2}/")
        return found

    def _await(self, key: str, index: int, deadline: float) -> PlainData:
        """What process `index` says. Raises `ProcessError` if it will not."""
        watch = self._watch
        assert watch is not None
        while (found := self._channel.get(key)) is None:
            if watch.lost is not None:
                raise ProcessError(f"{watch.lost}{self._hint()}")
            if watch.has_ended(index):
                raise ProcessError(watch.failed or f"process {index} has ended{self._hint()}")
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"process {index} has not come as far as process {self.index} for"
                    f" {self._patience:g} s{self._hint()}"
                )
            time.sleep(0.01)
        return found

    def _hint(self) -> str:
        return "" if self._watch is None else self._watch.hint()


def _is_cut_off(error: BaseException) -> bool:
    """Whether it may be that of a result which never came from another process."""
    return isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)


def _told(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


ALONE = Processes()


@functools.cache
def _joined(client: Any) -> Processes:
    """The group of a process that called `jax.distributed.initialize` itself."""
    return Processes(Channel(client), index=jax.process_index(), count=jax.process_count())


_started: list[Processes] = []


def started(processes: Processes) -> None:
    """From now on, these are the processes of all runs."""
    _started.append(processes)


def current() -> Processes:
    """The processes of a run that begins now; `ALONE` unless several were started."""
    if _started:
        return _started[-1]
    if not jax.distributed.is_initialized():
        return ALONE
    from jax._src import distributed  # its client has no public name

    return _joined(distributed.global_state.client)
