"""How many kernels a task's program has on a GPU, without a GPU.

    pip install "jax[cuda13]"
    python benchmarks/gpu_kernels.py gpu-cartpole-4096x128 [--names] [--tuning off]

Compiles the program for an H100 and prints its loops, each with what its body starts: with small
arrays every kernel takes a microsecond or more, so their number is most of the time. XLA chooses
algorithms by measuring, which it cannot do here, so large products may be other kernels than on a
GPU. Times need one (`throughput.py --platform cuda`).
"""

import argparse
import collections
import os
import re
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "drivers")]
from tasks import TASKS  # noqa: E402

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84978434048
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}

Instruction = tuple[str, str, str]
"""Name, operation, and the line from there."""


def main() -> None:
    """Compiles and prints."""
    parser = argparse.ArgumentParser(description="The kernels of a task's program on an H100.")
    able = [name for name, task in TASKS.items() if task.suite == "gymnax" and task.num_seeds == 1]
    parser.add_argument("task", choices=able, metavar="TASK", help=", ".join(able))
    parser.add_argument("--names", action="store_true", help="each kernel, too")
    parser.add_argument("--tuning", default="on", help="RLKIT_GPU_TUNING")
    arguments = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["RLKIT_GPU_TUNING"] = arguments.tuning
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
    print("\n".join(told(compiled(arguments.task), names=arguments.names)))


def compiled(task: str) -> str:
    """The optimised program of a task, as text."""
    import jax
    import rlkit_fit
    from jax.experimental import topologies

    jax.devices()  # makes the backend, before it is called another
    jax.default_backend = lambda: "gpu"
    _pretend_to_pallas()
    topology = topologies.get_topology_desc("H100", "cuda", target_config=H100, topology="1x1x1")
    device = jax.sharding.SingleDeviceSharding(topology.devices[0])
    key = jax.eval_shape(lambda: jax.random.key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=device)
    program = jax.jit(rlkit_fit.build(TASKS[task]), out_shardings=device)
    return program.lower(key).compile().as_text()


def _pretend_to_pallas() -> None:
    """Pallas asks the GPU in the machine what it can do, and warns that it will be removed."""
    from jax._src.pallas.triton import gpu_info

    from rlkit.xla_gpu import fused_layers

    fused_layers._is_able = lambda: True
    warnings.simplefilter("ignore", DeprecationWarning)
    gpu_info.get_gpu_info = lambda: types.SimpleNamespace(compute_capability=90)


def told(text: str, *, names: bool) -> Iterator[str]:
    """A line for each loop and branch, indented as they are nested."""
    bodies, entry = _computations(text)
    yield from _told(bodies, entry, "", names=names)


def _computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """(instructions by computation, the name of the one that is run)."""
    bodies: dict[str, list[Instruction]] = {}
    entry = name = ""
    for line in text.splitlines():
        if found := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{", line):
            name = found[2]
            bodies[name], entry = [], name if found[1] else entry
        elif found := re.match(
            r"\s+(?:ROOT )?%?([\w.\-]+) = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(", line
        ):
            bodies[name].append((found[1], found[2], line[found.start(2) :]))
    return bodies, entry


def _told(
    bodies: dict[str, list[Instruction]], name: str, indent: str, *, names: bool
) -> Iterator[str]:
    inside: list[tuple[str, list[str]]] = []
    kernels: list[Instruction] = []
    for instruction in bodies[name]:
        _, operation, line = instruction
        if operation == "while":
            times = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            title = f"{times[1]} times" if times else "a loop that asks the host"
            inside.append((title, re.findall(r"body=%?([\w.\-]+)", line)))
        elif operation == "call":
            inside.append(("call", re.findall(r"to_apply=%?([\w.\-]+)", line)))
        elif operation == "conditional":
            listed = re.search(r"branch_computations=\{([^}]*)\}", line)
            branches = re.findall(r"[\w.\-]+", listed[1]) if listed else []
            branches += re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line)
            inside.append(("one of", branches))
        elif operation not in NO_KERNEL and not operation.endswith("-done"):
            kernels.append(instruction)
    kinds = collections.Counter(operation for _, operation, _ in kernels)
    yield f"{indent}{len(kernels)} kernels: " + ", ".join(f"{n} {k}" for k, n in kinds.items())
    for kernel, _, line in kernels if names else ():
        origin = re.search(r'op_name="([^"]*)"', line)
        yield f"{indent}  - {kernel}  {origin[1].split('/')[-1] if origin else ''}"
    for title, computations in inside:
        yield f"{indent}{title}:"
        for computation in computations:
            yield from _told(bodies, computation, indent + "    ", names=names)


if __name__ == "__main__":
    main()
