//===- Lambada.cpp - LAMBADA: the last word of a text ---------------------===//
//
// Paperno et al., "The LAMBADA dataset: Word prediction requiring a broad
// discourse context", 2016, in the version of OpenAI.
//
//===----------------------------------------------------------------------===//

#include "tasks/TaskText.h"

using namespace qwen;
using namespace qwen::tasks;

/// {"text"}, or {"context", "continuation"}, which make a text.
static Document readText(const JsonValue &row) {
  const std::optional<JsonValue> whole = row.find("text");
  const std::string text = whole ? whole->string()
                                 : row.at("context").string() + " " +
                                       row.at("continuation").string();
  const size_t space = text.rfind(' ');
  const std::string context =
      space == std::string::npos ? "" : text.substr(0, space);
  const std::string last =
      " " + (space == std::string::npos ? text : text.substr(space + 1));
  // The example has the delimiter before a target that begins with a space.
  return {
      {{context, last}}, {last}, 0, context + kDelimiter + last + kExampleEnd};
}

TaskFamily qwen::tasks::makeLambada() {
  Task task = {"lambada_openai", "lambada_openai"};
  task.metrics = {&metric::perplexity, &metric::acc_greedy};
  task.read = [](const DataFolder &folder, bool examples) {
    TaskData data = {documentsOf(
        Records(firstFile(folder,
                          {"lambada_openai.jsonl", "lambada_openai/test.jsonl",
                           "lambada_test_en.jsonl"},
                          "lambada_openai")),
        readText)};
    if (examples)
      data.pool = data.documents;
    return data;
  };
  return {{task}, {}, {{"lambada", {"lambada_openai"}}}};
}
