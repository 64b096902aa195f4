"""Films of a policy: which pictures are shown, and that recording changes nothing."""

import dataclasses
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from tiny_runs import settings_of

import rlkit
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.observation_wrappers import FrameStack
from rlkit.envs.jittable.wrappers import TimeLimit, Wrapper
from rlkit.errors import ConfigError
from rlkit.ops.counters import StepCounter
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.record_video import RecordVideo
from rlkit.training.video.film import film
from rlkit.training.video.stages import open_stage
from rlkit.types import PolicyState

LENGTH = 5


@dataclasses.dataclass(frozen=True)
class Dimmer:
    """Counts steps, rewards each by its number and shows them as a shade of grey."""

    ends: bool = True
    observation_space = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    render_fps = 10

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key, state, action):
        state = state + 1
        done = jnp.bool_(self.ends) & (state >= LENGTH)
        obs = jnp.float32(state)[None]
        return state, obs, jnp.float32(state), done, jnp.bool_(False), {}

    def render(self, state):
        return np.full((40, 40, 3), 40 * int(state), np.uint8)


@dataclasses.dataclass(frozen=True)
class Wrong(Dimmer):
    def render(self, state):
        return np.zeros((4, 4), np.float32)


@dataclasses.dataclass(frozen=True)
class Hasty(Dimmer):
    max_episode_steps = 9
    render_fps = "30"  # pyright: ignore[reportAssignmentType]


class Gray(gymnasium.Env):
    """The same on the host."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        obs = np.full(1, self.count, np.float32)
        return obs, float(self.count), self.count >= LENGTH, False, {}

    def render(self):
        return np.full((40, 40, 3), 40 * self.count, np.uint8)


class HastyGray(Gray):
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": "30"}
    max_episode_steps = 9


class Unseen(Gray):
    metadata: ClassVar = {"render_modes": []}

    def __init__(self):
        super().__init__()


def record(env, path, **settings):
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    policy = PolicyState(
        params=agent.init(jax.random.key(0)),
        obs_stats=None,
        env_steps=StepCounter.create(),
        total_steps=jnp.float32(0.0),
    )
    chosen = {"episodes": 2, "max_steps": 50, "seed": 0, "deterministic": True}
    chosen |= {"fps": None, "overwrite": False, **settings}
    return film(path, env=env, agent=agent, policy=policy, **chosen)


def shades(path):
    """The mean of each frame above its caption."""
    with Image.open(path) as image:
        found = []
        for number in range(image.n_frames):
            image.seek(number)
            found.append(int(np.asarray(image.convert("RGB"))[:30].mean().round()))
    return found


@pytest.fixture(scope="module")
def dimmed(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "dimmer.gif"
    return record(rlkit.vectorize(Dimmer(), 3), path)


def test_a_film_shows_every_state_up_to_the_last_one(dimmed):
    assert (dimmed.returns, dimmed.lengths) == ([15.0, 15.0], [LENGTH, LENGTH])
    assert shades(dimmed.path) == [0, 40, 80, 120, 160, 200] * 2


def test_wrappers_do_not_hide_the_drawing(tmp_path, dimmed):
    env = rlkit.vectorize(FrameStack(TimeLimit(Dimmer(ends=False), LENGTH), 2), 1)
    wrapped = record(env, tmp_path / "wrapped.gif")
    assert wrapped.returns == dimmed.returns
    assert shades(wrapped.path) == shades(dimmed.path)


@dataclasses.dataclass(frozen=True)
class Inverted(Wrapper):
    """Draws its own state, of which the wrapped environment's is a part."""

    render_fps = 20

    def reset(self, key):
        state, obs = self.env.reset(key)
        return (state, jnp.int32(0)), obs

    def step(self, key, state, action):
        inner, *rest = self.env.step(key, state[0], action)
        return (inner, state[1] + 1), *rest

    def inner_state(self, state):
        return state[0]

    def render(self, state):
        return np.full((40, 40, 3), 255 - 40 * int(state[1]), np.uint8)


@dataclasses.dataclass(frozen=True)
class Slower(Wrapper):
    render_fps = 2


def test_a_wrapper_may_draw_and_set_the_speed(tmp_path):
    filmed = record(rlkit.vectorize(TimeLimit(Inverted(Dimmer()), 9), 1), tmp_path / "own.gif")
    assert shades(filmed.path) == [255, 215, 175, 135, 95, 55] * 2
    speeds = {
        20: Inverted(Dimmer()),
        2: Slower(TimeLimit(Inverted(Dimmer()), 9)),
        10: TimeLimit(Dimmer(), 9),
    }
    for speed, env in speeds.items():
        with open_stage(rlkit.vectorize(env, 1)) as stage:
            assert stage.fps == speed


