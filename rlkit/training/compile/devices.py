"""`Devices`: how the arrays of a run are divided among devices, and what each of them computes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from rlkit.errors import ConfigError, require
from rlkit.types import LocalState, PyTree, TrainState

SEEDS, DATA = "seeds", "data"
"""The axes of a mesh: devices that train other seeds, and devices that train the same ones."""

Shard = Literal["data", "seeds", "both"]  # as in `TrainerConfig`
Axes = int | None | tuple[int | None, ...]
"""Where S is in each argument or result, or in all of them; None: it has no such axis."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What each of the D devices that train a seed has of an array of that seed."""

    axis: int | None  # along which it is divided; None: each has all of it, and they agree
    is_own: bool = False  # each has an array of its own; along a new first axis D they make a whole


SAME = Share(None)
OWN = Share(0, is_own=True)
Shares = PyTree  # a `Share`, or a pytree with shares in place of subtrees


def rows(axis: int = 0) -> Share:
    """Of an array with the N environments along `axis`, each device has N/D of them."""
    return Share(axis)


def shares_of_state(**on_host: Share) -> Shares:
    """Those of a `TrainState`: the learner is the same everywhere, each device has its own local
    state, but for the fields that are `on_host` in the order of the environments.
    """
    names = [field.name for field in dataclasses.fields(LocalState)]
    shares: Any = {name: on_host.get(name, OWN) for name in names}
    learner: Any = SAME
    return TrainState(learner=learner, local=LocalState(**shares))


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where the parts of an array are."""

    spec: PartitionSpec
    own_axis: int | None  # of length D, which no device sees
    is_on_host: bool  # with the environments, of which each process has its own


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run: a mesh with the axes "seeds" and "data", or one of them.

    Along "seeds", each device trains a share of the seeds; along "data", each has a share of the
    environments of a seed.
    """

    mesh: Mesh | AbstractMesh

    @property
    def per_seed(self) -> int:
        """D, the number of devices that train each seed."""
        return self.mesh.shape.get(DATA, 1)

    @property
    def of_seeds(self) -> int:
        """The number of shares of the seeds."""
        return self.mesh.shape.get(SEEDS, 1)

    @classmethod
    def imagined(cls, per_seed: int) -> "Devices":
        """So many devices for each seed that need not be here, for the shapes of their arrays."""
        return cls(AbstractMesh((per_seed,), (DATA,)))

    @property
    def all(self) -> list[Any]:
        """The devices themselves."""
        assert isinstance(self.mesh, Mesh)
        return list(self.mesh.devices.flat)

    @property
    def num_processes(self) -> int:
        """How many processes these devices belong to."""
        if not isinstance(self.mesh, Mesh):
            return 1
        return len({device.process_index for device in self.mesh.devices.flat})

    def sharding_of_rows(self, *, has_seeds: bool) -> NamedSharding:
        """Where the devices have the `rows` of an array [(S,) N, ...]."""
        place = self._place(rows(), 0 if has_seeds else None)
        return NamedSharding(self.mesh, place.spec)

    @property
    def for_evaluation(self) -> "Devices":
        """One device for each share of the seeds; of several processes, each has one of its own."""
        assert isinstance(self.mesh, Mesh)
        if self.num_processes > 1:
            return Devices(Mesh(np.array(self.mesh.local_devices[:1]), (DATA,)))
        names, chosen = self.mesh.axis_names, self.mesh.devices
        if DATA in names:
            chosen = np.take(chosen, [0], axis=names.index(DATA))
        return Devices(Mesh(chosen, names))

    def mapped(
        self,
        function: Callable[..., PyTree],
        *,
        takes: Shares,
        gives: Shares,
        axes: Axes,
        out_axes: Axes,
    ) -> tuple[Callable[..., PyTree], dict[str, Any], tuple[PyTree, PyTree]]:
        """`function`, which each device computes of its shares, as one of whole arrays.

        `takes` and `gives` are the shares of the arguments and of the results, `axes` and
        `out_axes` say where S is. Also returns what `jax.jit` needs to know, and which arguments
        and results are `rows`.
        """
        arguments, results = self._places(takes, axes), self._places(gives, out_axes)

        def of_shares(*given: PyTree) -> PyTree:
            found = function(*_each(arguments, given, jnp.squeeze))
            return _each(results, found, jnp.expand_dims)

        sharded = jax.shard_map(
            of_shares,
            mesh=self.mesh,
            in_specs=_specs(arguments),
            out_specs=_specs(results),
            check_vma=False,  # what is equal on all devices was reduced explicitly
        )
        shardings = {
            "in_shardings": self._shardings(arguments),
            "out_shardings": self._shardings(results),
        }
        are_rows = _are_rows(arguments), _are_rows(results)
        return function if self.mesh.size == 1 else sharded, shardings, are_rows

    def _shardings(self, places: PyTree) -> PyTree:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), _specs(places))

    def _places(self, shares: Shares, axes: Axes) -> PyTree:
        if isinstance(axes, tuple):
            each = shares if isinstance(shares, tuple) else (shares,) * len(axes)
            return tuple(self._places(*pair) for pair in zip(each, axes, strict=True))
        return jax.tree.map(lambda share: self._place(share, axes), shares, is_leaf=_is_share)

    def _place(self, share: Share, seed_axis: int | None) -> _Place:
        names: dict[int, str] = {}
        own_axis = None
        if seed_axis is not None and self.of_seeds > 1:
            names[seed_axis] = SEEDS
        if share.axis is not None and self.per_seed > 1:
            is_before = seed_axis is not None and seed_axis <= share.axis
            at = share.axis + is_before
            names[at], own_axis = DATA, at if share.is_own else None
        dims = [names.get(axis) for axis in range(max(names, default=-1) + 1)]
        is_on_host = share.axis is not None and not share.is_own
        return _Place(spec=PartitionSpec(*dims), own_axis=own_axis, is_on_host=is_on_host)


