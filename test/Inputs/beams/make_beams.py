#!/usr/bin/env python3
"""Records the answers of transformers' beam searches: test/Inputs/beams/beams.json.

  python3 -m venv build/beams && build/beams/bin/pip install torch==2.15.0 transformers==5.23.0
  python3 -m venv build/groups && build/groups/bin/pip install torch==2.15.0 transformers==4.46.3
  build/beams/bin/python test/Inputs/beams/make_beams.py build/groups/bin/python

transformers 5.23 searches with plain beams. The last version with diverse beams is 4.46.3. It does not know Qwen3, so it searches with
logits of 5.23 that it gets through a pipe. Both compute in float.

`search` here is the same search in double. Its least margin of a case is the least difference that decides something: which candidate
runs on, which ends, which ended ones stay, whether the search goes on, and the order of answers. Where it exceeds 1e-4, transformers
must have the same answers as `search`, and test/Integration/beams.py compares
the same with ours.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import struct
import subprocess
import sys

import torch

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = FOLDER.parents[2]
LEAST_MARGIN = 1e-4
# End tokens are such that beams meet, so that many beams end. No beam comes near the pad token.
MODELS = (
    dict(checkpoint="models/stories", eos=[13, 11], pad=4094, count=14,
         prompts=[[3233, 601, 258, 545, 459, 308, 258, 458, 2281, 422, 1225]]),
    dict(checkpoint="test/Inputs/checkpoints/qwen2-tied-f32", eos=[280, 67], pad=0, count=12,
         prompts=[[137, 238, 25, 257, 260], [137, 238, 25, 257, 260, 187, 270, 236, 144, 192, 243, 88]]),
    dict(checkpoint="test/Inputs/checkpoints/qwen2-untied-bf16-sharded", eos=[91, 118, 105], pad=0, count=12,
         prompts=[[170, 313, 93, 296, 47], [170, 313, 93, 296, 47, 60, 219, 133, 117, 9, 246, 116]]),
    dict(checkpoint="test/Inputs/checkpoints/qwen3-untied-f32", eos=[247, 51, 239], pad=0, count=12,
         prompts=[[195, 316, 154, 142, 100], [195, 316, 154, 142, 100, 65, 234, 53, 249, 213, 31, 190]]),
    dict(checkpoint="test/Inputs/checkpoints/qwen3_5-text-f32", eos=[193, 304, 102], pad=319, count=12,
         prompts=[[66, 140, 293], [103, 235, 306, 97, 272, 145, 291, 161, 151, 228, 198, 207]]),
)
STOPPING, PENALTIES, DIVERSITIES = (False, True, "never"), (0.0, 1.0, -1.0, 2.0), (0.4, 1.5)
GROUPS = ((2, 2), (3, 3), (4, 2), (4, 4), (5, 5), (6, 2), (6, 3), (7, 7), (8, 2), (8, 4))


def settings():
    for beams, early, penalty in itertools.product(range(2, 9), STOPPING, PENALTIES):
        yield dict(num_beams=beams, early_stopping=early, length_penalty=penalty)
    for number, ((beams, groups), early, penalty) in enumerate(itertools.product(GROUPS, STOPPING, PENALTIES)):
        yield dict(num_beams=beams, early_stopping=early, length_penalty=penalty, num_beam_groups=groups,
                   diversity_penalty=DIVERSITIES[number % 2])


# ---------------------------------------------------------------------------------------------------------------------
# The search in double
# ---------------------------------------------------------------------------------------------------------------------
class Group:
    """The beams of a group. A plain search has one group."""

    def __init__(self, size, prompt):
        self.size, self.running, self.ended, self.done = size, [(0.0, prompt)], [], False


def search(log_probs, prompt, eos, count, num_beams, early_stopping, length_penalty, num_beam_groups=1, diversity_penalty=0.0):
    """The answers [(score, ids, whether an end token ended it)], the best first, and the least margin."""
    margins = [math.inf]
    groups = [Group(num_beams // num_beam_groups, prompt) for _ in range(num_beam_groups)]
    for length in range(1, count + 1):
        taken = torch.zeros_like(log_probs(prompt))
        for group in groups:
            if not group.done:
                step(group, log_probs, taken * diversity_penalty, prompt, eos, length, count, early_stopping, length_penalty,
                     num_beam_groups > 1, margins)
                for _, ids in group.running:
                    taken[ids[-1]] += 1
        if all(group.done for group in groups):
            break
    answers = sorted((answer for group in groups for answer in group.ended), reverse=True, key=lambda answer: answer[0])
    # Groups may have the same answer.
    margins += [a[0] - b[0] for a, b in itertools.pairwise(answers) if a[1] != b[1]]
    return answers, min(margins)


def step(group, log_probs, penalty, prompt, eos, length, count, early_stopping, length_penalty, diverse, margins):
    size, last = group.size, length == count
    totals = torch.stack([total + log_probs(ids) - penalty for total, ids in group.running]).flatten()
    best, order = totals.sort(descending=True, stable=True)
    best, order = best[:4 * size * (1 + len(eos))].tolist(), order[:4 * size * (1 + len(eos))].tolist()
    tokens = [divmod(i, len(penalty)) for i in order]
    ends = [rank for rank, (_, token) in enumerate(tokens) if token in eos]
    others = [rank for rank, (_, token) in enumerate(tokens) if token not in eos]
    ids = [group.running[beam][1] + (token,) for beam, token in tokens]
    # Of those that end, the best are taken.
    margins += [best[rank] - best[size] if rank < size else best[size - 1] - best[rank] for rank in ends]
    margins.append(best[size - 1] - best[size] if last and not diverse else best[others[size - 1]] - best[others[size]])
    group.running = [(best[rank], ids[rank]) for rank in others[:size]]
    end(group, [(best[rank] / length**length_penalty, ids[rank], True) for rank in ends if rank < size]
        + [(best[rank] / length**length_penalty, ids[rank], False) for rank in others if rank < size and last and not diverse], margins)
    if len(group.ended) == size and (diverse or not last):
        longest = count if early_stopping == "never" and length_penalty > 0 else length
        # The best that a running beam may reach.
        best_total = best[0] if diverse else group.running[0][0]
        gain = best_total / longest**length_penalty - group.ended[-1][0]
        group.done = early_stopping is True or gain <= 0
        # The last that stays may be the best itself, which has just ended.
        if early_stopping is not True and group.ended[-1][1] is not ids[0]:
            margins.append(abs(gain))
    if diverse and last and not group.done:
        end(group, [(total / length**length_penalty, ids, False) for total, ids in group.running], margins)


def end(group, answers, margins):
    """The best answers of the group stay."""
    merged = sorted(group.ended + answers, reverse=True, key=lambda answer: answer[0])
    margins += [a[0] - b[0] for a, b in itertools.pairwise(merged[group.size - 1:group.size + 1])]
    group.ended = merged[:group.size]


# ---------------------------------------------------------------------------------------------------------------------
# transformers
# ---------------------------------------------------------------------------------------------------------------------
def plain_answers(model, prompt, facts, setting):
    result = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=facts["count"], eos_token_id=facts["eos"],
                            pad_token_id=facts["pad"], num_return_sequences=setting["num_beams"], repetition_penalty=1.0,
                            return_dict_in_generate=True, output_scores=True, **setting)
    return answers_of(result.sequences.tolist(), result.sequences_scores.tolist(), prompt, facts)


def answers_of(sequences, scores, prompt, facts):
    for score, ids in zip(scores, sequences):
        ids = ids[len(prompt):]
        # An end token is the last one. The pad token follows.
        length = next((i for i, token in enumerate(ids) if token in facts["eos"]), None)
        yield score, tuple(ids[:length]), length is not None


class OldTransformers:
    """transformers 4.46.3 in another process, which this one gives logits."""

    def __init__(self, python):
        self.process = subprocess.Popen([python, os.path.abspath(__file__), "--old"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def answers(self, logits, prompt, facts, setting):
        send(self.process.stdin, dict(prompt=prompt, facts=facts, setting=setting))
        while "ids" in (message := receive(self.process.stdout)):
            send(self.process.stdin, [logits(tuple(ids)).tolist() for ids in message["ids"]])
        return answers_of(message["sequences"], message["scores"], prompt, facts)


def send(file, message):
    data = json.dumps(message).encode()
    file.write(struct.pack("<I", len(data)) + data)
    file.flush()


def receive(file):
    head = file.read(4)
    return json.loads(file.read(*struct.unpack("<I", head))) if head else None


def run_old():
    """Searches with diverse beams for the process that started this one."""
    from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    class Remote(PreTrainedModel, GenerationMixin):
        config_class, main_input_name = PretrainedConfig, "input_ids"

        def __init__(self):
            super().__init__(PretrainedConfig())
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def prepare_inputs_for_generation(self, input_ids, **unused):
            return dict(input_ids=input_ids)

        def forward(self, input_ids, return_dict=True):
            send(pipe, dict(ids=input_ids.tolist()))
            return CausalLMOutput(logits=torch.tensor(receive(sys.stdin.buffer), dtype=torch.float32)[:, None])

    model = Remote()
    while message := receive(sys.stdin.buffer):
        facts, setting = message["facts"], message["setting"]
        result = model.generate(torch.tensor([message["prompt"]]), do_sample=False, max_new_tokens=facts["count"],
                                eos_token_id=facts["eos"], pad_token_id=facts["pad"], num_return_sequences=setting["num_beams"],
                                use_cache=False, return_dict_in_generate=True, output_scores=True, **setting)
        send(pipe, dict(sequences=result.sequences.tolist(), scores=result.sequences_scores.tolist()))


# ---------------------------------------------------------------------------------------------------------------------
# The record
# ---------------------------------------------------------------------------------------------------------------------
def rows(model, to_row):
    """The last row of each sequence, kept."""
    known = {}

    def row(ids):
        if ids not in known:
            with torch.no_grad():
                known[ids] = to_row(model(torch.tensor([ids]), use_cache=False).logits[0, -1])
        return known[ids]

    return row


def record(number, facts, old):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    checkpoint = SOURCE / facts["checkpoint"]
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    doubles = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64, attn_implementation="eager").eval()
    logits, log_probs = rows(model, lambda row: row), rows(doubles, lambda row: row.log_softmax(-1))
    for prompt_number, prompt in enumerate(facts["prompts"]):
        for setting in settings():
            expected, margin = search(log_probs, tuple(prompt), facts["eos"], facts["count"], **setting)
            expected = [(score, ids[len(prompt):len(ids) - ended], ended) for score, ids, ended in expected]
            if "num_beam_groups" in setting:
                answers = list(old.answers(logits, prompt, facts, setting))
            else:
                answers = list(plain_answers(model, prompt, facts, setting))
            same = [answer[1:] for answer in answers] == [answer[1:] for answer in expected]
            assert same or margin <= LEAST_MARGIN, (facts["checkpoint"], setting, margin, answers, expected)
            assert not same or all(math.isclose(a[0], b[0], rel_tol=1e-5, abs_tol=1e-5) for a, b in zip(answers, expected)), answers
            yield dict(model=number, prompt=prompt_number, **setting, margin=float(f"{margin:.2g}"),
                       answers=[dict(ids=ids, ended=ended, score=round(score, 6)) for score, ids, ended in answers])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="that has transformers 4.46.3")
    parser.add_argument("--only", help="the name of one checkpoint")
    parser.add_argument("-o", default=FOLDER / "beams.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    old = OldTransformers(arguments.python)
    cases = []
    models = [facts for facts in MODELS if not arguments.only or facts["checkpoint"].endswith(arguments.only)]
    for number, facts in enumerate(models):
        cases += record(number, facts, old)
        mine = [case for case in cases if case["model"] == number]
        print(facts["checkpoint"], len(mine), "cases,", sum(case["margin"] > LEAST_MARGIN for case in mine), "with margins;",
              sum(answer["ended"] for case in mine for answer in case["answers"]), "of",
              sum(len(case["answers"]) for case in mine), "answers ended", flush=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    pathlib.Path(arguments.o).write_text('{"models":[\n' + ",\n".join(map(json.dumps, models)) + '],\n"cases":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    run_old() if sys.argv[1:] == ["--old"] else main()
