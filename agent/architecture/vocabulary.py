"""What an architecture graph is made of: its nodes, its edges, and which attribute each fact of the table becomes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Relation(Enum):
    """What an edge means."""

    CONTAINS = "contains"
    DATA = "data"
    CONTROL = "control"


NODES = {
    "host": ("memory", "the host, its memory and the link to it"),
    "launch": ("control", "the path that launches take to the multiprocessors"),
    "gpu": ("group", "the whole GPU"),
    "dram": ("memory", "device memory"),
    "l2": ("memory", "the L2 cache, shared by all multiprocessors"),
    "atomics": ("unit", "the unit of global atomics, at the L2 cache"),
    "sm": ("group", "a streaming multiprocessor"),
    "scheduler": ("control", "a warp scheduler, which issues an instruction a clock"),
    "registers": ("memory", "the register file of a multiprocessor"),
    "shared": ("memory", "shared memory of a multiprocessor"),
    "l1": ("memory", "the L1 cache of a multiprocessor, one array with shared memory"),
    "shared_atomics": ("unit", "atomics on shared memory"),
    "fp32": ("pipe", "FP32 arithmetic"),
    "fp64": ("pipe", "FP64 arithmetic"),
    "int32": ("pipe", "32-bit integer arithmetic"),
    "sfu": ("pipe", "special functions"),
    "tensor": ("pipe", "tensor cores"),
    "shuffle": ("pipe", "exchange between the lanes of a warp"),
}
"""Each node's sort and what it is."""

PIPES = tuple(name for name, (sort, _) in NODES.items() if sort == "pipe")

_IN_GPU = ("launch", "dram", "l2", "atomics", "sm")
_IN_SM = ("scheduler", "registers", "shared", "l1", "shared_atomics", *PIPES)
_MEMORY_PATHS = (("host", "dram"), ("dram", "l2"), ("l2", "l1"), ("l1", "registers"), ("shared", "registers"))

EDGES: dict[tuple[str, str], Relation] = {
    **{("gpu", part): Relation.CONTAINS for part in _IN_GPU},
    **{("sm", part): Relation.CONTAINS for part in _IN_SM},
    **{edge: Relation.DATA for a, b in _MEMORY_PATHS for edge in ((a, b), (b, a))},
    ("l2", "shared"): Relation.DATA,  # asynchronous copies; the graph of a GPU without them lacks this edge
    ("l2", "atomics"): Relation.DATA,
    ("shared", "shared_atomics"): Relation.DATA,
    **{edge: Relation.DATA for pipe in PIPES for edge in (("registers", pipe), (pipe, "registers"))},
    ("host", "launch"): Relation.CONTROL,
    ("launch", "sm"): Relation.CONTROL,
    **{("scheduler", pipe): Relation.CONTROL for pipe in PIPES},
}

MEMORIES = frozenset(name for name, (sort, _) in NODES.items() if sort == "memory")


class Scope(Enum):
    """For which GPUs a fact holds."""

    CAPABILITY = "every GPU of a compute capability"
    MODEL = "one model of GPU"


@dataclass(frozen=True)
class Place:
    """Where in the graph a fact stands: attribute `name` of a node ("l2") or an edge ("dram->l2"), in `unit`.

    The table's number times `scale` is the graph's.
    """

    where: str
    name: str
    unit: str = ""
    scope: Scope = Scope.CAPABILITY
    scale: int = 1

    def __str__(self) -> str:
        return f"{self.where}.{self.name}"

    @property
    def edge(self) -> tuple[str, str] | None:
        """The two ends, where it is an edge."""
        return ends(self.where)


def ends(where: str) -> tuple[str, str] | None:
    """The two ends of an edge that is written "dram->l2"; None for a node."""
    source, arrow, target = where.partition("->")
    return (source, target) if arrow else None


def _model(where: str, name: str, unit: str = "", scale: int = 1) -> Place:
    return Place(where, name, unit, Scope.MODEL, scale)