def test_the_host_shows_the_same_but_for_the_last_state(tmp_path, dimmed):
    """Which its environments have left when their step returns."""
    env = GymnasiumAdapter(Gray, num_envs=2, vectorization="async")
    filmed = record(env, tmp_path / "host.gif")
    assert (filmed.returns, filmed.lengths) == (dimmed.returns, dimmed.lengths)
    assert shades(filmed.path) == [0, 40, 80, 120, 160, 160] * 2  # with its last caption


def test_an_environment_without_a_drawing_shows_its_observations(tmp_path):
    env = rlkit.make_env("probe/Counter", 1)
    with open_stage(env) as stage:
        moment = stage.begin(jax.random.key(0))
        for step in range(2):
            later = stage.step(jax.random.key(step), np.zeros(1, np.int32))
    assert (later.picture != moment.picture).any()


@dataclasses.dataclass(frozen=True)
class Echo(Dimmer):
    """Rewards with the action; what the policy sees never changes."""

    def step(self, key, state, action):
        no = jnp.bool_(False)
        return state, jnp.zeros(1), action[0], no, no, {}


def test_each_step_samples_an_action_of_its_own(tmp_path):
    env, chosen = rlkit.vectorize(Echo(), 1), {"episodes": 2, "deterministic": False}
    one = record(env, tmp_path / "one.gif", max_steps=1, **chosen).returns
    two = record(env, tmp_path / "two.gif", max_steps=2, **chosen).returns
    seconds = [both - first for first, both in zip(one, two, strict=True)]
    assert len({round(action, 6) for action in one + seconds}) == 4


@dataclasses.dataclass(frozen=True)
class Restarts(Dimmer):
    """Begins again by itself."""

    auto_reset = True

    def step(self, key, state, action):
        state, obs, reward, done, cut, _ = super().step(key, state, action)
        return jnp.where(done, 0, state), obs, reward, done, cut, {"final_observation": obs}


def test_what_follows_an_episode_is_not_shown(tmp_path):
    filmed = record(rlkit.vectorize(Restarts(), 1), tmp_path / "auto.gif", episodes=1)
    assert filmed.returns == [15.0] and shades(filmed.path) == [0, 40, 80, 120, 160, 160]


def captions(path):
    """The caption of each picture, as an array."""
    with Image.open(path) as image:
        found = []
        for number in range(image.n_frames):
            image.seek(number)
            found.append(np.asarray(image.convert("RGB"))[-20:])
    return found


def test_the_last_caption_has_the_last_reward(tmp_path):
    """Of the host's environments too, whose last state is not shown."""
    env = GymnasiumAdapter(Gray, num_envs=1)
    *_, before, last = captions(record(env, tmp_path / "host.gif", episodes=1).path)
    assert (before != last).any()


@pytest.mark.parametrize("fps", [0.5, 12.4])
def test_any_speed_of_an_environment_will_do(tmp_path, fps):
    @dataclasses.dataclass(frozen=True)
    class Slow(Dimmer):
        render_fps = fps

    path = record(rlkit.vectorize(Slow(), 1), tmp_path / "slow.gif", episodes=1).path
    with Image.open(path) as image:
        assert image.info["duration"] == {0.5: 1000, 12.4: 80}[fps]


@pytest.mark.parametrize("max_steps", [0, -1, 2.5])
def test_a_length_that_is_none_is_refused(tmp_path, max_steps):
    with pytest.raises(ConfigError, match="max_steps must be a positive integer"):
        record(rlkit.vectorize(Dimmer(), 1), tmp_path / "film.gif", max_steps=max_steps)


def test_an_episode_is_cut_where_it_is_asked_to_be(tmp_path):
    filmed = record(rlkit.vectorize(Dimmer(), 1), tmp_path / "cut.gif", max_steps=2, episodes=1)
    assert (filmed.returns, filmed.lengths) == ([3.0], [2])
    assert shades(filmed.path) == [0, 40, 80]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (rlkit.vectorize(Dimmer(ends=False), 1), r"no time limit.*pass max_steps=1000"),
        (rlkit.vectorize(TimeLimit(Wrong(), 5), 1), r"must return \[height, width, 3\] uint8, got"),
        (rlkit.vectorize(Hasty(), 1), "render_fps of Hasty is '30'; set it to how many"),
        (GymnasiumAdapter(HastyGray, num_envs=1), "render_fps of HastyGray is '30'; set it to how"),
        (GymnasiumAdapter(Unseen, num_envs=1, max_episode_steps=5), r"^Unseen draws no pictures"),
        (GymnasiumAdapter(Gray(), num_envs=1, max_episode_steps=5), r"passed as an object"),
    ],
    ids=["never ends", "wrong picture", "fps", "fps on the host", "no render_mode", "an object"],
)
def test_what_cannot_be_filmed_is_said(tmp_path, env, message):
    with pytest.raises(ConfigError, match=message):
        record(env, tmp_path / "film.gif", max_steps=None)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_recording_changes_nothing_of_a_run(tmp_path):
    digests = []
    for name, callbacks in (("plain", []), ("filmed", [RecordVideo(every=2, ending=".gif")])):
        settings = settings_of(tmp_path / name, num_seeds=2, max_evaluation_steps=4)
        with rlkit.build(settings, callbacks=callbacks) as trainer:
            trainer.run(0)
            digests.append(tree_digest(trainer.state))
    assert digests[0] == digests[1]
    videos = [path.name for path in (tmp_path / "filmed" / "videos").iterdir()]
    assert videos == ["iteration-2.gif"]