def _is_share(x: object) -> bool:
    return isinstance(x, Share)


def _is_place(x: object) -> bool:
    return isinstance(x, _Place)


def _specs(places: PyTree) -> PyTree:
    return jax.tree.map(lambda place: place.spec, places, is_leaf=_is_place)


def _are_rows(places: PyTree) -> PyTree:
    return jax.tree.map(lambda place: place.is_on_host, places, is_leaf=_is_place)


def _each(places: PyTree, trees: PyTree, change: Callable[..., Any]) -> PyTree:
    """Adds or removes the axis of length D where a device has arrays of its own."""

    def changed(place: _Place, tree: PyTree) -> PyTree:
        at = place.own_axis
        return tree if at is None else jax.tree.map(lambda x: change(x, at), tree)

    return jax.tree.map(changed, places, trees, is_leaf=_is_place)


def devices_of_run(
    num_devices: int, shard: Shard, *, num_seeds: int, mesh: Mesh | None = None
) -> Devices | None:
    """The devices that a run asks for, a `mesh` in place of the settings; None: JAX's default one.

    Raises `ConfigError` if there are not as many, or the seeds cannot be divided equally.
    """
    if mesh is not None:
        require(
            num_devices == 1,
            f"devices={num_devices} and a mesh both say which devices train",
            "leave one of them out",
        )
        devices = Devices(_checked(mesh))
    elif num_devices == 1:
        return None
    else:
        devices = Devices(_mesh(num_devices, shard, num_seeds))
    _require_equal_shares(num_seeds, devices.of_seeds)
    return devices


