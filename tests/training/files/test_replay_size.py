"""What a replay buffer takes is computed, checked and stated before anything compiles."""

import dataclasses
import pathlib
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import ConfigError
from rlkit.training.compile.aot_compile import Compiled
from rlkit.training.config import REPLAY_LIMIT, PhasePlan, Plan
from rlkit.training.core.module import RLModule
from rlkit.training.files import replay_size as memory
from rlkit.training.logs.announcements import announcement, replay_memory
from rlkit.training.logs.human_units import human_bytes
from rlkit.training.logs.records import read_records
from rlkit.training.phase_plan import plan_of_phases

FRAME = 84 * 84 * 4  # bytes of four frames of Atari
DESIGN = pathlib.Path(__file__).parents[3] / "docs" / "design.md"


@dataclasses.dataclass(frozen=True)
class Frames:
    """Four stacked frames, as Atari has them; nothing happens."""

    max_episode_steps = 2
    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return jnp.int32(0), jnp.zeros((84, 84, 4), jnp.uint8)

    def step(self, key, state, action):
        return (
            state + 1,
            jnp.zeros((84, 84, 4), jnp.uint8),
            jnp.float32(0),
            jnp.bool_(False),
            state + 1 >= 2,
            {},
        )


def module_of(tiny, env=None, algorithm="dqn", **settings):
    env = env or tiny.env()
    return RLModule(
        env=env,
        agent=tiny.agent(env, algorithm),
        algorithm=tiny.algorithm(algorithm, **settings),
        total_steps=1e3,
    )


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_it_is_what_the_memory_takes(tiny, num_seeds):
    trainer = tiny.trainer("dqn", num_seeds=num_seeds, enable_evaluation=False)
    found = jax.tree.leaves(trainer.init(0).local.memory)
    assert (
        memory.replay_bytes(trainer.module, num_seeds) == sum(leaf.nbytes for leaf in found) > 1000
    )


def test_frames_are_stored_twice_and_the_docs_say_how_many_fit(tiny):
    each = (
        memory.replay_bytes(module_of(tiny, vectorize(Frames(), 2), capacity=100_000), 1) / 100_000
    )
    assert each == pytest.approx(2 * FRAME + 4 + 4 + 2, rel=0.001)  # action, reward, two flags
    assert f"{1e9 / each:,.0f} transitions" in re.sub(r"\s+", " ", DESIGN.read_text())


@pytest.mark.fast
def test_nothing_without_a_replay_buffer(tiny):
    assert memory.replay_bytes(tiny.module(), 3) == 0
    assert memory.check_replay(SimpleNamespace(), 3, available=0) == 0  # a module of one's own


@pytest.mark.parametrize("num_seeds", [1, 3])
def test_the_error_names_the_largest_capacity_that_fits(tiny, num_seeds):
    available, num_envs = 100_000_000, 2
    module = module_of(tiny, capacity=2 * 10**9)
    with pytest.raises(ConfigError) as caught:
        memory.check_replay(module, num_seeds, available)
    said = str(caught.value)
    assert (
        "(2,000,000,000 transitions" in said
        and "more than 90% of the 100 MB of memory here" in said
    )
    assert ("for each of 3 seeds)" in said) == ("train fewer seeds" in said) == (num_seeds > 1)
    assert "next_obs" not in said
    largest = int(re.search(r"--replay-buffer-capacity (\d+)\)", said)[1])

    def need(capacity):
        return memory.check_replay(module_of(tiny, capacity=capacity), num_seeds, available)

    assert 0 < need(largest) <= 0.9 * available
    with pytest.raises(ConfigError, match=f"lower replay_buffer_capacity to {largest} "):
        need(largest + num_envs)
    # Nobody knows how much there is.
    assert memory.check_replay(module, num_seeds, None) > available


@pytest.mark.parametrize("available", [1, 400])
def test_the_error_names_no_capacity_that_cannot_work(tiny, available):
    module = module_of(tiny, capacity=10**6, batch_size=20)
    with pytest.raises(
        ConfigError,
        match=r"not even 20 transitions, .* fit: use a smaller batch_size, fewer or smaller",
    ) as caught:
        memory.check_replay(module, 1, available)
    assert "lower" not in str(caught.value)


def test_the_error_says_that_images_are_stored_twice(tiny):
    module = module_of(tiny, vectorize(Frames(), 2), capacity=10**6)
    with pytest.raises(
        ConfigError,
        match=r"needs 56\.5 GB \(1,000,000 transitions, each with its images twice.*`next_obs`",
    ):
        memory.check_replay(module, 1, 16 * 10**9)


