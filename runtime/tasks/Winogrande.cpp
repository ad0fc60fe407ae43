//===- Winogrande.cpp - WinoGrande: which name fits the gap ---------------===//
//
// Sakaguchi et al., "WinoGrande: An Adversarial Winograd Schema Challenge at
// Scale", 2019.
//
//===----------------------------------------------------------------------===//

#include "tasks/TaskText.h"

using namespace qwen;
using namespace qwen::tasks;

/// {"sentence": "... _ ...", "option1", "option2", "answer": "1" or "2"}. The
/// options end two contexts; the rest of the sentence continues both.
static Document readSentence(const JsonValue &row) {
  const JsonValue value = row.at("sentence");
  const std::string &sentence = value.string();
  const size_t gap = sentence.find('_');
  if (gap == std::string::npos)
    value.fail("a sentence with the gap \"_\"");
  const std::string begin = sentence.substr(0, gap);
  const std::string rest =
      kDelimiter +
      std::string(strip(std::string_view(sentence).substr(gap + 1)));
  Document document;
  document.choices = {row.at("option1").string(), row.at("option2").string()};
  document.gold = static_cast<size_t>(integerOf(row.at("answer"), 1, 2) - 1);
  for (const std::string &option : document.choices)
    document.queries.push_back({begin + option, rest});
  document.example =
      begin + document.choices[document.gold] + rest + kExampleEnd;
  return document;
}

TaskFamily qwen::tasks::makeWinogrande() {
  Task task = {"winogrande", "winogrande"};
  task.metrics = {&metric::acc};
  task.examples = Examples::RandomOthers;
  task.read = [](const DataFolder &folder, bool examples) {
    const auto read = [&](const std::string &published,
                          const std::string &split) {
      return documentsOf(
          Records(firstFile(folder,
                            {"winogrande_1.1/" + published + ".jsonl",
                             "winogrande/" + split + ".jsonl"},
                            "winogrande")),
          readSentence);
    };
    TaskData data = {read("dev", "validation")};
    if (examples)
      data.pool = read("train_xl", "train");
    return data;
  };
  return {{task}};
}
