"""The kernels of `fused_layers`, in Pallas for Triton.

JAX says that it will remove Pallas for Triton some day; `fused_layers` is then off.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def _zero_unless_positive(z: Array) -> Array:
    return jnp.where(z <= 0.0, 0.0, z)  # NaN stays NaN, which `maximum` forgets on a GPU


# Each activation, and from the gradient by h = activation(z), and h, the gradient by z.
ACTIVATIONS: dict[str | None, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "tanh": (jnp.tanh, lambda d, h: d * (1.0 - h * h)),
    "relu": (_zero_unless_positive, lambda d, h: jnp.where(h > 0.0, d, 0.0)),
    None: (lambda z: z, lambda d, h: d),
}
NARROWEST = 16  # a product on the tensor cores has at least so many rows and columns

Layer = tuple[Array, Array]  # weight [I, O] and bias [O]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the rows of a batch are divided; the defaults are measured (benchmarks/notes.md)."""

    block: int = 64  # rows at a time
    warps: int = 4
    programs: int = 264  # of a backward pass: two for each multiprocessor of an H100

    def blocks(self, rows: int) -> int:
        """How many blocks `rows` rows are."""
        return math.ceil(rows / self.block)

    def options(self) -> plgpu.CompilerParams:
        """What Triton is told."""
        return plgpu.CompilerParams(num_warps=self.warps, num_stages=1)


@dataclasses.dataclass(frozen=True)
class Static:
    """What a kernel is compiled for."""

    activations: tuple[str | None, ...]
    plan: Plan = Plan()


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def layers(x: Array, parameters: tuple[Layer, ...], static: Static) -> Array:
    """x [B, I] -> [B, O]; see `fused_layers`."""
    return jax.lax.platform_dependent(
        x,
        parameters,
        cuda=functools.partial(outputs, static=static),
        default=functools.partial(one_by_one, activations=static.activations),
    )


def _layers_forward(x: Array, parameters: tuple[Layer, ...], static: Static) -> tuple[Array, Any]:
    return layers(x, parameters, static), (x, parameters)


def _layers_backward(static: Static, saved: Any, gradient: Array) -> tuple[Array, Any]:
    def default(x: Array, parameters: tuple[Layer, ...], gradient: Array) -> tuple[Array, Any]:
        plain = functools.partial(one_by_one, activations=static.activations)
        return jax.vjp(plain, x, parameters)[1](gradient)

    return jax.lax.platform_dependent(
        *saved, gradient, cuda=functools.partial(gradients, static=static), default=default
    )


layers.defvjp(_layers_forward, _layers_backward)


def one_by_one(x: Array, parameters: Sequence[Layer], activations: Sequence[str | None]) -> Array:
    """The same, as XLA computes it."""
    for (weight, bias), name in zip(parameters, activations, strict=True):
        x = ACTIVATIONS[name][0](x @ weight + bias)
    return x


def outputs(
    x: Array, parameters: Sequence[Layer], *, static: Static, emulated: bool = False
) -> Array:
    """x [B, I] -> [B, O], by the kernel. If `emulated`, on any device, slowly."""
    rows = x.shape[0]
    return pl.pallas_call(
        functools.partial(_forward, static=static),
        out_shape=jax.ShapeDtypeStruct((rows, parameters[-1][0].shape[1]), x.dtype),
        grid=(static.plan.blocks(rows),),
        compiler_params=static.plan.options(),
        interpret=emulated,
    )(x, *itertools.chain(*parameters))


def gradients(
    x: Array,
    parameters: Sequence[Layer],
    gradient: Array,
    *,
    static: Static,
    emulated: bool = False,
) -> tuple[Array, tuple[Layer, ...]]:
    """Those by x and the parameters, from the one by the outputs [B, O], by the kernel."""
    arrays, plan = list(itertools.chain(*parameters)), static.plan
    blocks = plan.blocks(x.shape[0])
    programs = min(plan.programs, blocks)
    dx, sums = pl.pallas_call(
        functools.partial(_backward, static=static, turns=math.ceil(blocks / programs)),
        out_shape=(
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            jax.ShapeDtypeStruct((programs, sum(array.size for array in arrays)), x.dtype),
        ),
        grid=(programs,),
        compiler_params=plan.options(),
        interpret=emulated,
    )(x, gradient, *arrays)
    total, start = sums.sum(0), 0
    found: list[Array] = []
    for like in arrays:
        found.append(total[start : start + like.size].reshape(like.shape))
        start += like.size
    return dx, tuple(zip(found[::2], found[1::2], strict=True))


