"""The ids of POPGym, without its prefix `popgym-`. Imports nothing."""

IDS = (
    "AutoencodeEasy-v0",
    "RepeatPreviousEasy-v0",
    "RepeatFirstEasy-v0",
    "CountRecallEasy-v0",
    "PositionOnlyCartPoleEasy-v0",
    "PositionOnlyPendulumEasy-v0",
    "VelocityOnlyCartpoleEasy-v0",
    "NoisyPositionOnlyCartPoleEasy-v0",
    "NoisyPositionOnlyPendulumEasy-v0",
    "MultiarmedBanditEasy-v0",
    "HigherLowerEasy-v0",
    "BattleshipEasy-v0",
    "ConcentrationEasy-v0",
    "MineSweeperEasy-v0",
    "AutoencodeMedium-v0",
    "RepeatPreviousMedium-v0",
    "RepeatFirstMedium-v0",
    "CountRecallMedium-v0",
    "PositionOnlyCartPoleMedium-v0",
    "PositionOnlyPendulumMedium-v0",
    "VelocityOnlyCartpoleMedium-v0",
    "NoisyPositionOnlyCartPoleMedium-v0",
    "NoisyPositionOnlyPendulumMedium-v0",
    "MultiarmedBanditMedium-v0",
    "HigherLowerMedium-v0",
    "BattleshipMedium-v0",
    "ConcentrationMedium-v0",
    "MineSweeperMedium-v0",
    "AutoencodeHard-v0",
    "RepeatPreviousHard-v0",
    "RepeatFirstHard-v0",
    "CountRecallHard-v0",
    "PositionOnlyCartPoleHard-v0",
    "PositionOnlyPendulumHard-v0",
    "VelocityOnlyCartpoleHard-v0",
    "NoisyPositionOnlyCartPoleHard-v0",
    "NoisyPositionOnlyPendulumHard-v0",
    "MultiarmedBanditHard-v0",
    "HigherLowerHard-v0",
    "BattleshipHard-v0",
    "ConcentrationHard-v0",
    "MineSweeperHard-v0",
)

LABYRINTH = (
    "it needs mazelib and draws from Python's and NumPy's global generators, so that no seed"
    " repeats it beside others; POPGym itself advises against it, because it needs no memory"
)
LEFT_OUT = {
    "LabyrinthExploreEasy-v0": LABYRINTH,
    "LabyrinthExploreMedium-v0": LABYRINTH,
    "LabyrinthExploreHard-v0": LABYRINTH,
    "LabyrinthEscapeEasy-v0": LABYRINTH,
    "LabyrinthEscapeMedium-v0": LABYRINTH,
    "LabyrinthEscapeHard-v0": LABYRINTH,
}
