"""Compares checkpoints whose config.json leaves keys out with what transformers computes of them.

  left_out.py INPUTS WORKDIR

test/Inputs/left_out/make_left_out.py records it. The logits are within 2e-5 of the range of the recorded ones, as in golden.py.
"""
import json
import pathlib
import sys


def edited_config(config, case):
    """The keys of `config`, also those of its text model, without those of `case`, and with its others."""
    for keys in (config, config.get("text_config", {})):
        for key in case["without"]:
            keys.pop(key, None)
    config.get("text_config", config).update(case.get("with", {}))
    return config


def make_checkpoint(source, case, folder):
    """A checkpoint `folder` with the files of `source` and another config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.name.startswith("model") and not (folder / file.name).exists():
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(edited_config(config, case)))
    return folder


def main():
    import numpy as np
    from checks import Checks, read_safetensors
    from golden import Compiled

    inputs, work = map(pathlib.Path, sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    for name, case in json.loads((inputs / "left_out/cases.json").read_text()).items():
        checkpoint = make_checkpoint(inputs / "checkpoints" / case["checkpoint"], case, work / name)
        golden = read_safetensors(inputs / f"left_out/{name}.safetensors")
        expected = golden["logits"]
        error = np.abs(Compiled(checkpoint, "f32", checkpoint).logits(golden["prompt"]) - expected).max() / (expected.max() - expected.min())
        print(f"{name}: greatest difference {error:.1e} of the range")
        checks.check(error <= 2e-5, f"{name}: {error:.1e} of the range is more than 2e-5")
    checks.finish()


if __name__ == "__main__":
    main()