@pytest.mark.full
def test_a_policy_of_a_run_records_itself(tmp_path):
    settings = settings_of(tmp_path / "run", num_seeds=2, max_evaluation_steps=4)
    with rlkit.build(settings) as trainer:
        trainer.run(0)
    policy = rlkit.load_policy(tmp_path / "run", seed_index=1)
    video = policy.record_video(tmp_path / "policy.gif", episodes=2)
    assert video.lengths == [4, 4] and video.path.is_file()
    with pytest.raises(ConfigError, match="already exists"):
        policy.record_video(video.path)
    again = policy.record_video(video.path, episodes=2, overwrite=True)
    assert again.returns == video.returns


def test_a_video_that_fails_is_said_once_and_ends_no_run(tmp_path, caplog, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("my renderer is broken")

    monkeypatch.setattr(rlkit.Trainer, "record_video", fails)
    settings = settings_of(tmp_path / "run", max_evaluation_steps=4)
    with rlkit.build(settings, callbacks=[RecordVideo(ending=".gif")]) as trainer:
        trainer.run(0)
        assert trainer.outer_iteration == 2
    assert caplog.text.count("(ZeroDivisionError: my renderer is broken)") == 1


def test_videos_of_another_run_are_kept(tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "iteration-1.gif").write_bytes(b"older")
    recorder = RecordVideo(ending=".gif", directory=tmp_path / "films")
    message = r"already holds iteration-1\.gif of another run"
    build = rlkit.build(settings_of(tmp_path / "run"), callbacks=[recorder])
    with build as trainer, pytest.raises(ConfigError, match=message):
        trainer.run(0)
    assert (tmp_path / "films" / "iteration-1.gif").read_bytes() == b"older"


@pytest.mark.fast
def test_a_branch_is_another_run_and_a_run_that_was_moved_is_none(tmp_path):
    recorder = RecordVideo(ending=".gif", directory=tmp_path / "films")

    def start(run, iteration):
        config = rlkit.TrainerConfig(total_steps=1, run_dir=str(tmp_path / run))
        recorder.on_run_start(SimpleNamespace(config=config, outer_iteration=iteration))

    (tmp_path / "run").mkdir()
    start("run", 0)
    (tmp_path / "films" / "iteration-1.gif").touch()
    start("run", 1)  # resumed
    with pytest.raises(ConfigError, match="of another run; choose another directory"):
        start("branch", 1)
    (tmp_path / "run").rename(tmp_path / "moved")
    start("moved", 1)


@pytest.mark.fast
@pytest.mark.parametrize("chosen", [False, True])
def test_a_run_that_begins_again_has_its_own_videos(chosen, tmp_path, monkeypatch):
    """It was killed before its first checkpoint, say. The process may have gone elsewhere."""
    monkeypatch.chdir(tmp_path)
    config = rlkit.TrainerConfig(total_steps=1, run_dir="run")
    recorder = RecordVideo(ending=".gif", directory="films" if chosen else None)
    folder, filmed = tmp_path / ("films" if chosen else "run/videos"), []
    view = SimpleNamespace(config=config, outer_iteration=0)
    view.record_video = lambda path, **_: filmed.append(path)
    recorder.on_run_start(view)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "iteration-1.gif").write_bytes(b"older")
    recorder.on_run_start(view)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recorder.on_iteration_end(view, 1, {})
    assert filmed == [folder / "iteration-1.gif"]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every must be a positive integer"),
        ({"episodes": 1.5}, "episodes must be a positive integer"),
        ({"ending": ".avi"}, r"must be one of \.mp4, \.gif, got '\.avi'"),
    ],
)
def test_mistakes_in_the_callback(settings, message):
    with pytest.raises(ConfigError, match=message):
        RecordVideo(**settings)


@pytest.mark.fast
def test_the_callback_wants_a_directory_and_a_seed_that_there_is():
    with pytest.raises(ConfigError, match="no directory for its videos; pass directory='videos'"):
        RecordVideo().check_config(rlkit.TrainerConfig(total_steps=1))
    with pytest.raises(ConfigError, match="seed_index"):
        RecordVideo(seed_index=2, directory="x").check_config(rlkit.TrainerConfig(total_steps=1))
