import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops import draws

pytestmark = pytest.mark.fast

DRAWS = {
    "split": (draws.split, jax.random.split, (7,)),
    "bits": (draws.bits, jax.random.bits, ((3, 5),)),
    "uniform": (draws.uniform, jax.random.uniform, ((4,),)),
    "normal": (draws.normal, jax.random.normal, ((2, 3), jnp.float32)),
}
each_draw = pytest.mark.parametrize("name", DRAWS)


def data(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


@each_draw
def test_draws_what_jax_draws(name):
    draw, as_jax, arguments = DRAWS[name]
    key, keys = jax.random.key(3), jax.random.split(jax.random.key(4), 5)
    np.testing.assert_array_equal(data(draw(key, *arguments)), data(as_jax(key, *arguments)))
    several = jax.jit(jax.vmap(lambda k: draw(k, *arguments)))(keys)
    np.testing.assert_array_equal(data(several), data(jax.vmap(lambda k: as_jax(k, *arguments))(keys)))


@each_draw
@pytest.mark.parametrize("mapped", [False, True], ids=["one", "vmapped"])
def test_is_a_call_of_its_own_in_a_loop(name, mapped):
    """Also after `vmap`, which traces the loop anew: without the attribute XLA has no such call left."""
    draw, _, arguments = DRAWS[name]

    def run(key):
        def step(key, _):
            key, other = jax.random.split(key)
            return key, data(draw(other, *arguments))

        return jax.lax.scan(step, key, length=3)[1]

    keys = jax.random.split(jax.random.key(0), 2)
    lowered = jax.jit(jax.vmap(run)).lower(keys) if mapped else jax.jit(run).lower(keys[0])
    calls = [line for line in lowered.compile().as_text().splitlines() if " call(" in line and 'inlineable="false"' in line]
    assert (len(calls) > 0) == (jax.default_backend() == "cpu")


def test_noise_is_differentiated_past():
    def loss(scale, key):
        return (scale * draws.normal(key, (8,))).sum()

    noise = jax.random.normal(jax.random.key(1), (8,))
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(2.0, jax.random.key(1)), noise.sum(), rtol=1e-6)
