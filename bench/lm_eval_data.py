"""lm-eval's own tasks with data from files: `use(folder, shared)` before lm-eval loads a task.

Files are read as the scripts of the published data sets read them. The files of `shared`, the folder of evaluation data, are those
of other programs: ARC and PIQA lack the end of the question, HellaSwag what lm-eval prepares it from, WikiText its empty lines.
"""
import bz2
import csv
import json
import zipfile

import datasets
import pandas


def lines(path):
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def published_arc(folder, name):
    def read(split):
        return [{"id": r["id"], "question": r["question"]["stem"], "answerKey": r["answerKey"],
                 "choices": {key: [choice[key] for choice in r["question"]["choices"]] for key in ("text", "label")}}
                for r in lines(folder / name / f"{name}-{split}.jsonl")]
    return {"train": read("Train"), "test": read("Test")}


def shared_arc(folder, name):
    def read(row):
        labels = "ABCDE"[:len(row["choices"])]
        return {"question": row["query"].removeprefix("Question: "), "choices": {"text": row["choices"], "label": list(labels)},
                "answerKey": labels[row["gold"]]}
    rows = [read(r) for r in lines(folder / f"{name.lower().replace('-', '_')}.jsonl")]
    return {"train": rows, "test": rows}


def published_hellaswag(folder, _):
    return {split: [r | {"label": str(r["label"])} for r in lines(folder / f"hellaswag_{name}.jsonl")]
            for split, name in (("train", "train"), ("validation", "val"))}


def shared_hellaswag(folder, _):
    text = bz2.open(folder / "hellaswag_val_full.txt.bz2", "rt", encoding="utf-8", newline="\n").read().split("\n")
    rows = [{"query": text[i], "choices": text[i + 2:i + 6], "label": text[i + 1], "gold": int(text[i + 1])}
            for i in range(0, len(text) - 1, 6)]
    return {"train": rows, "validation": rows}


def published_piqa(folder, _):
    def read(name):
        labels = (folder / "piqa" / f"{name}-labels.lst").read_text().split()
        return [r | {"label": int(label)} for r, label in zip(lines(folder / "piqa" / f"{name}.jsonl"), labels, strict=True)]
    return {"train": read("train"), "validation": read("valid")}


def shared_piqa(folder, _):
    rows = [{"goal": r["query"].removeprefix("Question: ").removesuffix("\n"), "sol1": r["choices"][0], "sol2": r["choices"][1],
             "label": r["gold"]} for r in lines(folder / "piqa.jsonl")]
    return {"train": rows, "validation": rows}


def winogrande(folder, _):
    def read(name):
        return [{key: r[key] for key in ("sentence", "option1", "option2", "answer")}
                for r in lines(folder / "winogrande_1.1" / f"{name}.jsonl")]
    return {"train": read("train_xl"), "validation": read("dev")}


def lambada(folder, _):
    return {"test": [{"text": r["text"] if "text" in r else f"{r['context']} {r['continuation']}"}
                     for r in lines(folder / "lambada_openai.jsonl")]}


def wikitext(folder, _):
    pages, page = [], []
    for line in (folder / "wiki.test.raw").read_text(encoding="utf-8").split("\n"):
        heading = line.replace("= = =", "===").replace("= =", "==").strip()
        if heading.startswith("= ") and heading.endswith(" ="):
            if "\n".join(page).strip():
                pages.append("\n".join(page))
            page = []
        page.append(line)
    rows = [{"page": text} for text in [*pages, "\n".join(page)]]
    return {"train": rows, "validation": rows, "test": rows}


def mmlu(folder, subject):
    def read(split):
        with (folder / "mmlu" / split / f"{subject}_{split}.csv").open(encoding="utf-8", newline="") as file:
            return [{"question": r[0], "choices": r[1:5], "answer": "ABCD".index(r[5])} for r in csv.reader(file)]
    return {"dev": read("dev"), "test": read("test")}


def ceval(folder, subject):
    def read(split):
        with zipfile.ZipFile(folder / "ceval.zip") as archive, archive.open(f"{split}/{subject}_{split}.csv") as file:
            return pandas.read_csv(file, encoding="utf-8").astype(str).to_dict(orient="records")
    return {"dev": read("dev"), "val": read("val")}


def cmmlu(folder, subject):
    def read(split):
        table = pandas.read_csv(folder / "cmmlu" / split / f"{subject}.csv", header=0, index_col=0, encoding="utf-8")
        return table.astype(str).to_dict(orient="records")
    return {"dev": read("dev"), "test": read("test")}


# The readers of the published and of the shared files, by the name that lm-eval's tasks have for the data.
READERS = {"allenai/ai2_arc": (published_arc, shared_arc), "Rowan/hellaswag": (published_hellaswag, shared_hellaswag),
           "baber/piqa": (published_piqa, shared_piqa), "allenai/winogrande": (winogrande, None),
           "EleutherAI/lambada_openai": (lambada, lambada), "EleutherAI/wikitext_document_level": (wikitext, wikitext),
           "cais/mmlu": (mmlu, None), "ceval/ceval-exam": (None, ceval), "haonan-li/cmmlu": (cmmlu, None)}


def use(folder, shared):
    """Tasks that are loaded from now on take their data from the files of `folder`."""
    def load_dataset(path, name=None, **_):
        splits = {split: datasets.Dataset.from_list(rows) for split, rows in READERS[path][shared](folder, name).items()}
        if shared and path == "Rowan/hellaswag":
            # The rows are what the task's process_docs would make.
            for rows in splits.values():
                rows.map = lambda _, rows=rows: rows
        return datasets.DatasetDict(splits)
    datasets.load_dataset = load_dataset
