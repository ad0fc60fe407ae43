"""qwen-train: trains a checkpoint at the precision of the engine."""
from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch  # type: ignore
import transformers  # type: ignore
from tqdm import tqdm  # type: ignore

from .._errors import Error
from .._programs import program
from ._data import windows
from ._prepare import METHODS, lay_in_cells, new_folder, prepare, rounded_state, write_folder
from ._training import STATE, Diverged, Recipe, Training

# What a learning rate is when none is given.
RATES = {"qat": 1e-4, "lsq": 5e-5, "scales": 1e-4, "qalora": 1e-3, "lora": 2e-4}
HELD_OUT = 16
# Options that may have several values to try, and their types.
SWEPT: dict[str, Callable[[str], float]] = {"lr": float, "alpha": float, "temperature": float, "epochs": float, "batch": int, "rank": int, "seed": int}


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the program."""
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = OneLineParser(
        prog="qwen-train", description="Trains a checkpoint so that its integers lose little: the loss is that of a compiled model. "
        "Writes a folder whose integers qwen-opt keeps (docs/training.md).")
    add = result.add_argument
    add("checkpoint", type=pathlib.Path, metavar="CHECKPOINT", help="a folder of Hugging Face")
    add("-o", "--output", type=pathlib.Path, required=True, metavar="FOLDER", help="the folder to write; a killed run leaves FOLDER.training, and goes on")
    add("--method", choices=[*METHODS, "lora"], required=True,
        help="qat: all weights; lsq: all weights and their scales; scales: scales and minimums alone; qalora: an adapter of the minimums; "
        "lora: an adapter of the weights in floats, for qwen-opt --lora")
    add("--data", type=pathlib.Path, nargs="+", required=True, metavar="FILE", help="text, .jsonl of conversations, or .json of Alpaca")
    add("--teacher", type=pathlib.Path, metavar="CHECKPOINT", help="the loss is the KL divergence to this model, mostly CHECKPOINT itself")
    add("--start", type=pathlib.Path, metavar="FILE",
        help="begin with the weights of this GGUF file, of `qwen-opt export`: the integers of a file that was calibrated without rotation")
    add("--prune", metavar="METHOD:N", help="remove N layers first, as qwen-opt --prune does (shortgpt, sleb)")
    add("--format", default=None, help="format of the integers (q4_0; of qalora q4_m_32)")
    add("--no-activations", action="store_true", help="leave the inputs of products in floats")
    add("--no-lm-head", action="store_true", help="leave the embedding and the head in floats")
    add("--rank", type=int, default=16, help="rank of the adapters of lora and qalora (16)")
    add("--epochs", type=float, default=1.0, help="how often the data is read (1)")
    add("--lr", type=float, help=f"learning rate ({', '.join(f'{name} {rate:g}' for name, rate in RATES.items())})")
    add("--batch", type=int, default=8, help="windows of a step (8)")
    add("--window", type=int, default=512, help="tokens of a window (512)")
    add("--alpha", type=float, default=1.0, help="share of the divergence to the teacher in the loss (1)")
    add("--temperature", type=float, default=1.0, help="of the probabilities in the loss (1)")
    add("--evaluations", type=int, default=10, help="points of the curve between begin and end (10)")
    add("--sweep", metavar="NAME=VALUE,...", help=f"train once with each value of an option ({', '.join(SWEPT)}) into FOLDER-NAME=VALUE, and print a table")
    add("--seed", type=int, default=0, help="order of the windows, and first values of adapters (0)")
    add("--threads", type=int, help="threads of PyTorch on a CPU")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="device of PyTorch (cuda where there is one, else cpu)")
    add("--bf16-products", action="store_true", help="round what products read to bf16: faster where the device has instructions for it")
    add("--gradient-checkpointing", action="store_true", help="less memory, a third more time")
    return result


def check(options: argparse.Namespace) -> None:
    """Raises Error for what cannot be."""
    for name, least in (("rank", 1), ("batch", 1), ("window", 2), ("evaluations", 0), ("seed", 0)):
        if getattr(options, name) < least:
            raise Error(f"--{name} is {getattr(options, name)} when {least} at least is needed")
    for name in ("epochs", "lr", "temperature"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise Error(f"--{name} is {value:g} when a number above 0 is needed")
    if not 0 <= options.alpha <= 1:
        raise Error(f"--alpha is {options.alpha:g} when a number from 0 to 1 is needed")
    if options.prune and not re.fullmatch(r"(shortgpt|sleb):[1-9]\d*", options.prune):
        raise Error(f"--prune is {options.prune!r} when shortgpt:N or sleb:N is needed")
    if options.output.exists():
        raise Error(f"{options.output} exists; remove it or name another folder")
    for folder in (options.checkpoint, options.teacher):
        if folder and not (folder / "config.json").is_file():
            raise Error(f"{folder} is no folder of a checkpoint: it has no config.json")


def load_model(folder: pathlib.Path, device: str) -> Any:
    """The model of a folder in float32. Raises Error."""
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).to(device)
    except Exception as error:  # transformers raises errors of many kinds.
        raise Error(f"cannot load {folder}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}") from None


def take_weights(model: Any, file: pathlib.Path) -> None:
    """Gives a model the weights of a GGUF file of the same model. Raises Error."""
    try:
        # transformers reads no size of heads from the file.
        other = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, config=model.config, dtype=torch.float32, local_files_only=True)
        model.load_state_dict(other.state_dict())
    except Exception as error:  # transformers raises errors of many kinds.
        raise Error(f"cannot take the weights of {file}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}") from None


def load_tokenizer(folder: pathlib.Path) -> Any:
    """Its tokenizer. Raises Error."""
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise Error(f"cannot load the tokenizer of {folder}: {str(error).strip().splitlines()[0]}") from None


def load_teacher(options: argparse.Namespace, model: Any, tokenizer: Any) -> Any:
    """The teacher, which has the tokens of the model. Raises Error."""
    if load_tokenizer(options.teacher).get_vocab() != tokenizer.get_vocab():
        raise Error(f"{options.teacher} has other tokens than {options.checkpoint}: a teacher needs the tokenizer of the model")
    teacher = load_model(options.teacher, options.device).eval().requires_grad_(False)
    sizes = [each.config.get_text_config().vocab_size for each in (teacher, model)]
    if sizes[0] != sizes[1]:
        raise Error(f"{options.teacher} has {sizes[0]} logits and {options.checkpoint} {sizes[1]}: a teacher needs the vocabulary of the model")
    return teacher


def pruned_layers(options: argparse.Namespace) -> list[int]:
    """The layers that qwen-opt removes by the first file of the data. Raises Error."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([program("qwen-opt"), options.checkpoint, "-o", os.path.join(folder, "pruned.qwen"), "--weights", "q4_0", "--quantizer", "rtn",
                                   f"--calibrate={options.data[0]}", "--prune", options.prune], capture_output=True, text=True)
        except OSError as error:
            raise Error(f"cannot run {program('qwen-opt')}: {error.strerror}") from None
    if done.returncode:
        raise Error((done.stderr.strip().splitlines() or ["qwen-opt failed"])[-1].removeprefix("qwen-opt: "))
    found = re.search(r"layers? ([\d, ]+) removed", done.stderr)
    if not found:
        raise Error("qwen-opt does not say which layers it removes")
    return [int(each) for each in found[1].split(", ")]


