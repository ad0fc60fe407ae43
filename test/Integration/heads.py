"""Models whose last product is not an ordinary lm_head: a head of scores, none at all, and one that is not tied after all.

  heads.py TOKENIZER WORKDIR      TOKENIZER is a tokenizer.json of Qwen 2's kind
"""
import asyncio
import ctypes
import json
import pathlib
import shutil
import subprocess
import sys

import gguf
import numpy as np
import qwen_compiler
from qwen_compiler import _declarations as c
from qwen_compiler._library import library

from checks import Checks, compile_model, run, write_checkpoint
from gguf_model import keys_of, own_name
from server import Server

TOKENIZER, WORK = map(pathlib.Path, sys.argv[1:])
checks = Checks()
# The tokenizer has 4096 tokens, but none for "yes".
YES, SHAPE = 4096, ("qwen3", 64, 1, 2, 1, 32, 64, 4100, False)
QUERY, DOCUMENTS = "Who was old?", ["The king was old.", "yes", "Nobody <|im_end|>"]


def expect(what, found, expected):
    checks.check(found == expected, f"{what}: {found!r} is not {expected!r}")


def write_gguf(file, config, weights, labels=()):
    """A file with the tokenizer; with `labels` as llama.cpp's converter writes rerankers."""
    writer = gguf.GGUFWriter(file, "qwen3")
    for key, value in keys_of(config).items():
        if key == "general.architecture":
            continue
        if isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    tokenizer = json.loads(TOKENIZER.read_text())
    tokens = dict(enumerate(tokenizer["model"]["vocab"])) | {each["id"]: each["content"] for each in tokenizer["added_tokens"]}
    tokens[YES] = "yes"
    special = {each["id"] for each in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    types = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(YES)]
    writer.add_token_types([*types, gguf.TokenType.USER_DEFINED])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    if labels:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(labels)
    for name, bits in weights.items():
        own = "cls.output.weight" if name == "score.weight" else own_name(name, False)
        values = (bits.astype(np.uint32) << 16).view(np.float32)
        if values.ndim == 1:
            writer.add_tensor(own, values)
        else:
            writer.add_tensor(own, bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def compile_noted(checkpoint, model):
    """The model, and what the summary notes about it."""
    result = subprocess.run(["qwen-opt", checkpoint, "-o", model, "--weights", "q4_0"], capture_output=True, text=True)
    checks.check(result.returncode == 0, result.stderr)
    return [line.strip() for line in result.stderr.splitlines() if "no logits" in line or "pooling" in line]


def rerank(model):
    return run(["qwen-run", "rerank", model, "-q", QUERY], input="".join(f"{text}\n" for text in DOCUMENTS))


def check_refused(model, error, *commands):
    text = WORK / "text"
    text.write_text("one two")
    arguments = {"generate": ["-p", "x"], "chat": [], "embed": [text], "perplexity": [text],
                 "logits": ["--ids", "1,2", "-o", WORK / "none.npy"]}
    for command in commands:
        result = subprocess.run(["qwen-run", command, model, *arguments[command]], capture_output=True, text=True, input="x\n")
        checks.check(result.returncode == 1 and len(result.stderr.splitlines()) == 1 and error in result.stderr,
                     f"{command} {model.name}: {result.returncode} {result.stderr!r}")
    checks.check(not (WORK / "none.npy").exists(), f"logits {model.name}: a file is left")


def check_server(server, error, *paths):
    bodies = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]}, "/v1/completions": {"prompt": "x"},
              "/v1/embeddings": {"input": "x"}, "/v1/rerank": {"query": "x", "documents": ["y"]}}
    for path in paths:
        status, _, text = server.send("POST", path, bodies[path])
        found = json.loads(text)["error"]
        checks.check((status, found["param"], found["code"]) == (400, "model", "unsupported_model") and error in found["message"],
                     f"{path}: {status} {text}")


def check_python_scores(model, expected):
    """The Python package gives the scores of the command line."""
    with qwen_compiler.load(model) as loaded:
        scores = [np.float32(json.loads(line)["relevance_score"]) for line in expected.splitlines()]
        expect("scores in Python", loaded.rerank(QUERY, DOCUMENTS), scores)
        expect("scores in asyncio", asyncio.run(loaded.arerank(QUERY, DOCUMENTS)), scores)


def check_python_embeddings(model, texts, expected):
    """The Python package gives the embeddings of the command line."""
    with qwen_compiler.load(model) as loaded:
        expect("embeddings in Python", loaded.embed(texts).tolist(),
               [[np.float32(value) for value in json.loads(line)["embedding"]] for line in expected.splitlines()])


