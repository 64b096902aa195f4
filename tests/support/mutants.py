"""Mistakes that the tests must notice: each is a change of one place, and the tests of which at
least one has to fail.

`old` occurs exactly once in `file`. Where code moves, move the row along; a row goes only together
with what it breaks.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mistake."""

    name: str
    file: str  # from the root of the repository
    old: str
    new: str
    tests: tuple[str, ...]  # as pytest takes them


RETURNS = "rlkit/ops/returns.py"
BATCHES = "rlkit/algorithms/on_policy_batches.py"
PRIORITIES = "rlkit/algorithms/prioritized_replay.py"
SAMPLED = "rlkit/algorithms/replayed_sequences.py"
SEQUENCES = "tests/algorithms/test_replayed_sequences.py"
STORED_STEP = "rlkit/training/files/stored_step.py"
RESTORE = "rlkit/training/files/checkpoint_items.py"
RESTORED = 'return TrainState(learner=items["learner"], local=items["local"])'
HOST_RESUME = ("tests/training/test_host_resume.py",)
ON_DEVICES = ("tests/training/programs/test_devices.py",)
ENV_STATE = ("tests/envs/host/test_env_state.py",)
GROUPS = "tests/training/sweeps/test_groups.py"
ADDRESSES = "tests/training/sweeps/test_addresses.py"

