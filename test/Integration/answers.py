"""A checkpoint's logits and drawn tokens are the same, bit for bit, on every target and in every way of running it.

  answers.py check CHECKPOINT WORKDIR AARCH64_ANSWER_HASHES
  PATH=build/host/bin:$PATH .venv/bin/python test/Integration/answers.py write

`check` compiles CHECKPOINT (a name of CHECKPOINTS) for each target, runs `answer-hashes` (test/Unit/AnswerHashes.cpp) in many
ways, natively and emulated, and compares the hashes with answers.json. So different machines must give the same answer. Unless
QWEN_TEST_FULL is set, emulated machines run a sample: each format on two of the four targets, with two of three checkpoints.
KernelTest runs each kernel on each of these machines. Each pair of values of any other two dimensions occurs, but for formats of weights and of the cache. Each target of this
machine runs all formats, each with one checkpoint and one format of the cache, and the best one with the third checkpoint. That
one runs every third format with stories too. Where no change affects the bits of kernels (.ci/run), this machine's best target runs alone.

`write` makes answers.json on this machine. It adds answers; it changes one only after kNumericsVersion has changed
(docs/numerics.md).
"""
import functools
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from checks import Checks, affected, compile_model, full, kv_formats, run, weight_formats

ROOT = pathlib.Path(__file__).resolve().parents[2]
ANSWERS = pathlib.Path(__file__).with_name("answers.json")
CHECKPOINTS = {
    "qwen2": ROOT / "test/Inputs/checkpoints/qwen2-untied-bf16-sharded",
    "qwen3_5": ROOT / "test/Inputs/checkpoints/qwen3_5-bf16",
    "qwen3": ROOT / "test/Inputs/checkpoints/qwen3-tied-bf16",
    "stories": ROOT / "models/stories",
    "qwen1": ROOT / "test/Inputs/checkpoints/qwen1-bf16",
    "qwen3_moe": ROOT / "test/Inputs/checkpoints/qwen3-moe-bf16",
}
# Qwen 1 with positions for the longest prompt.
CHANGES = {"qwen1": {"seq_length": 128}}
# The first three share all formats and machines among them. stories, which is ten times as large, runs every third format here and
# one on two targets elsewhere, qwen1 one everywhere: what is new in it knows no format. qwen3_moe is sampled as the first three are, here.
SAMPLED = list(CHECKPOINTS)[:3]
WEIGHTS = weight_formats()
KV = kv_formats()

# The ways to run: threads, maximum tokens in a call (0: all), sequences in a batch, contents of the cache.
WAYS = ((1, 2, 3, 4), (1, 3, 16, 0), (1, 2, 3, 8), ("cold", "preempted", "shared", "stepped"))
# Files of every other format can step back.
STEP_BACK = 2

# SVE code works with all lengths of vectors (here in bytes). neoverse-n2 also has i8mm.
LENGTHS = {length: f"max,sve-default-vector-length={length}" for length in ((16, 32, 64) if full() else (16, 32))}
EMULATED = {
    "armv8.2-a+sve": list(LENGTHS.values()),
    "neoverse-n1": ["neoverse-n1"],
    "cortex-a72": ["cortex-a72"],
    "neoverse-n2": ["max,sve-default-vector-length=16"],
}


# Targets of this machine, with the flag of /proc/cpuinfo that each needs.
HERE = {"x86-64-v3": "avx2", "x86-64-v3+avxvnni": "avx_vnni", "x86-64-v4+avx512vnni": "avx512_vnni",
        "x86-64-v4+avx512vnni+amx-int8": "amx_int8"}
FLAGS = pathlib.Path("/proc/cpuinfo").read_text().split()


def orthogonal():
    """16 of the ways, in four groups. Of any two dimensions, the group counted as one, each pair of values occurs: the
    columns a, b, a + b, 2a + b, 3a + b over the field of four elements."""
    double, triple = (0, 2, 3, 1), (0, 3, 1, 2)
    threads, pieces, sequences, caches = WAYS
    for a, b in itertools.product(range(4), repeat=2):
        yield triple[a] ^ b, (threads[a], pieces[b], sequences[a ^ b], caches[double[a] ^ b])