def remove_layers(model: Any, removed: list[int]) -> None:
    """Removes layers of a model and closes up the numbers of the others."""
    layers = model.model.layers
    kept = [layer for number, layer in enumerate(layers) if number not in removed]
    model.model.layers = torch.nn.ModuleList(kept)
    for number, layer in enumerate(kept):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [kind for number, kind in enumerate(model.config.layer_types) if number not in removed]
    model.config.num_hidden_layers = len(kept)


def digest_of(options: argparse.Namespace) -> str:
    """What a run that goes on must have in common with the one before: its options, the data and the sizes of the checkpoints' files."""
    sha = hashlib.sha256()
    left_out = ("threads", "device")
    sha.update(repr(sorted((name, str(value)) for name, value in vars(options).items() if name not in left_out)).encode())
    for path in options.data:
        try:
            sha.update(path.read_bytes())
        except OSError as error:
            raise Error(f"cannot read {path}: {error.strerror}") from None
    if options.start and options.start.exists():
        sha.update(options.start.read_bytes())
    for folder in (options.checkpoint, options.teacher):
        sha.update(repr(sorted((each.name, each.stat().st_size) for each in folder.iterdir()) if folder else None).encode())
    return sha.hexdigest()


def begin_folder(options: argparse.Namespace) -> pathlib.Path:
    """The folder of the state of this training. Raises Error if it belongs to another one."""
    folder: pathlib.Path = options.output.with_name(options.output.name + ".training")
    digest = digest_of(options)
    note = folder / "options.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STATE).exists() and json.loads(note.read_text()) != digest:
            raise Error(f"{folder} belongs to a training with other options or data; remove it to begin anew")
        note.write_text(json.dumps(digest))
    except (OSError, ValueError) as error:
        raise Error(f"cannot use {folder}: {getattr(error, 'strerror', None) or error}; remove it to begin anew") from None
    return folder


def add_adapter(model: Any, rank: int) -> Any:
    """PEFT's LoRA of all products but the head. Raises Error without PEFT."""
    try:
        import peft  # type: ignore
    except ImportError:
        raise Error("the method lora needs PEFT; install it: pip install peft") from None
    return peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"))


def write_adapter(model: Any, folder: pathlib.Path, more: dict[str, str]) -> None:
    """Writes the adapter of a model of PEFT. The folder appears at once. Raises Error."""
    with new_folder(folder) as part:
        model.save_pretrained(part)
        for name, text in more.items():
            (part / name).write_text(text)


History = dict[str, list[tuple[float, float]]]


