"""Prepared models of PyTorch against the engine, folders that qwen-opt keeps, and loops of others.

  train_models.py FOLDER
"""
import pathlib
import shutil
import sys

import numpy as np
import qwen_compiler
import torch
import transformers
from checks import Checks, same_bits
from qwen_compiler import train
from qwen_compiler.train._prepare import lay_in_cells, rounded_state
from train_small import MODELS, compiled, small

FOLDER = pathlib.Path(sys.argv[1]).resolve()
IDS = list(range(5, 69))
checks = Checks()
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def divergence(p, q):
    p, q = (torch.as_tensor(each).double().log_softmax(-1) for each in (p, q))
    return (p.exp() * (p - q)).sum(-1).mean().item()


def logits_of(file):
    with qwen_compiler.load(file) as engine:
        return np.array(engine.logits(IDS))


def distance(model, file):
    """The KL divergence between the logits of a model and of a file, and the largest difference over their range."""
    with torch.no_grad():
        own = model.eval()(torch.tensor([IDS])).logits[0].numpy()
    found = logits_of(file)
    return divergence(found, own), np.abs(found - own).max() / np.ptp(found)


def check_format(name, format):
    """A saved folder has the rounded model, and the prepared model computes what the engine does."""
    what = f"{name}, {format}"
    folder, original = (FOLDER / f"{name.replace(' ', '-')}-{format}{end}" for end in ("", "-original"))
    train.save(train.prepare(small(name), format), folder)
    small(name).save_pretrained(original)
    file, said = compiled(folder)
    checks.check(f"kept exactly in {format}" in said and "converted" not in said, f"{what}: {said}")
    plain, _ = compiled(original, "--weights", format, "--quantizer", "rtn", "--rotate", "off")
    checks.check(same_bits(logits_of(file), logits_of(plain)), f"{what}: the saved folder is not the rounded model")
    kl, _ = distance(train.prepare(small(name), format), file)
    # Another order of sums turns roundings of activations.
    checks.check(kl < 1e-3, f"{what}: KL {kl} to the prepared model")
    exact, _ = compiled(folder, "--weights", "f32")
    kl, error = distance(train.prepare(small(name), format, activations=False), exact)
    checks.check(kl < 1e-9 and error < 2e-5, f"{what}: KL {kl}, difference {error} without rounded activations")


def refusal(function, *arguments, **more):
    try:
        function(*arguments, **more)
    except qwen_compiler.Error as error:
        return str(error)
    return "nothing"


def check_cells(name):
    """The weights of the floats move no integer of a start, and stay where a start has the same integer."""
    model = small(name)
    floats = {id(each): each.detach().clone() for each in model.parameters()}
    with torch.no_grad():
        for each in model.parameters():
            if each.ndim > 1:
                each.copy_(train.round_weights(each + torch.randn_like(each) * 0.01))
    train.prepare(model, method="lsq")
    before = rounded_state(model)
    lay_in_cells(model, dict(floats))
    after = rounded_state(model)
    checks.check(all(same_bits(before[key].numpy(), after[key].numpy()) for key in before), f"{name}: the floats change an integer of the start")
    names = dict(model.named_parameters())
    kept = [(names[key] - floats[id(names[key])]).abs().lt(1e-6).float().mean().item() for key in names if f"{key}_scales" in names]
    checks.check(kept and min(kept) > 0.2 and max(kept) < 0.95, f"{name}: shares of weights at the floats: {kept}")


def check_trainer(name):
    """transformers' Trainer changes the parameters that the model had before, and the folder keeps integers. Returns the model."""
    model = train.prepare(small(name))
    before = {key: each.detach().clone() for key, each in model.named_parameters()}
    checks.expect(f"{name}: names", set(before), {key for key, _ in small(name).named_parameters()})
    rows = torch.randint(2, 256, (8, 16))
    arguments = transformers.TrainingArguments(output_dir=FOLDER / "trainer", max_steps=3, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                               learning_rate=1e-2, save_strategy="no", disable_tqdm=True)
    transformers.Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows]).train()
    kept = [key for key, each in model.named_parameters() if torch.equal(each, before[key])]
    checks.expect(f"{name}: what Trainer leaves as it is", kept, [])
    folder = FOLDER / f"trained-{name}"
    train.save(model, folder)
    checks.check("kept exactly in q4_0" in compiled(folder)[1], f"{name}: a folder of Trainer's model keeps no integers")
    return model


for name in ("tied", "experts"):
    check_cells(name)
for name in MODELS:
    for format in ("q4_0", "q4_g128", "q8_0", "q4_m_32"):
        check_format(name, format)

# Loops of others.
for name in ("experts", "hybrid", "tied"):
    model = check_trainer(name)

checks.expect("bf16", refusal(train.prepare, small("tied").bfloat16()),
              "model.embed_tokens.weight has bfloat16 when float32 is needed: small updates would be lost; load the model with dtype=torch.float32")
checks.check("there are q8_0, q4_0, q4_g128" in refusal(train.prepare, small("tied"), "nl4"), "nl4 is trained")
checks.check("is unknown" in refusal(train.prepare, small("tied"), "q3"), "q3 is known")
checks.check("is prepared already" in refusal(train.prepare, model), "a model is prepared twice")
checks.check("is not prepared" in refusal(train.save, small("tied"), FOLDER / "none"), "a model that is not prepared is saved")
checks.check("exists" in refusal(train.save, model, FOLDER / "trained-tied"), "a folder is overwritten")
checks.finish()
