"""The loaders that are copied beside an exported policy. They know nothing of rlkit."""
