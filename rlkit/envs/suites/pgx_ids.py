"""The ids of Pgx 2.6, and how long they last. Imports nothing."""

IDS = (
    "2048",
    "animal_shogi",
    "backgammon",
    "chess",
    "connect_four",
    "gardner_chess",
    "go_19x19",
    "go_9x9",
    "hex",
    "kuhn_poker",
    "leduc_holdem",
    "minatar-asterix",
    "minatar-breakout",
    "minatar-freeway",
    "minatar-seaquest",
    "minatar-space_invaders",
    "othello",
    "shogi",
    "sparrow_mahjong",
    "tic_tac_toe",
)
LEFT_OUT: dict[str, str] = {}
LIMITS = {  # steps of the agent, the last before Pgx ends the game whatever its state
    "animal_shogi": 127,
    "chess": 255,
    "gardner_chess": 127,
    "minatar-freeway": 2500,
    "shogi": 255,
}