def test_a_trainer_refuses_before_it_compiles(tiny, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(Compiled, "__call__", lambda *_: called.append(1))
    with pytest.raises(ConfigError, match=r"lower replay_buffer_capacity to \d{6,} "):
        tiny.trainer(
            "dqn", share=False, replay_buffer_capacity=2 * 10**9, run_dir=str(tmp_path / "run")
        )
    assert not called and not (tmp_path / "run").exists()


# How much there is


@pytest.fixture
def groups(tmp_path):
    """`groups(own, **limits)`: the limit found for the lines `own` of /proc/self/cgroup and files
    of that text by path.
    """

    def limit(own, limits):
        (tmp_path / "own").write_text("\n".join(own))
        for path, text in limits.items():
            file = tmp_path / "groups" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return memory.cgroup_limit(tmp_path / "groups", tmp_path / "own")

    return limit


V1, V2 = "memory.limit_in_bytes", "memory.max"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("own", "limits", "found"),
    [
        ([], {}, None),
        (["0::/"], {V2: "max"}, None),
        (["0::/"], {V2: "4096"}, 4096),
        (
            ["0::/a/b"],
            {f"a/b/{V2}": "max", f"a/{V2}": "500", f"c/{V2}": "1"},
            500,
        ),  # of the group around it, of no other
        (
            ["3:cpuset:/x", "4:cpu,memory:/a"],
            {f"memory/a/{V1}": "700", f"memory/{V1}": "9223372036854771712"},
            700,
        ),
        (
            ["3:cpuset:/x"],
            {f"memory/x/{V1}": "1", f"x/{V2}": "1"},
            None,
        ),  # that is not a group of memory
        (["0::/out/of/sight"], {V2: "800"}, 800),  # as in a container
        (["4:memory:/out/of/sight", "0::/"], {f"memory/{V1}": "900"}, 900),
    ],
)
def test_limits_of_control_groups(groups, own, limits, found):
    assert groups(own, limits) == found


@pytest.mark.fast
def test_without_any_control_groups(tmp_path):
    assert memory.cgroup_limit(tmp_path / "no", tmp_path / "none") is None


@pytest.mark.fast
def test_the_memory_of_the_device(monkeypatch):
    def with_device(platform, stats):
        monkeypatch.setattr(
            jax,
            "local_devices",
            lambda: [SimpleNamespace(platform=platform, memory_stats=lambda: stats)],
        )
        return memory.device_memory()

    assert with_device("gpu", {"bytes_limit": 5, "bytes_in_use": 1}) == 5
    assert with_device("gpu", {}) is None and with_device("tpu", None) is None
    monkeypatch.setattr(
        memory.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10}.__getitem__
    )
    for limit, found in ((None, 40960), (2**63, 40960), (30000, 30000)):
        monkeypatch.setattr(memory, "cgroup_limit", lambda limit=limit: limit)
        assert with_device("cpu", None) == found

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(memory.os, "sysconf", unknown)
    monkeypatch.setattr(memory, "cgroup_limit", lambda: None)
    assert with_device("cpu", None) is None


# What is said


@pytest.mark.fast
@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (5130, "5.13 kB"),
        (999_700, "1 MB"),
        (41.23e9, "41.2 GB"),
        (1234e12, "1,234 TB"),
        (REPLAY_LIMIT, "2.15 GB"),
    ],
)
def test_sizes(count, text):
    assert human_bytes(count) == text


@pytest.mark.fast
def test_what_is_announced():
    one = replay_memory(1_000_000, 1, 164_000_000, 25_300_000_000)
    assert one == "replay buffer: 1,000,000 transitions, 164 MB of the 25.3 GB of memory here"
    two = replay_memory(1_000_000, 2, 328_000_000, None)
    assert two == "replay buffer: 1,000,000 transitions for each of 2 seeds, 328 MB"
    plan = Plan(
        num_checkpoints=2, epochs_per_checkpoint=3, env_steps_per_iteration=10, prefill_steps=20
    )
    fresh = announcement(plan, 0, 20, 1)
    assert fresh.startswith(
        "training to 80 environment steps, including 20 random warm-up steps: 2 outer iterations of"
        " 3 x 10"
    )
    refilled = announcement(plan, 1, 70, 1)  # 20 steps more than the plan knows
    assert refilled.startswith(
        "training from step 70 to 100 environment steps: 1 outer iteration of"
    )


@pytest.mark.fast
def test_phases_of_other_sizes_are_announced_by_their_sum():
    small = PhasePlan(num_checkpoints=4, epochs_per_checkpoint=1, env_steps_per_iteration=16)
    large = PhasePlan(num_checkpoints=10, epochs_per_checkpoint=1, env_steps_per_iteration=64)
    told = announcement(plan_of_phases([small, large], 0), 0, 0, 1)
    assert told == "training to 704 environment steps: 14 outer iterations"
    told = announcement(plan_of_phases([small, large], 0), 5, 128, 1)
    assert told == "training from step 128 to 704 environment steps: 9 outer iterations"
    alike = announcement(plan_of_phases([small, small], 0), 0, 0, 1)
    assert alike == "training to 128 environment steps: 8 outer iterations of 1 x 16 steps"


def test_a_run_announces_it(tiny, tmp_path):
    with tiny.trainer(
        "dqn", num_seeds=2, enable_evaluation=False, run_dir=str(tmp_path / "run")
    ) as trainer:
        trainer.run(0)
    texts = [
        record.text
        for record in read_records(tmp_path / "run" / "metrics.jsonl")
        if record.kind == "event"
    ]
    assert re.match(
        r"replay buffer: 60 transitions for each of 2 seeds, [\d.]+ kB of the [\d.]+ .B of memory"
        r" here$",
        texts[0],
    )
    # The memory is saved, of which there is nothing to say.
    assert texts[1].startswith("training to") and len(texts) == 2