MUTANTS = (
    # Returns
    Mutant(
        "GAE stops bootstrapping at time limits instead of terminations",
        RETURNS,
        "delta = reward + gamma * next_value * (1.0 - terminated) - value",
        "delta = reward + gamma * next_value * (1.0 - truncated) - value",
        ("tests/ops/test_returns.py",),
    ),
    Mutant(
        "GAE carries its sum over time limits",
        RETURNS,
        "gamma * gae_lambda * (1.0 - (terminated | truncated))",
        "gamma * gae_lambda * (1.0 - terminated)",
        ("tests/ops/test_returns.py",),
    ),
    Mutant(
        "lambda-returns mix in what follows a time limit",
        RETURNS,
        "mix = td_lambda * (1.0 - truncated)",
        "mix = td_lambda * jnp.ones_like(reward)",
        ("tests/ops/test_returns.py",),
    ),
    Mutant(
        "at time limits values are those of the next episode's first observation",
        BATCHES,
        "cut = rollout.truncated & ~rollout.terminated",
        "cut = jnp.zeros_like(rollout.truncated)",
        ("tests/algorithms/test_reference_update.py",),
    ),
    # Losses
    Mutant(
        "PPO's surrogate is the larger of both",
        "rlkit/ops/losses.py",
        "return -jnp.minimum(\n        ratio * advantage",
        "return -jnp.maximum(\n        ratio * advantage",
        ("tests/ops/test_losses.py",),
    ),
    Mutant(
        "PPO's entropy bonus has the wrong sign",
        "rlkit/algorithms/ppo.py",
        "- config.entropy_coef * entropy",
        "+ config.entropy_coef * entropy",
        ("tests/algorithms/test_losses.py",),
    ),
    Mutant(
        "advantages are not standardised",
        BATCHES,
        "if self.normalize_advantages:",
        "if False:",
        ("tests/algorithms/test_algorithm.py::test_advantages_are_standardised_per_minibatch",),
    ),
    Mutant(
        "SAC's target has no entropy",
        "rlkit/algorithms/sac.py",
        "(next_q - temperature(config, params) * log_prob)",
        "next_q",
        ("tests/algorithms/test_sac.py::test_critic_loss_by_hand",),
    ),
    Mutant(
        "SAC's target is the larger of both critics",
        "rlkit/algorithms/sac.py",
        'next_q = agent.q_values(target_params["critic"], batch.next_obs, next_action).min(0)',
        'next_q = agent.q_values(target_params["critic"], batch.next_obs, next_action).max(0)',
        ("tests/algorithms/test_sac.py::test_critic_loss_by_hand",),
    ),
    Mutant(
        "TD3's actor learns in every update",
        "rlkit/algorithms/td3.py",
        'actor=(actor_loss, "actor", config.policy_delay)',
        'actor=(actor_loss, "actor", 1)',
        ("tests/algorithms/test_td3.py",),
    ),
    Mutant(
        "TD3's noise is not clipped",
        "rlkit/algorithms/td3.py",
        "noise = jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip)",
        "noise = noise + 0.0",
        ("tests/algorithms/test_td3.py::test_smoothing_by_hand",),
    ),
    Mutant(
        "double Q-learning is on where it is off",
        "rlkit/algorithms/dqn.py",
        "if config.double else next_values",
        "if not config.double else next_values",
        ("tests/algorithms/test_dqn.py",),
    ),
    Mutant(
        "DQN's targets are renewed after every iteration",
        "rlkit/algorithms/target_update.py",
        "lambda new, old: jnp.where(passed, new, old),",
        "lambda new, old: new,",
        ("tests/algorithms/test_dqn.py",),
    ),
    Mutant(
        "updates that are not finite are taken",
        "rlkit/algorithms/gradient_step.py",
        "is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)",
        "is_finite = jnp.isfinite(loss) | True",
        (
            "tests/algorithms/test_updaters.py::test_a_step_that_is_not_finite_changes_nothing_and_is_counted",
        ),
    ),
    # Replay
    Mutant(
        "the ring's head moves by one row whatever is written",
        "rlkit/algorithms/replay_storage.py",
        "head=(self.head + num_steps) % self.num_rows",
        "head=(self.head + 1) % self.num_rows",
        ("tests/algorithms/test_replay_buffer.py",),
    ),
    Mutant(
        "a cut marks the oldest row",
        "rlkit/algorithms/replay_storage.py",
        "newest = (self.head - 1) % self.num_rows",
        "newest = self.head % self.num_rows",
        ("tests/algorithms/test_replay_buffer.py",),
    ),
    Mutant(
        "n-step sums go on over time limits",
        "rlkit/algorithms/replayed.py",
        "jnp.cumsum(done, axis=1)",
        "jnp.cumsum(terminated, axis=1)",
        ("tests/algorithms/test_replay_buffer.py",),
    ),
    Mutant(
        "n-step targets bootstrap after a termination",
        "rlkit/algorithms/replayed.py",
        "discount = gamma**num_counted * (1.0 - is_over)",
        "discount = gamma**num_counted",
        ("tests/algorithms/test_replay_buffer.py",),
    ),
    Mutant(
        "importance weights are turned round",
        PRIORITIES,
        "* probability) ** -beta",
        "* probability) ** beta",
        ("tests/algorithms/test_prioritized_replay.py",),
    ),
    Mutant(
        "renewed priorities lack their exponent",
        PRIORITIES,
        "jnp.where(is_finite, priority**self.priority_exponent, memory",
        "jnp.where(is_finite, priority, memory",
        ("tests/algorithms/test_prioritized_replay.py",),
    ),
    Mutant(
        "new transitions have the first priority rather than the highest",
        PRIORITIES,
        "urgency = memory.max_priority**self.priority_exponent",
        "urgency = 1.0",
        ("tests/algorithms/test_prioritized_replay.py",),
    ),
    # Replayed sequences
    Mutant(
        "gradients flow through the burn-in",
        "rlkit/agents/memory.py",
        "carry = jax.lax.stop_gradient(_over(torso, carry, *first)[0])",
        "carry = _over(torso, carry, *first)[0]",
        (SEQUENCES,),
    ),
    Mutant(
        "the final observation of an episode gets a new memory",
        SAMPLED,
        "restart = jnp.pad(is_last[:-1], ((1, 0), (0, 0)))",
        "restart = is_last",
        (SEQUENCES,),
    ),
    Mutant(
        "behind a shared memory, the critic's last hidden layer is the actor's",
        "rlkit/agents/actor_critic.py",
        "critic = self.critic_last(features) if",
        "critic = self.actor_last(features) if",
        ("tests/agents/test_memory.py",),
    ),
    Mutant(
        "an episode goes on with the memory of the one before",
        SAMPLED,
        "restart = jnp.pad(is_last[:-1], ((1, 0), (0, 0)))",
        "restart = jnp.zeros_like(is_last)",
        (SEQUENCES,),
    ),
    Mutant(
        "replayed sequences bootstrap after a termination",
        SAMPLED,
        "** num_steps * (1.0 - is_over)",
        "** num_steps",
        (SEQUENCES,),
    ),
    Mutant(
        "sums of rewards go on into the next episode",
        SAMPLED,
        "goes_on = goes_on & ~done",
        "goes_on = goes_on & True",
        (SEQUENCES,),
    ),
    Mutant(
        "sequences that are not whole are sampled",
        PRIORITIES,
        "tree = tree.set(index.ravel(), jnp.zeros(index.size))",
        "tree = tree.set(index.ravel(), jnp.full(index.size, urgency))",
        (SEQUENCES,),
    ),
    Mutant(
        "a final observation stands for the step after it",
        SAMPLED,
        "place + 1, place - 1)",
        "place + 1, place + 1)",
        (SEQUENCES,),
    ),
    Mutant(
        "results are those of the steps of the burn-in",
        SAMPLED,
        "at = ((place - self.burn_in) * place.shape[1] + column).ravel()",
        "at = (place * place.shape[1] + column).ravel()",
        (SEQUENCES,),
    ),
    Mutant(
        "replayed sequences are not normalised",
        "rlkit/algorithms/replay_batches.py",
        "batch.next_obs.replace(obs=seen)",
        "batch.next_obs",
        (SEQUENCES,),
    ),
    Mutant(
        "a sequence has the priority of its mean error",
        PRIORITIES,
        "LARGEST_SHARE = 0.9",
        "LARGEST_SHARE = 0.0",
        (SEQUENCES,),
    ),
    Mutant(
        "critics forget what they saw while collecting",
        "rlkit/agents/soft_actor_critic.py",
        "carry = carry.replace(memory=memory, noise=noise, critics=critics)",
        "carry = carry.replace(memory=memory, noise=noise)",
        ("tests/agents/test_memory.py",),
    ),
    # Statistics
    Mutant(
        "statistics of two batches are joined without their sizes",
        "rlkit/ops/running_stats.py",
        "jnp.square(d) * (kept * added / count)",
        "jnp.square(d) * (added / count)",
        ("tests/ops/test_running_stats.py",),
    ),
    Mutant(
        "outputs that were kept are read with the parameters of the learner",
        BATCHES,
        "acted = learner if behaviour is None else behaviour",
        "acted = learner",
        ("tests/algorithms/test_kept_outputs.py",),
    ),
    Mutant(
        "observations are normalised by statistics that they are part of already",
        "rlkit/algorithms/base.py",
        "agent, learner, memory, rollout, axis_name, behaviour",
        "agent, fold_observations(learner, rollout), memory, rollout, axis_name, behaviour",
        (
            "tests/algorithms/test_algorithm.py::test_observations_are_normalised_by_the_statistics_of_the_acting_policy",
        ),
    ),
    Mutant(
        "counters lose what goes beyond a word",
        "rlkit/ops/counters.py",
        "(low < self.low).astype(jnp.uint32)",
        "jnp.uint32(0)",
        ("tests/ops/test_counters.py",),
    ),
    # Random numbers
    Mutant(
        "every rollout uses the same keys",
        "rlkit/algorithms/collectors.py",
        "return keys[0], keys[1:].reshape(self.num_steps, 2)",
        "return key, keys[1:].reshape(self.num_steps, 2)",
        ("tests/algorithms/test_collectors.py",),
    ),
    Mutant(
        "the environments draw with the key of the policy",
        "rlkit/algorithms/collectors.py",
        "env.step(keys[1], local.env_state, action)",
        "env.step(keys[0], local.env_state, action)",
        ("tests/algorithms/test_collectors.py",),
    ),
    Mutant(
        "all environments that end start from the same key",
        "rlkit/envs/jittable/vectorized.py",
        "jax.random.fold_in(key, i))(numbers)",
        "jax.random.fold_in(key, 0 * i))(numbers)",
        ("tests/envs/test_contract.py::test_batch_is_a_loop_over_single_environments",),
    ),
    Mutant(
        "a transition with NaN is bootstrapped from",
        "rlkit/envs/jittable/vectorized.py",
        "terminated | broken, truncated & ~broken",
        "terminated & ~broken, truncated | broken",
        ("tests/envs/test_non_finite.py",),
    ),
    Mutant(
        "NaN stays in the successor of the transition that it cuts",
        "rlkit/envs/jittable/vectorized.py",
        "next_obs = where_rows(broken, obs, next_obs)",
        "next_obs = where_rows(broken, next_obs, next_obs)",
        ("tests/envs/test_non_finite.py",),
    ),
    Mutant(
        "NaN stays in the reward of the transition that it cuts",
        "rlkit/envs/jittable/vectorized.py",
        "jnp.where(broken, 0.0, reward)",
        "jnp.where(broken, reward, reward)",
        ("tests/envs/test_non_finite.py",),
    ),
    Mutant(
        "parallel seeds are one seed",
        "rlkit/training/compile/aot_compile.py",
        "(int(key) + np.arange(self.num_seeds))",
        "(int(key) + 0 * np.arange(self.num_seeds))",
        (
            "tests/training/test_trainer.py::test_results_with_seeds_and_each_seed_is_its_single_run",
        ),
    ),
    Mutant(
        "runs of neighbouring seeds share environments' seeds on the host",
        "rlkit/envs/host/base.py",
        "np.random.SeedSequence(row.tolist()).generate_state(each * count)",
        "row[-1] + np.arange(each * count)",
        (
            "tests/envs/host/test_gymnasium.py::test_runs_share_no_seed_and_a_block_of_seeds_is_the_single_run",
        ),
    ),
    Mutant(
        "all processes start the same episodes on the host",
        "rlkit/envs/host/base.py",
        "row[index * each : (index + 1) * each]",
        "row[:each]",
        ("tests/training/processes/test_shares.py",),
    ),
    Mutant(
        "a process that is silent is not lost",
        "rlkit/training/processes/watch.py",
        "now - peer.seen > self.timeout",
        "False",
        ("tests/training/processes/test_group.py::test_one_that_is_silent_is_lost",),
    ),
    Mutant(
        "threefry rotates by another distance",
        "rlkit/xla_cpu/threefry.py",
        "(13, 15, 26, 6)",
        "(13, 15, 26, 7)",
        ("tests/xla_cpu/test_threefry.py",),
    ),
    Mutant(
        "a fused network forgets NaN",
        "rlkit/xla_gpu/fused_kernels.py",
        "return jnp.where(z <= 0.0, 0.0, z)",
        "return jnp.where(z > 0.0, z, 0.0)",
        ("tests/xla_gpu/test_fused_layers.py::test_what_is_not_finite_stays_so",),
    ),
    Mutant(
        "a fused network's gradient counts the rows of one program alone",
        "rlkit/xla_gpu/fused_kernels.py",
        "total, start = sums.sum(0), 0",
        "total, start = sums[0], 0",
        ("tests/xla_gpu/test_fused_layers.py::test_kernels_compute_what_the_layers_do",),
    ),
    Mutant(
        "whole resets begin the episodes that go on",
        "rlkit/envs/jittable/vectorized.py",
        "return where_rows(done, reset(jnp.arange(self.num_envs)), (envs, obs))",
        "return where_rows(~done, reset(jnp.arange(self.num_envs)), (envs, obs))",
        ("tests/xla_gpu/test_loops.py::test_whole_resets_equal_those_in_blocks",),
    ),
    Mutant(
        "a network of the user's own is computed as the default one",
        "rlkit/agents/torso.py",
        "if type(torso) is Torso and type(torso.mlp)",
        "if isinstance(torso, Torso) and type(torso.mlp)",
        ("tests/xla_gpu/test_fused_layers.py::test_what_users_replace_is_used",),
    ),
    # Environments and evaluation
    Mutant(
        "next_obs is the first observation of the next episode",
        "rlkit/envs/jittable/vectorized.py",
        "next_obs=next_obs,",
        "next_obs=obs,",
        ("tests/envs/test_contract.py::test_batch_is_a_loop_over_single_environments",),
    ),
    Mutant(
        "on the host next_obs is the first observation of the next episode",
        "rlkit/envs/host/gymnasium.py",
        "put(next_obs, index, last)",
        "pass",
        (
            "tests/envs/host/test_gymnasium.py::test_an_episode_that_ends_shows_its_true_last_observation",
        ),
    ),
    Mutant(
        "the recurrent state goes on into the next episode",
        "rlkit/algorithms/collectors.py",
        "return where_rows(done, initial_carry, carry)",
        "return carry",
        ("tests/algorithms/test_collectors.py",),
    ),
    Mutant(
        "pink noise starts an episode from zero",
        "rlkit/agents/action_noise.py",
        "where_rows(carry.age == 0, new, moved)",
        "moved",
        ("tests/agents/test_action_noise.py",),
    ),
    Mutant(
        "gSDE's std trains the features of PPO",
        "rlkit/agents/state_dependent_noise.py",
        "if not self.learn_features:",
        "if False:",
        ("tests/agents/test_state_dependent_noise.py",),
    ),
    Mutant(
        "gSDE adds standard deviations instead of variances",
        "rlkit/agents/state_dependent_noise.py",
        "jnp.exp(2.0 * self._log_std(params))",
        "jnp.exp(self._log_std(params))",
        ("tests/agents/test_state_dependent_noise.py",),
    ),
    Mutant(
        "gSDE never draws again within an episode",
        "rlkit/agents/state_dependent_noise.py",
        "age % self.sample_freq == 0",
        "age == 0",
        ("tests/agents/test_state_dependent_noise.py",),
    ),
    Mutant(
        "on the host noise goes on into the next episode",
        "rlkit/training/programs/host_collector.py",
        "if self._has_carry:",
        "if False:",
        ("tests/training/programs/test_host_laws.py::test_noise_restarts_with_the_episode",),
    ),
    Mutant(
        "rewards of a second episode count in an evaluation",
        "rlkit/training/core/evaluator.py",
        "jnp.where(playing, timestep.reward, 0.0)",
        "timestep.reward",
        ("tests/training/core/test_evaluator.py",),
    ),
    Mutant(
        "surplus episodes count in an evaluation",
        "rlkit/training/core/evaluator.py",
        "lambda x: x[: self.num_episodes], own)",
        "lambda x: x, own)",
        ("tests/training/core/test_evaluator.py",),
    ),
    Mutant(
        "actions of a space that does not start at 0 are taken for others",
        "rlkit/agents/heads.py",
        "index = action - self.start",
        "index = action",
        ("tests/agents/test_heads.py",),
    ),
    Mutant(
        "the parts of an action are drawn with one key",
        "rlkit/agents/heads.py",
        "keys = jax.random.split(key, len(self.parts))",
        "keys = [key] * len(self.parts)",
        ("tests/agents/test_heads.py::test_parts_of_an_action_are_drawn_independently",),
    ),
    Mutant(
        "the entropy of an action leaves out a part",
        "rlkit/agents/heads.py",
        "return sum((part.entropy() for part in self.parts), start=",
        "return sum((part.entropy() for part in self.parts[1:]), start=",
        ("tests/agents/test_heads.py::test_composite",),
    ),
    Mutant(
        "agents may call the parts of an action otherwise",
        "rlkit/algorithms/compatibility.py",
        "return jax.tree.structure(action) == jax.tree.structure(wanted) and kinds(",
        "return kinds(",
        ("tests/training/test_composite_actions.py::test_agents_for_other_parts_are_refused",),
    ),
    Mutant(
        "actions on the host keep the dtype that they come in",
        "rlkit/envs/host/actions.py",
        "action = np.array(action, dtype=space.dtype)",
        "action = np.array(action)",
        ("tests/envs/host/test_actions.py",),
    ),
    # Checkpoints and logs
    Mutant(
        "checksums of leaves are not compared",
        STORED_STEP,
        'require(same, fault, "its checksum differs"',
        'require(True, fault, "its checksum differs"',
        (
            "tests/training/files/test_checkpointer.py::test_a_flipped_bit_in_the_data_names_the_leaf",
            "tests/training/files/test_checkpointer.py::test_no_flipped_bit_goes_unnoticed",
        ),
    ),
    Mutant(
        "of equally good checkpoints the oldest is best",
        "rlkit/training/files/best_checkpoint.py",
        "return max(finite)[1] if finite else None",
        "return max(finite, key=lambda pair: (pair[0], -pair[1]))[1] if finite else None",
        (
            "tests/training/files/test_checkpointer.py::test_latest_and_best_stay_also_after_reopening",
        ),
    ),
    Mutant(
        "a checkpoint whose score is infinite is best",
        "rlkit/training/files/best_checkpoint.py",
        "if score is not None and math.isfinite(score)",
        "if score is not None",
        (
            "tests/training/files/test_checkpointer.py::test_latest_and_best_stay_also_after_reopening",
        ),
    ),
    Mutant(
        "a resumed run loses its optimiser state",
        RESTORE,
        RESTORED,
        RESTORED.replace(
            'items["learner"]',
            'items["learner"].replace('
            'opt_state=jax.tree.map(lambda x: 0 * x, items["learner"].opt_state))',
        ),
        ("tests/training/test_resume.py::test_every_field_of_the_state_is_needed",),
    ),
    Mutant(
        "a resumed run loses its key",
        RESTORE,
        RESTORED,
        RESTORED.replace('items["local"]', 'items["local"].replace(key=jax.random.key(0))'),
        ("tests/training/test_resume.py::test_a_damaged_newest_checkpoint_is_set_aside",),
    ),
    Mutant(
        "a resumed run loses its replay memory",
        RESTORE,
        RESTORED,
        RESTORED.replace(
            'items["local"]',
            'items["local"].replace(memory=jax.tree.map(lambda x: 0 * x, items["local"].memory))',
        ),
        ("tests/training/test_replay_checkpoints.py::test_a_memory_that_is_saved_comes_back",),
    ),
    Mutant(
        "Weights & Biases is tried again after it could not start",
        "rlkit/training/logs/wandb_logger.py",
        "self._gave_up = True",
        "self._gave_up = False",
        ("tests/training/logs/test_wandb_logger.py::test_wandb_that_cannot_start_is_tried_once",),
    ),
    Mutant(
        "an error of Weights & Biases ends the run",
        "rlkit/training/logs/wandb_logger.py",
        "except Exception as error:  # whatever happens, the records are safe in the JSONL file",
        "except ValueError as error:  # whatever happens, the records are safe in the JSONL file",
        ("tests/training/logs/test_wandb_logger.py::test_wandb_failures_cost_one_warning",),
    ),
    Mutant(
        "a run of one seed at Weights & Biases shows the mean over seeds",
        "rlkit/training/logs/wandb_logger.py",
        "if name not in self._of_seeds",
        "if name",
        ("tests/training/logs/test_wandb_logger.py::test_each_seed_has_a_run_of_its_own",),
    ),
    Mutant(
        "TensorBoard keeps what a resumed run logs again",
        "rlkit/training/logs/tensorboard_logger.py",
        "file.cut(sizes[self._name(path)])",
        "pass",
        ("tests/training/test_tracking.py::test_tensorboard_has_texts_and_settings",),
    ),
    Mutant(
        "a TensorBoard that is left running keeps what a resumed run logs again",
        "rlkit/training/logs/event_file.py",
        "self._append(step=first_step,",
        "self._append(step=10**9,",
        (
            "tests/training/logs/test_tensorboard_logger.py"
            "::test_resumed_files_equal_the_uninterrupted_ones",
        ),
    ),
    Mutant(
        "an uploaded policy comes with the secrets of its run",
        "rlkit/training/files/exported_policy.py",
        "redact(description)",
        "description",
        ("tests/training/files/test_exported_policy.py::test_secrets_stay_behind",),
    ),
    # Environments on the host
    Mutant(
        "environments on the host start new episodes although they were saved",
        "rlkit/training/programs/host_collector.py",
        "group.set_state(state, merge_seeds(own, seeds))",
        "group.obs = merge_seeds(own, seeds)",
        HOST_RESUME,
    ),
    Mutant(
        "a restored run acts on the observations of new episodes",
        "rlkit/training/programs/env_groups.py",
        "        self.obs = obs\n",
        "        pass\n",
        HOST_RESUME,
    ),
    Mutant(
        "environments that have gone on are saved with an older state",
        "rlkit/training/programs/host_collector.py",
        "self._is_ready and _are_same(ts.local.obs, self._last_obs)",
        "self._is_ready",
        HOST_RESUME,
    ),
    Mutant(
        "the random generators of saved environments are new ones",
        "rlkit/envs/host/env_state.py",
        '    _set_generators(env, state["generators"])\n',
        "",
        ENV_STATE,
    ),
    Mutant(
        "the steps of a time limit are not saved",
        "rlkit/envs/host/known_states.py",
        '{"_elapsed_steps": _optional(_count)}',
        "{}",
        ENV_STATE,
    ),
    Mutant(
        "fields of a saved environment are set unchecked",
        "rlkit/envs/host/env_state.py",
        "if not check_field(layer, name, check, state[name]):",
        "if False:",
        ENV_STATE,
    ),
    # Action masks
    Mutant(
        "a policy acts as if all were allowed",
        "rlkit/agents/actor_critic.py",
        "return only_allowed(out, obs, self.action_space), value, carry",
        "return out, value, carry",
        ("tests/agents/test_masking.py",),
    ),
    Mutant(
        "log-probs are those of all actions",
        "rlkit/agents/actor_critic.py",
        "out = only_allowed(out, obs, self.action_space)",
        "out = out",
        ("tests/agents/test_masking.py",),
    ),
    Mutant(
        "targets take the values of forbidden actions",
        "rlkit/agents/q_network.py",
        "return only_allowed(self.network.apply(params, obs)[1], obs, self.action_space)",
        "return self.network.apply(params, obs)[1]",
        ("tests/agents/test_masking.py",),
    ),
    Mutant(
        "ε-greedy draws forbidden actions",
        "rlkit/agents/q_network.py",
        "drawn = random_index(bits[1:], mask)",
        "drawn = as_integers(bits[1:], self.num_actions)",
        ("tests/agents/test_masking.py",),
    ),
    Mutant(
        "warm-up steps draw forbidden actions",
        "rlkit/algorithms/collectors.py",
        "return sample_allowed(action_space, key, obs), carry, extras",
        "return sample_allowed(action_space, key, jax.tree.leaves(obs)[0]), carry, extras",
        ("tests/training/test_masks.py::test_no_action_is_ever_forbidden[dqn-jittable-none]",),
    ),
    Mutant(
        "a probability of 0 makes discrete SAC's losses NaN",
        "rlkit/algorithms/discrete_sac.py",
        "return jnp.where(jnp.isneginf(log_probs), 0.0, log_probs)",
        "return log_probs",
        ("tests/algorithms/test_masked_losses.py",),
    ),
    Mutant(
        "networks see the mask",
        "rlkit/agents/masking.py",
        "return network.apply(params, without_mask(obs), *more)",
        "return network.apply(params, obs, *more)",
        ("tests/agents/test_masking.py",),
    ),
    Mutant(
        "a mask that allows nothing is no error",
        "rlkit/algorithms/finite.py",
        "return now | (after & rollout.truncated & ~rollout.terminated)",
        "return after & rollout.truncated & ~rollout.terminated",
        ("tests/training/test_masks.py",),
    ),
    # Several devices
    Mutant(
        "each device descends its own gradient",
        "rlkit/algorithms/gradient_step.py",
        "loss, gradients = pmean((loss, gradients), axis_name)",
        "loss = pmean(loss, axis_name)",
        ON_DEVICES,
    ),
    Mutant(
        "metrics are those of a device's own batch",
        "rlkit/algorithms/metrics.py",
        "    if axis_name is None:\n        return metrics\n    sums",
        "    if metrics is not None:\n        return metrics\n    sums",
        ON_DEVICES,
    ),
    Mutant(
        "statistics of a prefill's observations are a device's own",
        "rlkit/algorithms/base.py",
        "after = fold_observations(after, rollout, self.axis_name)",
        "after = fold_observations(after, rollout)",
        ON_DEVICES,
    ),
    Mutant(
        "statistics of a prefill's rewards are a device's own",
        "rlkit/algorithms/base.py",
        "after = fold_returns(learner, rollout, self.axis_name)",
        "after = fold_returns(learner, rollout)",
        ON_DEVICES,
    ),
    Mutant(
        "all devices draw the same random numbers",
        "rlkit/algorithms/initial_state.py",
        "own_key(key, axis_name) for key in (self.reset",
        "own_key(key, None) for key in (self.reset",
        ON_DEVICES,
    ),
    Mutant(
        "weights and new priorities are relative to a device's own ring",
        PRIORITIES,
        "return x if self.axis_name is None else jax.lax.pmax(x, self.axis_name)",
        "return x",
        ("tests/algorithms/test_prioritized_replay.py",),
    ),
    Mutant(
        "on other devices, environments go on with the transitions of others",
        "rlkit/ops/rows.py",
        "whole = jnp.moveaxis(x, 0, axis)",
        "whole = jnp.moveaxis(x, 0, axis + 1)",
        ON_DEVICES,
    ),
    # Sweeps on several machines
    Mutant(
        "each machine groups the trials of a sweep by its own memory",
        "rlkit/training/sweeps/plan.py",
        "if (text := files.store.read(files.plan(first))) is not None:",
        "if (text := files.store.read(f'another-{first}')) is not None:",
        (f"{GROUPS}::test_the_plan_is_that_of_the_machine_that_made_it",),
    ),
    Mutant(
        "two processes train one group",
        "rlkit/training/sweeps/stores/directory_store.py",
        "descriptor = take_lock(path, what)",
        "descriptor = os.open(path, os.O_RDWR | os.O_CREAT)",
        (f"{GROUPS}::test_a_group_belongs_to_one_process",),
    ),
    Mutant(
        "a request to a store is not tried again",
        "rlkit/training/sweeps/stores/address_store.py",
        "TRIES = 6",
        "TRIES = 1",
        (f"{ADDRESSES}::test_requests_that_fail_are_tried_again",),
    ),
    Mutant(
        "a group that was taken over writes on",
        "rlkit/training/sweeps/stores/owner.py",
        "if other is not None:\n            raise TakenOverError(",
        "if other == {}:\n            raise TakenOverError(",
        (f"{ADDRESSES}::test_a_group_that_was_taken_over_ends",),
    ),
    Mutant(
        "a group that is done is trained again",
        "rlkit/training/sweeps/standing.py",
        "return [trial for trial in members if (rung, trial) not in self._results]",
        "return list(members)",
        (f"{GROUPS}::test_a_group_that_is_done_is_done",),
    ),
)