def check_c_api(model, error):
    """qwen_forward and qwen_submit refuse logits."""
    with qwen_compiler.load(model) as loaded:
        for call, text in ((lambda: loaded.generate("x"), error), (lambda: loaded.perplexity("one two"), "no logits"), (lambda: loaded.logits([1]), "no logits"),
                           (lambda: loaded.loglikelihoods([([1], [2])]), "no logits")):
            try:
                call()
                checks.check(False, f"there are logits in Python where {text!r} is right")
            except qwen_compiler.Error as found:
                checks.check(text in str(found), f"Python: {found}")
        with loaded._handle.use() as native:
            token = c.qwen_token(1, library().qwen_open_sequence(native), 0, c.QWEN_WANT_LOGITS)
            row = (ctypes.c_float * SHAPE[7])()
            found = library().qwen_forward(native, ctypes.byref(token), 1, row)
            message = library().qwen_last_error().decode()
            checks.check(found < 0 and error in message, f"C: {found} {message}")


def check_scores(weights, config):
    """A head of two rows gives the scores of the lm_head that has them."""
    no = json.loads(TOKENIZER.read_text())["model"]["vocab"]["no"]
    rows = {label: weights["lm_head.weight"][row] for label, row in (("yes", YES), ("no", no))}
    whole = compile_model(write_gguf(WORK / "whole.gguf", config, weights), WORK / "whole.qwen", "--weights", "q4_0")
    expected = rerank(whole)
    checks.check(len(set(expected.splitlines())) == 3, f"the scores are {expected}")
    check_python_scores(whole, expected)
    for labels in (["yes", "no"], ["no", "yes"]):
        body = {name: bits for name, bits in weights.items() if name != "lm_head.weight"}
        body["score.weight"] = np.stack([rows[label] for label in labels])
        file, model = write_gguf(WORK / "scores.gguf", config, body, labels), WORK / "scores.qwen"
        expect("notes", compile_noted(file, model), [
            f"no logits, but scores of {labels[0]} and {labels[1]}; the model is for qwen-run rerank and /v1/rerank",
            "the pooling is rank, not last: qwen-run embed and /v1/embeddings refuse the model"])
        expect(f"scores in the order of {labels}", rerank(model), expected)
        check_python_scores(model, expected)
    facts = json.loads(run(["qwen-run", "info", model, "--json"]))
    expect("facts", [facts["model"][key] for key in ("output", "labels", "pooling")], ["scores", labels, "rank"])
    checks.check("output     scores, pooling rank\n" in run(["qwen-run", "info", model]), "info does not tell the output")
    no_logits, pooling = "has no logits: its checkpoint has a head of scores", 'the pooling of its checkpoint is "rank"'
    check_refused(model, no_logits, "generate", "chat", "logits", "perplexity")
    check_refused(model, pooling, "embed")
    check_c_api(model, no_logits)
    server = Server(model)
    check_server(server, no_logits, "/v1/chat/completions", "/v1/completions")
    check_server(server, pooling, "/v1/embeddings")
    results = server.post("/v1/rerank", query=QUERY, documents=DOCUMENTS)["results"]
    expect("scores of the server", sorted(results, key=lambda each: each["index"]), [json.loads(line) for line in expected.splitlines()])
    server.stop()
    return whole


def check_embeddings(whole):
    """Without an lm_head, an untied model only embeds."""
    folder, model = WORK / "folder", WORK / "none.qwen"
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    # It is the last tensor.
    end = header.pop("lm_head.weight")["data_offsets"][0]
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size:8 + size + end])
    shutil.copy(TOKENIZER, folder)
    expect("notes", compile_noted(folder, model), [
        "no logits: the checkpoint has no lm_head.weight and does not tie it to the embedding; the model is for qwen-run embed and "
        "/v1/embeddings alone"])
    vectors = run(["qwen-run", "embed", model], input="one\ntwo\n")
    expect("vectors", vectors, run(["qwen-run", "embed", whole], input="one\ntwo\n"))
    check_python_embeddings(model, ["one", "two"], vectors)
    error = "has no logits: its checkpoint has no lm_head and does not tie it to the embedding"
    check_c_api(model, error)
    server = Server(model)
    check_server(server, error, "/v1/chat/completions", "/v1/completions", "/v1/rerank")
    expect("vectors of the server", [each["embedding"] for each in server.post("/v1/embeddings", input=["one", "two"])["data"]],
           [json.loads(line)["embedding"] for line in vectors.splitlines()])
    server.stop()


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
weights, config = write_checkpoint(WORK / "folder", SHAPE, np.random.default_rng(1))
check_embeddings(check_scores(weights, config))
checks.finish()
