"""Episodes in environments on the host: evaluation and recording, with acting compiled."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.errors import EnvFailedError
from rlkit.spaces import clip
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.evaluator import Evaluator, choose, count_broken
from rlkit.training.programs.env_groups import remake
from rlkit.training.programs.seed_axis import merge_seeds, split_seeds
from rlkit.types import Action, Carry, Key, Measurements, Obs, PolicyState, PyTree, TimeStep


class HostPlayer:
    """Plays whole episodes (see `Player`) in host environments, for all seeds in parallel.

    Follows the rules of `Evaluator` and uses its keys. With S seeds it makes its own S·N
    environments; `close` frees them.
    """

    def __init__(self, evaluator: Evaluator, compiler: Compiler):
        env = evaluator.env
        self._evaluator = evaluator
        self._seeds = compiler.num_seeds
        self._num_envs = env.num_envs
        self._env = env if self._seeds == 1 else remake(env, self._seeds * env.num_envs)
        self._is_own = self._env is not env
        self._act = {
            deterministic: compiler(
                functools.partial(self._act_in_step, deterministic=deterministic),
                axes=(0, 0, 0, None, None),
                out_axes=(0, 0, None),
            )
            for deterministic in (True, False)
        }

    def evaluate(self, policy: PolicyState) -> Measurements:
        """See `Player`."""
        key, episodes = jax.random.key(self._evaluator.seed), self._evaluator.num_episodes
        best, info = self._play(policy, key, episodes, deterministic=True)
        sampled, _ = self._play(policy, key, episodes, deterministic=False)
        return {
            "return": best["return"],
            "length": best["length"],
            "sampled_return": sampled["return"],
            "sampled_length": sampled["length"],
            **({"done_info": info} if info else {}),
            **count_broken(best, sampled),
        }

    def record(
        self, policy: PolicyState, key: Key, num_episodes: int, *, deterministic: bool
    ) -> dict[str, PyTree]:
        """See `Player`."""
        played = self._play(
            policy, key, num_episodes, deterministic=deterministic, keep_steps=True
        )[0]
        return {**played["steps"], "length": played["length"]}

    def close(self) -> None:
        """Frees the environments that this player made."""
        if self._is_own:
            self._env.close()

    def _act_in_step(
        self,
        policy: PolicyState,
        obs: Obs,
        carry: Carry,
        key: Key,
        time: Array,
        *,
        deterministic: bool,
    ) -> tuple[Action, Carry, Array]:
        """One seed's actions in step `time` ([] int32) for observations [N, ...]; compiled."""
        key, _ = jax.random.split(jax.random.fold_in(key, time))
        action, carry = choose(
            self._evaluator.agent, policy, obs, carry, key, deterministic=deterministic
        )
        return action, carry, time + 1

    def _play(
        self,
        policy: PolicyState,
        key: Key,
        num_episodes: int,
        *,
        deterministic: bool,
        keep_steps: bool = False,
    ) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
        """(episode values [(S,) E, ...], what `info` reported at their ends [(S,) E]).

        NaN stands for what was not reported.
        """
        keys = jax.random.split(key, math.ceil(num_episodes / self._num_envs))
        try:
            rounds = [self._round(policy, k, deterministic, keep_steps) for k in keys]
        except EnvFailedError as error:
            raise EnvFailedError(f"in evaluation, {error}") from error
        longest = max(int(each["length"].max()) for each, _ in rounds)
        axis = 0 if self._seeds == 1 else 1  # of the episodes

        def join(*parts: np.ndarray) -> np.ndarray:
            return np.take(np.concatenate(parts, axis), np.arange(num_episodes), axis)

        if keep_steps:
            for each, _ in rounds:
                each["steps"] = jax.tree.map(lambda x: _pad(x, axis + 1, longest), each["steps"])
        played = jax.tree.map(join, *(each for each, _ in rounds))
        infos = [info for _, info in rounds]
        missing = np.full(rounds[0][0]["length"].shape, np.nan)
        return played, {
            name: join(*(info.get(name, missing) for info in infos))
            for name in sorted(set().union(*infos))
        }

    def _round(
        self, policy: PolicyState, key: Key, deterministic: bool, keep_steps: bool
    ) -> tuple[dict[str, PyTree], dict[str, np.ndarray]]:
        """The first episode of every environment.

        Returns (return, length and whether NaN or infinity ended it [(S,) N], and steps if
        `keep_steps`; what `info` reported at the ends, [(S,) N]).
        """
        seeds, num = self._seeds, self._seeds * self._num_envs
        reset_key, step_key = jax.random.split(key)
        state, obs = self._env.reset(
            reset_key if seeds == 1 else jnp.broadcast_to(reset_key, (seeds,))
        )
        carry = jax.tree.map(
            lambda x: x if seeds == 1 else jnp.broadcast_to(x, (seeds, *x.shape)),
            self._evaluator.agent.initial_carry(self._num_envs),
        )
        time, steps, info = jnp.int32(0), [], {}
        broken: np.ndarray | None = None  # the environments do not tell
        playing, returns, lengths = (
            np.ones(num, bool),
            np.zeros(num, np.float32),
            np.zeros(num, np.int32),
        )
        while playing.any() and len(steps) < self._evaluator.max_steps:
            action, carry, time = self._act[deterministic](
                policy, split_seeds(obs, seeds), carry, step_key, time
            )
            action = merge_seeds(action, seeds)
            state, timestep = self._env.step(reset_key, state, action)
            done = np.asarray(timestep.terminated) | np.asarray(timestep.truncated)
            steps.append(self._row(obs, action, timestep, playing) if keep_steps else None)
            returns += np.where(playing, timestep.reward, np.float32(0.0))
            lengths += playing
            if timestep.non_finite is not None:
                now = playing & np.asarray(timestep.non_finite)
                broken = now if broken is None else broken | now
            for name, values in timestep.info.items():
                if np.ndim(values) == 1:
                    known = info.setdefault(name, np.full(num, np.nan))
                    known[done & playing] = np.asarray(values)[done & playing]
            obs, playing = timestep.obs, playing & ~done
        played = {"return": returns, "length": lengths, "non_finite": broken}
        played = split_seeds(played, seeds)
        if keep_steps:
            rows = jax.tree.map(lambda *x: np.stack(x, 1), *steps)  # [S·N, L, ...]
            played["steps"] = split_seeds(rows, seeds)
        return played, {name: split_seeds(values, seeds) for name, values in info.items()}

    def _row(
        self, obs: PyTree, action: Action, timestep: TimeStep, playing: np.ndarray
    ) -> dict[str, PyTree]:
        """One recorded step, zeros where the episode is over."""
        row = {
            "obs": obs,
            "action": clip(self._env.action_space, action),
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
        }
        return jax.tree.map(
            lambda x: np.where(playing.reshape(-1, *[1] * (np.ndim(x) - 1)), x, np.zeros_like(x)),
            row,
        )


def _pad(x: np.ndarray, axis: int, length: int) -> np.ndarray:
    return np.pad(x, [(0, length - n) if a == axis else (0, 0) for a, n in enumerate(x.shape)])
