"""The ids of Jumanji 1.1. Imports nothing."""

IDS = (
    "BinPack-v2",
    "CVRP-v1",
    "Cleaner-v0",
    "Connector-v3",
    "FlatPack-v0",
    "Game2048-v1",
    "GraphColoring-v1",
    "JobShop-v0",
    "Knapsack-v1",
    "LevelBasedForaging-v0",
    "MMST-v0",
    "Maze-v0",
    "Minesweeper-v0",
    "MultiCVRP-v0",
    "PacMan-v1",
    "RobotWarehouse-v0",
    "RubiksCube-partly-scrambled-v0",
    "RubiksCube-v0",
    "SearchAndRescue-v0",
    "SlidingTilePuzzle-v0",
    "Snake-v1",
    "Sudoku-v0",
    "Sudoku-very-easy-v0",
    "TSP-v1",
    "Tetris-v0",
)
LEFT_OUT = {
    "Sokoban-v0": "downloads its levels from Hugging Face when it is made",
}