def train(options: argparse.Namespace, tell: Callable[[int, int, str], None]) -> History:
    """Runs a training and writes its folder. `tell` gets the steps that are done, all of them, and a line. Returns what was measured: pairs of
    tokens and value."""
    check(options)
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("medium" if options.bf16_products else "highest")
    tokenizer = load_tokenizer(options.checkpoint)
    data = windows(options.data, tokenizer, options.window)
    folder = begin_folder(options)
    try:
        training = begin_training(options, tokenizer, data, folder)
        training.run(lambda step, line: tell(step, training.steps, line))
        write(options, training)
    except Diverged:
        (folder / STATE).unlink(missing_ok=True)
        raise
    finally:
        # A training that has saved nothing leaves nothing.
        if not (folder / STATE).exists() or options.output.exists():
            shutil.rmtree(folder)
    return {name: values for name, values in training.history.items() if values}


def begin_training(options: argparse.Namespace, tokenizer: Any, data: Any, folder: pathlib.Path) -> Training:
    """The training of the options, where its state in the folder left it. Raises Error."""
    model = load_model(options.checkpoint, options.device)
    teacher = load_teacher(options, model, tokenizer) if options.teacher else None
    floats: dict[int, Any] = {}
    if options.start:
        if options.method == "lsq":
            floats = {id(each): each.detach().clone() for each in model.parameters()}
        take_weights(model, options.start)
    if options.prune:
        remove_layers(model, pruned_layers(options))
    if options.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    if options.method == "lora":
        model = add_adapter(model, options.rank)
    else:
        format = options.format or ("q4_m_32" if options.method == "qalora" else "q4_0")
        prepare(model, format, not options.no_activations, not options.no_lm_head, options.method, options.rank).to(options.device)
        if options.method == "lsq":
            lay_in_cells(model, floats)
    held = min(HELD_OUT, max(1, len(data) // 20))
    recipe = Recipe(options.lr or RATES[options.method], options.epochs, options.batch, options.seed, options.evaluations, options.temperature, options.alpha)
    # One of each part of the data, so that all of its kinds are measured.
    is_held = torch.zeros(len(data), dtype=torch.bool)
    is_held[[len(data) * (2 * part + 1) // (2 * held) for part in range(held)]] = True
    training = Training(model, teacher, data[~is_held], data[is_held], recipe, folder, options.device)
    if training.load():
        print(f"{folder}: goes on after {training.step} of {training.steps} steps", file=sys.stderr)
    return training


def write(options: argparse.Namespace, training: Training) -> None:
    """Writes what was trained. Raises Error."""
    facts = dataclasses.asdict(training.recipe) | {"method": options.method, "history": training.history}
    notes = {"curve.svg": training.picture(), "training.json": json.dumps(facts, indent=1)}
    if options.method == "lora":
        write_adapter(training.model, options.output, notes)
    else:
        write_folder(training.model, options.output, rounded_state(training.model), notes)


def train_with_bar(options: argparse.Namespace) -> History:
    """The same with a progress bar."""
    with tqdm(unit="step", disable=None, file=sys.stderr) as bar:

        def tell(done: int, total: int, line: str) -> None:
            bar.total = total
            bar.set_postfix_str(line, refresh=False)
            bar.update(done - bar.n)

        return train(options, tell)


def sweep(options: argparse.Namespace) -> str:
    """Trains with each value of an option. Returns a table of what was measured on held-out windows, in Markdown. Raises Error."""
    name, _, words = options.sweep.partition("=")
    try:
        values = [SWEPT[name](word) for word in words.split(",")]
    except (KeyError, ValueError):
        raise Error(f"--sweep is {options.sweep!r} when NAME=VALUE,... is needed with a NAME of {', '.join(SWEPT)}") from None
    variants = [argparse.Namespace(**vars(options) | {name: value, "sweep": None, "output": options.output.with_name(f"{options.output.name}-{name}={value:g}")})
                for value in values]
    # A sweep that was killed goes on behind the values that it has done.
    done = [each.output / "training.json" for each in variants]
    for note, each in zip(done, variants):
        if not note.exists():
            check(each)
    lines: list[str] = []
    for value, note, each in zip(values, done, variants):
        history: History = json.loads(note.read_text())["history"] if note.exists() else train_with_bar(each)
        key, points = [item for item in history.items() if item[1]][-1]
        if not lines:
            lines = [f"| {name}, {key} after tokens | " + " | ".join(f"{tokens:.0f}" for tokens, _ in points) + " |", "|---" * (len(points) + 1) + "|"]
        lines.append(f"| {value:g} | " + " | ".join(f"{number:.4f}" for _, number in points) + " |")
    return "\n".join(lines)


def main() -> int:
    """The command. Returns its exit status."""
    options = parser().parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if not sys.warnoptions:
        # What libraries say to each other.
        warnings.simplefilter("ignore")
    try:
        if options.sweep:
            print(sweep(options))
            return 0
        reached = ", ".join(f"{name} {values[0][1]:.4f} -> {values[-1][1]:.4f}" for name, values in train_with_bar(options).items())
    except Error as error:
        print(f"qwen-train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"qwen-train: interrupted; the same command goes on where {options.output}.training has its state", file=sys.stderr)
        return 130
    print(f"{options.output}: {reached} (held out)")
    return 0
