"""A picture of ten environments of eight suites, after some random steps."""

import os

import jax
import numpy as np

import page
import rlkit
from rlkit.spaces import sample_allowed
from rlkit.training.video.stages import open_stage

PATH = page.IMAGES / "suites.png"
COLUMNS = 5
SHOWN = {  # ids, and how many steps are taken
    "brax/ant": 20,
    "craftax/Craftax-Classic-Pixels-v1": 1,
    "jumanji/PacMan-v1": 20,
    "jumanji/Game2048-v1": 60,
    "minigrid/BabyAI-GoToRedBallGrey-v0": 3,
    "navix/Navix-KeyCorridorS3R3-v0": 3,
    "pgx/chess": 6,
    "pgx/minatar-breakout": 8,
    "playground/CheetahRun": 20,
    "xminigrid/MiniGrid-MemoryS16": 3,
}


def draw() -> None:
    """Writes the picture."""
    from matplotlib.figure import Figure

    os.environ.setdefault("MUJOCO_GL", "egl")  # Brax and Playground, without a display
    rows = -(-len(SHOWN) // COLUMNS)
    figure = Figure(figsize=(2.4 * COLUMNS, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, (env_id, steps) in zip(panels, SHOWN.items(), strict=False):
        panel.imshow(_picture(env_id, steps))
        panel.set_title(env_id, fontsize=8)
    figure.savefig(PATH, dpi=100)


def _picture(env_id: str, steps: int) -> np.ndarray:
    """After so many steps of one episode, or at its start if it ends before."""
    env, key = rlkit.make_env(env_id, 1), jax.random.key(0)
    choose = jax.jit(lambda key, obs: sample_allowed(env.action_space, key, obs))
    with open_stage(env) as stage:
        moment = stage.begin(key)
        picture = moment.picture
        for step in range(steps):
            own = jax.random.fold_in(key, step)
            moment = stage.step(own, jax.device_get(choose(own, moment.obs)))
            if moment.is_last or moment.picture is None:
                break
            picture = moment.picture
    return np.asarray(picture)