def imagined_devices(num_devices: int, shard: Shard, num_seeds: int) -> Devices:
    """The devices for each seed that a run asks for, which need not be here.

    Raises `ConfigError` if the seeds cannot be divided equally.
    """
    of_seeds = _shares_of_seeds(num_devices, shard, num_seeds)
    _require_equal_shares(num_seeds, of_seeds)
    return Devices.imagined(num_devices // of_seeds)


def _shares_of_seeds(num_devices: int, shard: Shard, num_seeds: int) -> int:
    return {"data": 1, "seeds": num_devices, "both": math.gcd(num_devices, num_seeds)}[shard]


def _require_equal_shares(num_seeds: int, shares: int) -> None:
    counts = divisors(num_seeds, shares)
    require(
        num_seeds % shares == 0,
        f"{num_seeds} seed{'s' * (num_seeds > 1)} cannot be divided among {shares} devices",
        f"use {counts}, {-(-num_seeds // shares) * shares} seeds, or shard='data'",
    )


def divisors(size: int, most: int) -> str:
    """How many devices `size` things can be divided among, at most `most`, for errors."""
    counts = [str(count) for count in range(1, most + 1) if size % count == 0][-3:]
    return f"{' or '.join(counts)} device{'s' * (counts != ['1'])}"


def host_device() -> Any:
    """The CPU, for what may be too large for a device; the default device if JAX has no CPU."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


def _mesh(num_devices: int, shard: Shard, num_seeds: int) -> Mesh:
    if jax.process_count() > 1:
        return _mesh_of_processes(num_devices, shard)
    known = jax.devices()
    platform = known[0].platform
    cure = f"use --devices {len(known)}"
    if platform == "cpu":
        cure += (
            f"; to try several devices on a CPU, set JAX_NUM_CPU_DEVICES={num_devices} in the"
            " environment"
        )
    require(
        num_devices <= len(known),
        f"devices={num_devices}, but JAX finds {len(known)} ({platform})",
        cure,
    )
    of_seeds = _shares_of_seeds(num_devices, shard, num_seeds)
    # Of the devices of a TPU, JAX finds the order in which neighbours are connected.
    return jax.make_mesh(
        (of_seeds, num_devices // of_seeds),
        (SEEDS, DATA),
        axis_types=(jax.sharding.AxisType.Auto,) * 2,
        devices=known[:num_devices],
    )


def _mesh_of_processes(num_devices: int, shard: Shard) -> Mesh:
    """A mesh with as many devices of each process, one process after the other."""
    processes, each = jax.process_count(), num_devices // jax.process_count()
    of_process = [jax.local_devices(process_index=index) for index in range(processes)]
    most = min(map(len, of_process))
    fitting = " or ".join(str(count * processes) for count in sorted({1, most}))
    require(
        shard == "data",
        f"shard={shard!r} in {processes} processes, which share the environments of each seed",
        "use shard='data', or train other seeds as runs of their own (--seed)",
    )
    require(
        num_devices % processes == 0 and each <= most,
        f"devices={num_devices} in {processes} processes, which have at least {most} each",
        f"use --devices {fitting}, or leave devices out: all of them",
    )
    chosen = [device for devices in of_process for device in devices[:each]]
    return Mesh(np.array(chosen)[None], (SEEDS, DATA))


def _require_of_all_processes(mesh: Mesh) -> None:
    """Raises `ConfigError` for a mesh on which several processes could not train."""
    count = jax.process_count()
    owners = [device.process_index for device in mesh.devices.flat]
    whole = [index for index in range(count) for _ in range(len(owners) // count)]
    require(
        count == 1 or (owners == whole and mesh.shape.get(SEEDS, 1) == 1),
        f"the mesh does not divide the environments among {count} processes: its devices are of"
        f" the processes {', '.join(map(str, owners))}",
        'use an axis "data" with as many devices of each process, one process after the other, as'
        " in jax.devices()",
    )


def _checked(mesh: object) -> Mesh:
    cure = 'pass jax.make_mesh((4,), ("data",)), or axes "seeds" and "data"'
    if not isinstance(mesh, Mesh):
        raise ConfigError(f"mesh must be a jax.sharding.Mesh, got {type(mesh).__name__}; {cure}")
    unknown = sorted(set(map(str, mesh.axis_names)) - {SEEDS, DATA})
    require(not unknown, f"the mesh has an axis {unknown[0] if unknown else ''!r}", cure)
    _require_of_all_processes(mesh)
    return Mesh(mesh.devices, mesh.axis_names)  # with axes that JAX may divide by itself