_KIB = 1024
FIELDS: dict[str, Place] = {
    # What it is
    "compute_capability": Place("gpu", "compute_capability"),
    "nvcc_arch": Place("gpu", "target"),
    "nvcc_arch_accelerated": Place("gpu", "accelerated_targets"),
    "min_ptx_isa": Place("gpu", "ptx"),
    "min_ptx_isa_accelerated": Place("gpu", "accelerated_ptx"),
    "arch_family": Place("gpu", "family"),
    "chip": _model("gpu", "chip"),
    "variant": _model("gpu", "variant"),
    "boost_clock_mhz": _model("gpu", "clock", "MHz"),
    "lat_clock_mhz": _model("gpu", "latency_clock", "MHz"),
    "sm_count": _model("gpu->sm", "count", "SMs"),
    # A multiprocessor
    "warp_size": Place("sm", "warp_size", "threads"),
    "max_threads_per_block": Place("sm", "max_threads_per_block", "threads"),
    "max_threads_per_sm": Place("sm", "max_threads", "threads"),
    "max_warps_per_sm": Place("sm", "max_warps", "warps"),
    "max_blocks_per_sm": Place("sm", "max_blocks", "blocks"),
    "max_cluster_size_portable": Place("sm", "max_cluster", "blocks"),
    "has_clusters_dsmem": Place("sm", "clusters"),
    "has_cp_async": Place("sm", "async_copy"),
    "has_dpx_native": Place("sm", "dpx"),
    "has_ldmatrix": Place("sm", "ldmatrix"),
    "has_stmatrix": Place("sm", "stmatrix"),
    "has_mbarrier_tx": Place("sm", "transaction_barriers"),
    "has_setmaxnreg": Place("sm", "setmaxnreg"),
    "has_tma": Place("sm", "tma"),
    "has_tma_multicast": Place("sm", "tma_multicast"),
    "warp_schedulers_per_sm": Place("sm->scheduler", "count", "schedulers"),
    # Pipes
    "fp32_cores_per_sm": Place("fp32", "rate", "FMA/clk/SM"),
    "fp64_fma_per_sm_clk": Place("fp64", "rate", "FMA/clk/SM"),
    "int32_add_per_sm_clk": Place("int32", "rate", "op/clk/SM"),
    "sfu_per_sm": Place("sfu", "rate", "op/clk/SM"),
    "shuffle_lanes_per_sm_clk": Place("shuffle", "rate", "lane/clk/SM"),
    "lat_fma_dependent_cycles": Place("fp32", "latency", "cycles"),
    "peak_fp32_tflops": _model("fp32", "peak", "TFLOP/s"),
    "peak_fp64_tflops": _model("fp64", "peak", "TFLOP/s"),
    # Tensor cores
    "tensor_cores_per_sm": Place("sm->tensor", "count", "tensor cores"),
    "tensor_clock_mhz": _model("tensor", "clock", "MHz"),
    "tensor_flop_per_sm_clk_fp16": _model("tensor", "rate", "FLOP/clk/SM"),
    "peak_fp16_tflops_dense": _model("tensor", "peak_fp16", "TFLOP/s"),
    "peak_fp16_tflops_dense_fp16acc": _model("tensor", "peak_fp16_fp16_sums", "TFLOP/s"),
    "peak_tf32_tflops_dense": _model("tensor", "peak_tf32", "TFLOP/s"),
    "peak_fp64_tensor_tflops": _model("tensor", "peak_fp64", "TFLOP/s"),
    "tensor_types": Place("tensor", "types"),
    "wmma_shapes": Place("tensor", "wmma_shapes"),
    "mma_sync_shapes": Place("tensor", "mma_shapes"),
    "mma_min_ptx": Place("tensor", "mma_ptx"),
    "wgmma_shapes": Place("tensor", "wgmma_shapes"),
    "has_wgmma": Place("tensor", "wgmma"),
    "has_tcgen05": Place("tensor", "tcgen05"),
    "tcgen05_kinds": Place("tensor", "tcgen05_kinds"),
    "tmem_kib_per_sm": Place("tensor", "memory", "B", scale=_KIB),
    # Registers
    "regs_per_sm": Place("registers", "capacity", "registers"),
    "max_regs_per_block": Place("registers", "max_per_block", "registers"),
    "max_regs_per_thread": Place("registers", "max_per_thread", "registers"),
    "register_allocation_unit": Place("registers", "allocation_unit", "registers"),
    "lat_register_cycles": Place("registers", "latency", "cycles"),
    # Shared memory and L1
    "smem_per_sm_kib": Place("shared", "capacity", "B", scale=_KIB),
    "smem_per_block_optin_kib": Place("shared", "max_per_block", "B", scale=_KIB),
    "smem_per_block_static_kib": Place("shared", "max_static", "B", scale=_KIB),
    "smem_reserved_per_block_bytes": Place("shared", "reserved_per_block", "B"),
    "smem_allocation_unit_bytes": Place("shared", "allocation_unit", "B"),
    "smem_carveouts_kib": Place("shared", "carveouts", "B", scale=_KIB),
    "smem_banks": Place("shared", "banks", "banks"),
    "smem_bank_bytes": Place("shared", "bank_width", "B"),
    "smem_bytes_per_clk_sm": Place("shared->registers", "rate", "B/clk/SM"),
    "lat_shared_cycles": Place("shared", "latency", "cycles"),
    "lat_dsmem_cycles": Place("shared", "remote_latency", "cycles"),
    "atomic_shared_per_clk_sm": Place("shared_atomics", "rate", "op/clk/SM"),
    "l1_smem_combined_kib": Place("l1", "capacity", "B", scale=_KIB),
    "cache_line_bytes": Place("l1", "line", "B"),
    "lat_l1_cycles": Place("l1", "latency", "cycles"),
    # L2 and what is at it
    "l2_bytes": _model("l2", "capacity", "B"),
    "l2_segment_bytes": _model("l2", "partition", "B"),
    "l2_persisting_max_bytes": _model("l2", "max_persisting", "B"),
    "sector_bytes": Place("l2", "sector", "B"),
    "lat_l2_cycles": _model("l2", "latency", "cycles"),
    "lat_l2_far_cycles": _model("l2", "far_latency", "cycles"),
    "l2_bw_gbs": _model("l2->l1", "rate", "GB/s"),
    "l2_bw_bytes_per_clk": _model("l2->l1", "rate_per_clock", "B/clk"),
    "atomic_global_fp32_per_clk_gpu": _model("atomics", "rate", "op/clk"),
    "atomic_global_u32_per_clk_gpu": _model("atomics", "rate_u32", "op/clk"),
    "atomic_global_same_addr_u32_per_clk_gpu": _model("atomics", "same_address_rate_u32", "op/clk"),
    "has_atomic_add_vec_f32": Place("atomics", "vector_add"),
    # Device memory
    "dram_type": _model("dram", "technology"),
    "dram_capacity_gb": _model("dram", "capacity", "GB"),
    "dram_bus_bits": _model("dram", "bus", "bit"),
    "mem_clock_mhz": _model("dram", "clock", "MHz"),
    "lat_dram_cycles": _model("dram", "latency", "cycles"),
    "dram_bw_gbs": _model("dram->l2", "rate", "GB/s"),
    "dram_bw_measured_gbs": _model("dram->l2", "measured_rate", "GB/s"),
    # Launches
    "launch_stream_us": _model("launch", "stream_period", "us"),
    "launch_graph_node_us": _model("launch", "graph_period", "us"),
    "grid_sync_us": _model("launch", "grid_sync", "us"),
}
"""The facts that the table holds for every GPU: `has_…` are yes or no, what has a unit is a number, all else is text."""

REQUIRED = ("compute_capability", "sm_count", "boost_clock_mhz")
"""Facts that are known of every GPU."""

MEASURABLE: dict[str, str] = {
    "atomics.same_address_rate": "op/s",
    "atomics.measured_rate": "op/s",
    "l2->l1.measured_rate": "GB/s",
    "dram->l2.measured_rate": "GB/s",
    "l2.latency_over_l1": "ns",
    "dram.latency_over_l1": "ns",
    "shuffle.measured_rate": "lane/s",
    "launch.graph_period": "us",
}
"""What `sparseditto arch probe` finds out, with its unit (docs/architecture.md says how)."""
