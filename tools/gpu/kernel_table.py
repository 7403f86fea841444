#!/usr/bin/env python3
"""Compiles the plugin's kernels and writes what the compiler says of them into docs/kernels.md. Needs nvcc, no GPU.

usage: kernel_table.py [--print] [--nvcc PATH]
Registers, spills and shared memory are ptxas' own words; occupancy follows from them and from the limits of each architecture; bytes moved
follow from each kernel's grid at the sizes of Stable Diffusion 2. --print leaves the page alone. Exits 1 when a kernel spills registers.
"""

import argparse
import dataclasses
import datetime
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- tools/gpu/kernel_table.py writes from here", "<!-- to here -->"
ARCHITECTURES = (80, 90, 100)
WITHOUT_CONTRACTION = {"diffusion_noise.cu", "update.cu"}  # As cmake/cuda_plugin.cmake.
SMALL_BLOCKS = {"add_chunks": 64, "finish_statistics": 64, "add_channels": 64, "add_samples": 64}
THREADS = 256  # Of every other kernel's block.

# A multiprocessor's limits by architecture (CUDA C++ Programming Guide 13.0, table of technical specifications per compute capability): kB of
# shared memory. Everything else is the same for these three.
SHARED_KB = {80: 164, 90: 228, 100: 228}
REGISTERS, WARPS, BLOCKS, RESERVED_SHARED = 65536, 64, 32, 1024
REGISTERS_A_GRAIN, WARPS_A_GRAIN, SHARED_A_GRAIN = 256, 4, 128


