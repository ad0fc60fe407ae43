"""Both forms of importance matrices, of a dense model and of one with experts: the files compare with those of the quantizer search alone."""
import json
import pathlib
import re
import struct
import subprocess
import sys

import gguf
import numpy as np

CALLS = 4


def write_dat(file, rows):
    """The old form: means times the number of calls."""
    data = struct.pack("<i", len(rows))
    for name, means in rows.items():
        data += struct.pack(f"<i{len(name)}sii", len(name), name.encode(), CALLS, means.size) + (means * np.float32(CALLS)).tobytes()
    file.write_bytes(data)


def write_gguf(file, rows):
    """The form of today: sums of squares, and how many tokens each expert saw."""
    writer = gguf.GGUFWriter(file, "")
    writer.add_type("imatrix")
    for name, means in rows.items():
        # Powers of 2, so that both forms have the same means.
        counts = np.float32(2) ** np.arange(len(means), dtype=np.float32)[:, None]
        writer.add_tensor(f"{name}.in_sum2", means * counts)
        writer.add_tensor(f"{name}.counts", counts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compile_with(checkpoint, out, *options):
    """The bytes of a file, and the summary."""
    command = ["qwen-opt", checkpoint, "-o", out, "--weights", "q4_0", "--target", "x86-64-v3", *options]
    summary = subprocess.run(command, stderr=subprocess.PIPE, check=True, text=True).stderr
    return out.read_bytes(), summary


def check_budget(checkpoint, folder, rows, write):
    """Formats within a budget by the rows: a file that is no larger, of integers that the search chooses by the matrix."""
    plan, model = folder / "plan.json", folder / "budget.qwen"

    def planned(bits, rows):
        write(folder / "matrix", rows)
        command = ["qwen-opt", checkpoint, "-o", model, "--target", "x86-64-v3", "--imatrix", folder / "matrix", "--budget", bits, "--save-plan", plan]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True)

    least = re.search(r"which has ([\d.]+)bpw$", planned("0.1bpw", rows).stderr)
    bits = f"{1.04 * float(least[1]):.3f}bpw"
    made = planned(bits, rows)
    told = re.match(rf"budget: {bits}: [\d.]+ MB, ([\d.]+) bits a weight, .* matrices in .* in ", made.stderr)
    assert made.returncode == 0 and told and float(told[1]) <= float(bits[:-3]), made.stderr
    assert "budget: no gradients, because an importance matrix has none: errors count as parts of the outputs of a matrix" in made.stderr, made.stderr
    matrices = json.loads(plan.read_text())["matrices"]
    assert {matrix["quantizer"] for matrix in matrices.values()} == {"search"}, matrices
    by_rows = model.read_bytes()
    missing = list(rows)[1:3]
    some = planned(bits, {row: means for row, means in rows.items() if row not in missing})
    assert "the importance matrix has no row of model.layers." in some.stderr and model.read_bytes() != by_rows, some.stderr


def check(inputs, folder, name, widths, experts):
    random = np.random.default_rng(1)
    rows = {row: random.lognormal(0, 3, (experts if row.endswith("_exps.weight") else 1, k)).astype(np.float32) for row, k in widths.items()}
    plain, _ = compile_with(inputs / "checkpoints" / name, folder / "plain.qwen", "--quantizer", "search")

    def compiled(write, rows):
        write(folder / "matrix", rows)
        return compile_with(inputs / "checkpoints" / name, folder / "model.qwen", "--imatrix", folder / "matrix")

    ones = {row: np.ones_like(means) for row, means in rows.items()}
    by_ones, _ = compiled(write_dat, ones)
    by_dat, summary = compiled(write_dat, rows)
    assert "importance matrix" not in summary, summary
    by_gguf, _ = compiled(write_gguf, rows)
    assert by_dat == by_gguf, "the forms differ"
    assert len(by_dat) == len(plain) and len({plain, by_ones, by_dat}) == 3, "the matrix changes nothing"
    # Each row is one of a matrix, and only of this.
    files = {by_ones}
    for row in [row for row in rows if any(kind in row for kind in ("blk.1.attn_output", "blk.1.ffn_up", "blk.1.ffn_down", "token_embd", "output."))]:
        file, _ = compiled(write_gguf, ones | {row: rows[row]})
        assert file not in files, f"{row} changes nothing, or what another row changes"
        files.add(file)
    missing = list(rows)[1:3]
    by_some, summary = compiled(write_dat, {row: means for row, means in rows.items() if row not in missing})
    assert "the importance matrix has no row of model.layers." in summary and "and of 1 other matrix: search" in summary, summary
    assert by_some not in {plain, by_dat}, "a missing row changes nothing"
    check_budget(inputs / "checkpoints" / name, folder, rows, write_dat)


def main(inputs, folder):
    folder.mkdir(parents=True, exist_ok=True)
    widths = {"attn_q": 64, "attn_k": 64, "attn_v": 64, "attn_output": 64, "ffn_gate": 64, "ffn_up": 64, "ffn_down": 160}
    check(inputs, folder, "qwen2-tied-f32",
          {f"blk.{layer}.{kind}.weight": k for layer in range(2) for kind, k in widths.items()} | {"token_embd.weight": 64}, 1)
    widths = {"attn_q": 64, "attn_k": 64, "attn_v": 64, "attn_output": 128, "ffn_gate_exps": 64, "ffn_up_exps": 64, "ffn_down_exps": 64}
    check(inputs, folder, "qwen3-moe-f32",
          {f"blk.{layer}.{kind}.weight": k for layer in range(2) for kind, k in widths.items()} | {"token_embd.weight": 64, "output.weight": 64}, 8)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
