"""Models whose last product is not an ordinary lm_head: a head of scores, none at all, and one that is not tied after all.

  heads.py TOKENIZER EXAMPLES LIBRARY WORKDIR      TOKENIZER is a tokenizer.json of Qwen 2's kind, LIBRARY libqwenrt.so
"""
import ctypes
import json
import pathlib
import shutil
import subprocess
import sys
import threading

import gguf
import numpy as np

from checks import Checks, compile_model, run, write_checkpoint
from gguf_model import keys_of, own_name
from server import Server

TOKENIZER, EXAMPLES, LIBRARY, WORK = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(EXAMPLES))
import batch  # noqa: E402

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


class Token(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("sequence", ctypes.c_int32), ("position", ctypes.c_int64), ("want", ctypes.c_int32)]


def load_c(model):
    """The model in the C interface, and the library with further types of functions."""
    loaded = batch.Model(str(LIBRARY), str(model), 1)
    library, floats, ids = loaded.library, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int32)
    library.qwen_open_sequence.argtypes = [ctypes.c_void_p]
    library.qwen_hidden_size.argtypes = [ctypes.c_void_p]
    library.qwen_forward.argtypes = [ctypes.c_void_p, ctypes.POINTER(Token), ctypes.c_size_t, floats]
    library.qwen_encode_embedding.restype = library.qwen_encode_rerank.restype = ctypes.c_int64
    library.qwen_encode_embedding.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ids, ctypes.c_size_t]
    library.qwen_encode_rerank.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ids, ctypes.c_size_t]
    library.qwen_embedding.argtypes = [floats, ctypes.c_size_t, floats]
    library.qwen_rerank_score.argtypes = [ctypes.c_void_p, floats, floats]
    return loaded, library


def ids_of(loaded, function, *arguments):
    ids = (ctypes.c_int32 * loaded.check(function(loaded.model, *arguments, None, 0)))()
    loaded.check(function(loaded.model, *arguments, ids, len(ids)))
    return ids


def check_c_scores(model, expected):
    """The C interface gives the scores of the command line."""
    loaded, library = load_c(model)
    for line, document in zip(expected.splitlines(), DOCUMENTS):
        ids = ids_of(loaded, library.qwen_encode_rerank, None, QUERY.encode(), document.encode())
        score, ended = ctypes.c_float(), threading.Event()

        def on_logits(_, row, count):
            library.qwen_rerank_score(loaded.model, row, ctypes.byref(score))

        request = batch.Request(size=ctypes.sizeof(batch.Request), prompt=ids, prompt_size=len(ids), on_logits=batch.OnRow(on_logits),
                                on_end=batch.OnEnd(lambda *_: ended.set()))
        loaded.check(library.qwen_submit(loaded.scheduler, ctypes.byref(request)))
        ended.wait()
        expect(f"C: the score of {document}", score.value, np.float32(json.loads(line)["relevance_score"]))
    loaded.close()


def check_c_embeddings(model, texts, expected):
    """The C interface gives the embeddings of the command line."""
    loaded, library = load_c(model)
    library.qwen_scheduler_free(loaded.scheduler)
    loaded.scheduler = None
    size = library.qwen_hidden_size(loaded.model)
    for text, line in zip(texts, expected.splitlines()):
        ids = ids_of(loaded, library.qwen_encode_embedding, text.encode(), len(text))
        sequence, row = loaded.check(library.qwen_open_sequence(loaded.model)), (ctypes.c_float * size)()
        tokens = (Token * len(ids))(*(Token(each, sequence, i, 2 * (i + 1 == len(ids))) for i, each in enumerate(ids)))
        loaded.check(library.qwen_forward(loaded.model, tokens, len(ids), row))
        loaded.check(library.qwen_embedding(row, size, row))
        library.qwen_close_sequence(ctypes.c_void_p(loaded.model), sequence)
        expect(f"C: the embedding of {text}", list(row), [np.float32(value) for value in json.loads(line)["embedding"]])
    loaded.close()


def check_c_api(model, error):
    """qwen_forward and qwen_submit refuse logits."""
    loaded, library = load_c(model)
    ids = loaded.encode("x")
    row = (ctypes.c_float * SHAPE[7])()
    token = Token(ids[0], library.qwen_open_sequence(loaded.model), 0, 1)
    request = batch.Request(size=ctypes.sizeof(batch.Request), prompt=ids, prompt_size=len(ids), max_tokens=1)
    for found in (library.qwen_forward(loaded.model, ctypes.byref(token), 1, row),
                  library.qwen_submit(loaded.scheduler, ctypes.byref(request))):
        message = library.qwen_last_error().decode()
        checks.check(found < 0 and error in message, f"C: {found} {message}")
    loaded.close()


def check_scores(weights, config):
    """A head of two rows gives the scores of the lm_head that has them."""
    no = json.loads(TOKENIZER.read_text())["model"]["vocab"]["no"]
    rows = {label: weights["lm_head.weight"][row] for label, row in (("yes", YES), ("no", no))}
    whole = compile_model(write_gguf(WORK / "whole.gguf", config, weights), WORK / "whole.qwen", "--weights", "q4_0")
    expected = rerank(whole)
    checks.check(len(set(expected.splitlines())) == 3, f"the scores are {expected}")
    check_c_scores(whole, expected)
    for labels in (["yes", "no"], ["no", "yes"]):
        body = {name: bits for name, bits in weights.items() if name != "lm_head.weight"}
        body["score.weight"] = np.stack([rows[label] for label in labels])
        file, model = write_gguf(WORK / "scores.gguf", config, body, labels), WORK / "scores.qwen"
        expect("notes", compile_noted(file, model), [
            f"no logits, but scores of {labels[0]} and {labels[1]}; the model is for qwen-run rerank and /v1/rerank",
            "the pooling is rank, not last: qwen-run embed and /v1/embeddings refuse the model"])
        expect(f"scores in the order of {labels}", rerank(model), expected)
        check_c_scores(model, expected)
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
    check_c_embeddings(model, ["one", "two"], vectors)
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
