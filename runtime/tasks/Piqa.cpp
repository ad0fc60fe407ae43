//===- Piqa.cpp - PIQA: which of two ways works ---------------------------===//
//
// Bisk et al., "PIQA: Reasoning about Physical Commonsense in Natural
// Language", 2020.
//
//===----------------------------------------------------------------------===//

#include "tasks/TaskText.h"

#include <sstream>

using namespace qwen;
using namespace qwen::tasks;

/// {"query": "Question: ...\n", "choices": [], "gold"}.
static Document readQuery(const JsonValue &row) {
  std::vector<std::string> choices;
  for (const JsonValue &choice : row.at("choices").elements())
    choices.push_back(choice.string());
  const int64_t gold = integerOf(row.at("gold"), 0, std::ssize(choices) - 1);
  return multipleChoice(row.at("query").string() + "Answer:",
                        std::move(choices), static_cast<size_t>(gold));
}

/// {"goal", "sol1", "sol2"} and the index of the right solution.
static Document readGoal(const JsonValue &row, int64_t gold) {
  return multipleChoice("Question: " + row.at("goal").string() + "\nAnswer:",
                        {row.at("sol1").string(), row.at("sol2").string()},
                        static_cast<size_t>(gold));
}

/// The file of a split; its labels, one in each line, are published apart.
static std::vector<Document> readSplit(const DataFolder &folder,
                                       const std::string &split) {
  const std::string base = "piqa/" + split;
  const Records rows(firstFile(
      folder,
      {base + ".jsonl", split == "valid" ? "piqa.jsonl" : "piqa_train.jsonl"},
      "piqa"));
  const std::optional<DataFile> labels = folder.read(base + "-labels.lst");
  std::istringstream numbers(labels ? labels->bytes : "");
  return documentsOf(rows, [&](const JsonValue &row) {
    if (row.find("query"))
      return readQuery(row);
    if (const std::optional<JsonValue> label = row.find("label"))
      return readGoal(row, integerOf(*label, 0, 1));
    int64_t gold = -1;
    numbers >> gold;
    if (gold != 0 && gold != 1)
      throw Error(part::file(folder.path() + "/" + base + "-labels.lst") +
                  " has no label 0 or 1 for " + row.what().line());
    return readGoal(row, gold);
  });
}

TaskFamily qwen::tasks::makePiqa() {
  Task task = {"piqa", "piqa"};
  task.metrics = {&metric::acc, &metric::acc_norm};
  task.examples = Examples::RandomOthers;
  task.read = [](const DataFolder &folder, bool examples) {
    TaskData data = {readSplit(folder, "valid")};
    if (examples)
      data.pool = readSplit(folder, "train");
    return data;
  };
  return {{task}};
}