def _forward(x_ref: Any, *refs: Any, static: Static) -> None:
    *parameter_refs, out_ref = refs
    block = static.plan.block
    rows = pl.program_id(0) * block + jnp.arange(block)
    out = _outputs(_load(x_ref, rows), _padded_layers(parameter_refs), static)[-1]
    _store(out_ref, rows, out)


def _backward(x_ref: Any, gradient_ref: Any, *refs: Any, static: Static, turns: int) -> None:
    """The gradient by x, and a row of those by the parameters: sums over this program's blocks."""
    *parameter_refs, dx_ref, sums_ref = refs
    parameters, block = _padded_layers(parameter_refs), static.plan.block
    pulls = [ACTIVATIONS[name][1] for name in static.activations]
    row = pl.program_id(0)
    first = row * turns * block

    def turn(number: Array, sums: list[Layer]) -> list[Layer]:
        rows = first + number * block + jnp.arange(block)
        found = [_load(x_ref, rows)]
        found += _outputs(found[0], parameters, static)
        d = _load(gradient_ref, rows)  # by what a layer returns; zero for rows beyond the batch
        new: list[Layer] = []
        for i in reversed(range(len(parameters))):
            d = pulls[i](d, found[i + 1])
            new.append((sums[i][0] + jnp.dot(found[i].T, d), sums[i][1] + d.sum(0)))
            d = jnp.dot(d, parameters[i][0].T)
        _store(dx_ref, rows, d)
        return new[::-1]

    zeros = [(jnp.zeros_like(weight), jnp.zeros_like(bias)) for weight, bias in parameters]
    sums = jax.lax.fori_loop(0, turns, turn, zeros)
    start = 0
    for (dweight, dbias), ref in zip(sums, parameter_refs[::2], strict=True):
        inputs, outputs = ref.shape
        i, o = jnp.arange(dweight.shape[0])[:, None], jnp.arange(dweight.shape[1])
        place = sums_ref.at[row, start + i * outputs + o[None, :]]
        plgpu.store(place, dweight, mask=(i < inputs) & (o < outputs)[None, :])
        start += inputs * outputs
        plgpu.store(sums_ref.at[row, start + o], dbias, mask=o < outputs)
        start += outputs


def _outputs(x: Array, parameters: Sequence[Layer], static: Static) -> list[Array]:
    """Every layer's."""
    found = [x]
    for (weight, bias), name in zip(parameters, static.activations, strict=True):
        found.append(ACTIVATIONS[name][0](jnp.dot(found[-1], weight) + bias[None, :]))
    return found[1:]


def _padded_layers(refs: Sequence[Any]) -> list[Layer]:
    """Padded with zeros, as all that is loaded: outputs beyond a layer's own go nowhere."""
    found: list[Layer] = []
    for weight_ref, bias_ref in zip(refs[::2], refs[1::2], strict=True):
        inputs, outputs = weight_ref.shape
        o = jnp.arange(_padded(outputs))
        bias = plgpu.load(bias_ref.at[o], mask=o < outputs, other=0.0)
        found.append((_load(weight_ref, jnp.arange(_padded(inputs))), bias))
    return found


def _padded(size: int) -> int:
    return max(NARROWEST, pl.next_power_of_2(size))


def _load(ref: Any, rows: Array) -> Array:
    """These rows, with zeros for those that `ref` [R, C] does not have, and for more columns."""
    place, mask = _places(ref, rows)
    return plgpu.load(place, mask=mask, other=0.0)


def _store(ref: Any, rows: Array, values: Array) -> None:
    place, mask = _places(ref, rows)
    plgpu.store(place, values, mask=mask)


def _places(ref: Any, rows: Array) -> tuple[Any, Array]:
    columns = jnp.arange(_padded(ref.shape[1]))
    mask = (rows < ref.shape[0])[:, None] & (columns < ref.shape[1])[None, :]
    return ref.at[rows[:, None], columns[None, :]], mask
