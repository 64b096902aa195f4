"""Ids of the built-in environments as static tables: listing and mistyping them imports neither JAX nor gymnax (seconds).

Tests compare both tables with what they stand for.
"""

GYMNAX_IDS = (
    "Acrobot-v1",
    "Asterix-MinAtar",
    "BernoulliBandit-misc",
    "Breakout-MinAtar",
    "CartPole-v1",
    "Catch-bsuite",
    "DeepSea-bsuite",
    "DiscountingChain-bsuite",
    "FourRooms-misc",
    "Freeway-MinAtar",
    "FrozenLake-misc",
    "GaussianBandit-misc",
    "MNISTBandit-bsuite",
    "MemoryChain-bsuite",
    "MetaMaze-misc",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "PointRobot-misc",
    "Pong-misc",
    "Reacher-misc",
    "Seaquest-MinAtar",
    "SimpleBandit-bsuite",
    "SpaceInvaders-MinAtar",
    "Swimmer-misc",
    "UmbrellaChain-bsuite",
)
NEEDS_NETWORK = {"MNISTBandit-bsuite": "it downloads the MNIST images when it is made"}

# Names of the classes in rlkit.envs.probes.
PROBE_IDS = (
    "ActionChoice",
    "ContinuousAction",
    "Counter",
    "DictObservation",
    "Discounting",
    "MultiDiscreteAction",
    "ObservationDependentAction",
    "TimeLimitProbe",
    "ValueByObservation",
    "ValueOnly",
)
