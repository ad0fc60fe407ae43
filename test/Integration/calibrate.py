"""Calibration by the command line: the text of qwen-opt makes models/stories better, and the file tells how it was made. So do
rotations in q8_0. Distilled scales lower the loss of windows that they do not see.

  calibrate.py MODEL_FOLDER F32 Q4_0 WORKDIR      F32 and Q4_0 are MODEL_FOLDER, compiled; Q4_0 is rounded
"""
import json
import pathlib
import re
import subprocess
import sys

from checks import Checks, compile_model, run

FOLDER, f32, q4_0, WORK = (pathlib.Path(a) for a in sys.argv[1:])
WORK.mkdir(parents=True, exist_ok=True)
checks = Checks()


def divergence(model):
    result = run(["qwen-run", "compare", f32, model, FOLDER / "golden" / "val.txt", "--window", 256, "--windows", 6, "--json"])
    return json.loads(result)["kl"]["mean"]


calibrated = WORK / "calibrated.qwen"
told = subprocess.run(["qwen-opt", FOLDER, "-o", calibrated, "--weights", "q4_0", "--calibrate", "--distill=16"],
                      check=True, capture_output=True, text=True).stderr
told = told.replace("\n  ", "\n")
start = re.search(r"^distillation: 16 steps of 512 tokens take about \d+ seconds; KL of \d+ tokens that are held out is (0\.\d+)$", told, re.M)
end = re.search(r"^distillation: step (\d+) of 16, KL of held-out tokens (0\.\d+) in place of (0\.\d+), \d+ seconds$", told, re.M)
checks.check(start and end and start[1] == end[3] and float(end[2]) < 0.98 * float(end[3]), f"qwen-opt says {told}")
checks.check(not list(WORK.glob(f"{calibrated.name}.*")), "nothing but the file stays")
rounded, chosen = divergence(q4_0), divergence(calibrated)
print(f"KL {rounded:.4f} rounded, {chosen:.4f} by gptq")
checks.check(chosen < 0.75 * rounded, f"KL is {chosen} by gptq and {rounded} rounded")

quantization = json.loads(run(["qwen-run", "info", calibrated, "--json"]))["quantization"]
checks.check(quantization["quantizer"] == "gptq" and 30000 < quantization["tokens"] <= 32768 and len(quantization["text"]) == 64,
             f"the manifest has {quantization}")
steps = int(end[1])
checks.check(quantization["distilled"] == {"steps": steps, "tokens": 512 * steps},
             f"the manifest has {quantization}, and step {steps} was kept")
checks.check(f", scales of {steps} steps of distillation over {512 * steps} tokens" in run(["qwen-run", "info", calibrated]), "info tells no distillation")
checks.check("quantizer  gptq, " in run(["qwen-run", "info", calibrated]), "info prints the quantizer")
checks.check("quantization" not in json.loads(run(["qwen-run", "info", q4_0, "--json"])), "a rounded file tells no quantizer")

q8_0 = {rotate: divergence(compile_model(FOLDER, WORK / f"q8_0-{rotate}.qwen", "--weights", "q8_0", "--rotate", rotate))
        for rotate in ("off", "on")}
print(f"KL {q8_0['off']:.5f} in q8_0, {q8_0['on']:.5f} rotated")
checks.check(q8_0["on"] < 0.75 * q8_0["off"], f"KL in q8_0 is {q8_0}")
checks.finish()
