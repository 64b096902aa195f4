"""Presets reach published returns (deterministic evaluation, mean over seeds run as one program): `make learning`."""

import dataclasses

import pytest

from rlkit.training import run_config

# (algorithm, environment, least mean return, seeds); steps are the preset's. Published numbers: docs/learning.md.
THRESHOLDS = [
    ("ppo", "gymnax/CartPole-v1", 475.0, 4),
    ("ppo", "gymnax/Acrobot-v1", -90.0, 5),
    ("ppo", "gymnax/Pendulum-v1", -180.0, 5),
    ("ppo", "gymnax/Breakout-MinAtar", 25.0, 5),
]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("algorithm", "env_id", "least", "num_seeds"), THRESHOLDS, ids=lambda value: str(value))
def test_preset_reaches_its_return(algorithm, env_id, least, num_seeds, tmp_path, capsys):
    from rlkit.training.building import build

    preset = run_config.preset(algorithm, env_id)
    settings = dataclasses.replace(
        preset.trainer, num_seeds=num_seeds, evaluation_episodes=64, run_dir=str(tmp_path / "run"), debug=False
    )
    with build(dataclasses.replace(preset, trainer=settings)) as trainer:
        trainer.run(preset.seed)
        summary = trainer.summary()
    with capsys.disabled():
        per_seed = ", ".join(f"{value:.1f}" for value in summary["eval_return_per_seed"])
        print(
            f"\n{algorithm} {env_id}: {summary['eval_return_mean']:.2f} (seeds: {per_seed}) after {summary['env_steps']:,} "
            f"steps each, {summary['wall_seconds']:.0f} s, {summary['env_steps_per_second']:,.0f} steps/s"
        )
    assert summary["eval_return_mean"] >= least
