"""The ids of Brax 0.14. Imports nothing."""

IDS = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "walker2d",
)
LEFT_OUT = {
    "fast": "a stand-in without physics, for the tests of Brax",
    "swimmer": "fails on JAX 0.10 and later: its fluid forces call jnp.clip with a_min",
}