@dataclasses.dataclass
class Resources:
    registers: int = 0
    spilled: int = 0  # Bytes of stores and loads.
    shared: int = 0

    def occupancy(self, architecture: int, threads: int) -> float:
        """Share of a multiprocessor's warps that such blocks can fill."""
        warps = threads // 32
        registers_a_warp = -(-self.registers * 32 // REGISTERS_A_GRAIN) * REGISTERS_A_GRAIN
        by_registers = REGISTERS // registers_a_warp // WARPS_A_GRAIN * WARPS_A_GRAIN // warps
        shared = -(-(self.shared + RESERVED_SHARED) // SHARED_A_GRAIN) * SHARED_A_GRAIN
        return min(by_registers, SHARED_KB[architecture] * 1024 // shared, BLOCKS, WARPS // warps) * warps / WARPS


def run(command: list) -> str:
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kernel_table: {command[0]} failed\n{done.stdout}{done.stderr}"[:4000])
    return done.stdout + done.stderr


def readable(signature: str) -> str:
    """normalise<float, 4, true> of the whole signature."""
    name = signature.replace("(anonymous namespace)::", "").replace("darkroom::", "").replace("__nv_bfloat16", "bf16").replace("__half", "f16").removeprefix("void ")
    return name.partition("(")[0]


def compiled(nvcc: str, source: pathlib.Path, folder: str) -> dict[tuple[str, int], Resources]:
    """What ptxas says of each kernel of a source, by name and architecture."""
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHITECTURES]
    contraction = ["-fmad=false"] if source.name in WITHOUT_CONTRACTION else []
    said = run([nvcc, "-std=c++17", "-O3", "-DNDEBUG", "-Iinclude", *targets, *contraction, "-Xptxas", "-v", "-c", source, "-o", pathlib.Path(folder) / "kernel.o"])
    found: dict[tuple[str, int], Resources] = {}
    current = None
    for line in demangled(said).splitlines():
        if entry := re.search(r"Compiling entry function '(.*)' for 'sm_(\d+)'", line):
            current = found.setdefault((readable(entry[1]), int(entry[2])), Resources())
        elif current is not None:
            if spills := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                current.spilled = int(spills[1]) + int(spills[2])
            if used := re.search(r"Used (\d+) registers", line):
                current.registers = int(used[1])
                shared = re.search(r"(\d+) bytes smem", line)
                current.shared = int(shared[1]) if shared else 0
                current = None
    if not found:
        sys.exit(f"kernel_table: {nvcc} said nothing of kernels in {source.name}\n{said[:2000]}")
    return found


def demangled(mangled: str) -> str:
    return subprocess.run(["c++filt"], input=mangled, capture_output=True, text=True, check=True).stdout


def resource_table(kernels: dict[tuple[str, int], Resources]) -> list[str]:
    lines = ["| kernel | threads | shared, bytes | registers " + " / ".join(f"sm_{arch}" for arch in ARCHITECTURES) + " | spilled, bytes | occupancy, % |",
             "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(name for name, _ in kernels):
        threads = SMALL_BLOCKS.get(name.partition("<")[0], THREADS)
        of = [kernels[name, arch] for arch in ARCHITECTURES]
        occupancy = [f"{100 * one.occupancy(arch, threads):.0f}" for arch, one in zip(ARCHITECTURES, of)]
        lines.append(f"| `{name}` | {threads} | {of[0].shared} | {' / '.join(str(one.registers) for one in of)} | {max(one.spilled for one in of)} | "
                     f"{' / '.join(occupancy)} |")
    return lines


@dataclasses.dataclass(frozen=True)
class Grid:
    """group_norm_forward.cu's mapping_of and group_norm_chunks, for channels in vectors of 16 bytes."""

    columns: int
    rows: int
    tiles: int
    chunks: int

    @classmethod
    def of(cls, pixels: int, channels: int, element_bytes: int) -> "Grid":
        vectors = channels * element_bytes // 16
        chunks = min(max(-(-pixels // (THREADS // min(vectors, THREADS) * 8)), 1), 64)
        tiles = -(-vectors // THREADS)
        columns = -(-vectors // tiles)
        return cls(columns, THREADS // columns, tiles, chunks)


def group_norm_table() -> list[str]:
    """Bytes in bfloat16. The least: x read twice (a sample's channels do not fit into a multiprocessor) and y written once; backward x and grad_y read
    twice and grad_x written once."""
    lines = ["| x, bfloat16 | blocks | threads at work, % | forward, MB: moved / least | backward, MB: moved / least | over the least, % |", "|---|---|---|---|---|---|"]
    for samples in (2, 32):
        for channels, side in ((320, 64), (640, 64), (960, 64), (640, 32), (1280, 32), (1920, 32), (1280, 16), (2560, 16), (1280, 8), (2560, 8)):
            pixels = side * side
            grid = Grid.of(pixels, channels, 2)
            x = samples * pixels * channels * 2
            # Partial sums are written and read once, so are the sums a sample; each block reads its channels' first pixel, and in the last pass its constants.
            sums = 2 * 4 * (2 * samples * grid.chunks * channels + 2 * samples * channels)
            a_block = samples * grid.chunks * channels
            forward = 3 * x + sums + a_block * 2 + a_block * 4
            backward = 5 * x + sums + 2 * a_block * 4
            blocks = samples * grid.chunks * grid.tiles
            busy = grid.columns * grid.rows / THREADS
            lines.append(f"| {samples} x {channels} x {side} x {side} | {blocks} | {100 * busy:.0f} | {forward / 1e6:.1f} / {3 * x / 1e6:.1f} | "
                         f"{backward / 1e6:.1f} / {5 * x / 1e6:.1f} | {100 * (forward / (3 * x) - 1):.1f} / {100 * (backward / (5 * x) - 1):.1f} |")
    return lines


def other_table() -> list[str]:
    """Kernels that touch every element once move the least."""
    parameters, latents, rows, width = 865_910_724, 32 * 4 * 64 * 64, 32 * 4096, 1280
    found = [("geglu, 32 x 4,096 tokens x 1,280, bfloat16", 3 * rows * width * 2), ("its gradient", 5 * rows * width * 2),
             ("add_noise with velocity, 32 latents of 4 x 64 x 64", 16 * latents), ("counter_normal of them", 4 * latents),
             ("squared_norm of 865.9 M float32 gradients", 4 * parameters), ("adamw_update of them, with EMA and bfloat16 copy", 38 * parameters)]
    return ["| kernel | MB moved, which is the least |", "|---|---|", *(f"| {name} | {moved / 1e6:,.1f} |" for name, moved in found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the tables, leave the page alone")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    options = parser.parse_args()
    if not pathlib.Path(options.nvcc).exists():
        sys.exit(f"kernel_table: there is no nvcc at {options.nvcc}")
    version = re.search(r"V([\d.]+)", run([options.nvcc, "--version"]))[1]
    kernels: dict[tuple[str, int], Resources] = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((ROOT / "src" / "plugin").glob("*.cu")):
            kernels |= compiled(options.nvcc, source.relative_to(ROOT), folder)
    text = "\n".join([f"Written on {datetime.date.today()}, nvcc {version}, `-O3`.", "", *resource_table(kernels), "", "## Bytes moved", "",
                      *group_norm_table(), "", *other_table()])
    if options.print:
        print(text)
    else:
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition(BEGIN)
        note, _, rest = rest.partition("-->\n")
        PAGE.write_text(f"{head}{BEGIN}{note}-->\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    spilling = sorted({name for (name, _), one in kernels.items() if one.spilled})
    if spilling:
        sys.exit(f"kernel_table: registers are spilled by {', '.join(spilling)}")


if __name__ == "__main__":
    main()