def group(number):
    return [way for group, way in orthogonal() if group == number % 4]


def is_sampled_here(name, t, w, k, best):
    """Whether target `t` of this machine runs format `w` with cache `k`. `best` says that it is the best target."""
    number = list(CHECKPOINTS).index(name)
    if name == "qwen1":
        return (w, k) == (t, t % len(KV))
    if ((number if best else t) + w) % len(KV) != k:
        return False
    if name == "stories":
        return best and w % 3 == 0
    return ((1 + w // 2 % 2 if best else t) + w) % 3 == number % len(SAMPLED)


def is_sampled_elsewhere(name, t, w, k):
    """Whether the emulated target `t` runs format `w` with cache `k`."""
    if name in SAMPLED:
        return (t + w) % 3 == SAMPLED.index(name) and t % 2 == w // 2 % 2 and (t // 2 + w) % len(KV) == k
    return (w, k) == (t, t % len(KV)) and (name != "stories" or t % 2 == 0)


def pairs(run, way):
    """The pairs of values of an emulated run and one of its ways. Other runs meet machines with formats, and checkpoints with formats.
    Formats of weights and of the cache share no kernel."""
    return {(a, b) for a, b in itertools.combinations((*run, *enumerate(way)), 2) if b[0] != "weights" and (a[0], b[0]) != ("weights", "kv")}


def has_long_vectors(run):
    return dict(run)["machine"][1] == LENGTHS[32]


@functools.cache
def sample_elsewhere():
    """The emulated runs of the sample: (checkpoint, machine, weights, kv), each with its name, and the two ways that add the most pairs
    to those of the runs before. Long vectors, whose emulation takes 5 times as long, come last, and without a second way that adds none.
    Of the ways that add as many they have one with whole prompts, for drawn tokens come one by one."""
    runs, met = [], set()
    combinations = [(("checkpoint", name), ("machine", (target, cpu)), ("weights", weights), ("kv", kv))
                    for name, (t, target), (w, weights), (k, kv) in itertools.product(CHECKPOINTS, enumerate(EMULATED), enumerate(WEIGHTS), enumerate(KV))
                    if is_sampled_elsewhere(name, t, w, k) for cpu in (EMULATED[target] if name in SAMPLED else EMULATED[target][:1])]
    for run in sorted(combinations, key=has_long_vectors):
        ways = []
        for _ in range(2):
            way = max((way for _, way in orthogonal() if way not in ways),
                      key=lambda way: (len(pairs(run, way) - met), has_long_vectors(run) and way[1] == 0))
            if not ways or not has_long_vectors(run) or not pairs(run, way) <= met:
                ways.append(way)
            met |= pairs(run, way)
        runs.append((run, ways))
    return runs


def plan_elsewhere(name):
    """(target, CPU, weights, kv, ways) of a checkpoint's emulated runs."""
    if not full():
        yield from ((*machine, weights, kv, ways) for ((_, of), (_, machine), (_, weights), (_, kv)), ways in sample_elsewhere() if of == name)
        return
    for (t, target), (w, weights), kv in itertools.product(enumerate(EMULATED), enumerate(WEIGHTS), KV):
        for c, cpu in enumerate(EMULATED[target]):
            yield target, cpu, weights, kv, group(w + (t + c) * (w // 4))


def plan(name):
    """(target, CPU or None for this one, weights, kv, ways) of a checkpoint's runs."""
    number = list(CHECKPOINTS).index(name)
    here = [target for target in HERE if HERE[target] in FLAGS]
    for (t, target), (w, weights), (k, kv) in itertools.product(enumerate(here), enumerate(WEIGHTS), enumerate(KV)):
        if not affected("bits") and target != here[-1]:
            continue
        if full() or is_sampled_here(name, t, w, k, target == here[-1]):
            yield target, None, weights, kv, list(itertools.product(*WAYS)) if full() else group(number + w + k)
    if affected("bits"):
        yield from plan_elsewhere(name)


def check_sample():
    """Checks that the emulated runs of the three tests together contain every pair, and every checkpoint each format."""
    runs = [(run, ways) for run, ways in sample_elsewhere() if run[0][1] in SAMPLED]
    values = [SAMPLED, [(target, cpu) for target, cpus in EMULATED.items() for cpu in cpus], WEIGHTS, KV, *WAYS]
    met = set().union(*(pairs(run, way) for run, ways in runs for way in ways))
    wanted = sum(len(a) * len(b) for a, b in itertools.combinations(values, 2) if b is not WEIGHTS and (a is not WEIGHTS or b is not KV))
    assert len(met) == wanted, f"{len(met)} of {wanted} pairs are in the sample"
    formats = {(name, weights) for name in SAMPLED for _, _, weights, _, _ in plan(name)}
    assert len(formats) == len(SAMPLED) * len(WEIGHTS), "a checkpoint misses a format"


def checkpoint(name, work):
    """The folder of a checkpoint, a changed copy of it in `work` if that is needed."""
    source = CHECKPOINTS[name]
    if name not in CHANGES:
        return source
    copy = work / name
    shutil.copytree(source, copy, dirs_exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | CHANGES[name]))
    return copy


def answers(command, model, ways):
    """The hashes of each way, and the drawn tokens."""
    lines = run([*command, model, *(":".join(map(str, way)) for way in ways)]).splitlines()
    return [line.split() for line in lines[:-1]], lines[-1]


def numerics_version(model):
    return json.loads(run(["qwen-run", "info", model, "--json"]))["numerics_version"]


def check(name, work, aarch64):
    work.mkdir(parents=True, exist_ok=True)
    for old in work.glob("*.qwen"):
        old.unlink()
    if affected("bits"):
        check_sample()
    for target, flag in HERE.items():
        if flag not in FLAGS:
            print(f"not run: {target}, for this machine lacks {flag}")
    committed = json.loads(ANSWERS.read_text())
    expected = committed["answers"][name]
    checks = Checks()
    for target, cpu, weights, kv, ways in plan(name):
        model = work / f"{target}-{weights}-{kv}.qwen"
        if not model.exists():
            compile_model(checkpoint(name, work), model, "--target", target, "--weights", weights, "--kv", kv,
                          "--step-back", STEP_BACK * (WEIGHTS.index(weights) % 2))
        command = ["qemu-aarch64-static", "-cpu", cpu, aarch64] if cpu else ["answer-hashes"]
        hashes, drawn = answers(command, model, ways)
        want = expected[f"{weights}, kv {kv}"]
        logits = want["logits"].split()
        where = f"{name}, {weights}, kv {kv}, {target} on {cpu or 'this machine'}"
        for way, found in zip(ways, hashes, strict=True):
            checks.check(found == logits[:way[2]], f"{where}, {way}: logits are {found}, not {logits}")
        checks.check(drawn == want["drawn"], f"{where}: drawn are {drawn}, not {want['drawn']}")
        print(f"{where}: {len(ways)} ways")
    checks.check(numerics_version(model) == committed["numerics_version"], "answers.json has another numerics version")
    checks.finish()


def write():
    old = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {"numerics_version": 0, "answers": {}}
    # Old answers keep their places in the file.
    new = {name: dict(of) for name, of in old["answers"].items()}
    with tempfile.TemporaryDirectory() as work:
        for name, weights, kv in itertools.product(CHECKPOINTS, WEIGHTS, KV):
            model = compile_model(checkpoint(name, pathlib.Path(work)), pathlib.Path(work) / "model.qwen", "--weights", weights, "--kv", kv)
            (hashes,), drawn = answers(["answer-hashes"], model, [(1, 0, 8, "cold")])
            new.setdefault(name, {})[f"{weights}, kv {kv}"] = {"logits": " ".join(hashes), "drawn": drawn}
        version = numerics_version(model)
    changed = [f"{name}, {key}" for name, of in old["answers"].items() for key, answer in of.items() if new[name][key] != answer]
    if changed and old["numerics_version"] == version:
        sys.exit(f"a new numerics version (kNumericsVersion) is needed, for these answers are others now: {'; '.join(changed)}")
    ANSWERS.write_text(json.dumps(old | {"numerics_version": version, "answers": new}, indent=1) + "\n")


if sys.argv[1:2] == ["write"]:
    write()
else:
    check(sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4])
