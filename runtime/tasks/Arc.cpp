//===- Arc.cpp - ARC: questions of science for schools --------------------===//
//
// Clark et al., "Think you have Solved Question Answering? Try ARC", 2018.
//
//===----------------------------------------------------------------------===//

#include "tasks/TaskText.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::tasks;

/// {"question": {"stem", "choices": [{"text", "label"}]}, "answerKey"} as
/// published, {"question", "choices": {"text": [], "label": []}, "answerKey"}
/// on Hugging Face, or {"query": "Question: ...", "choices": [], "gold"}.
static Document readQuestion(const JsonValue &row) {
  std::vector<std::string> texts, labels;
  if (const std::optional<JsonValue> query = row.find("query")) {
    for (const JsonValue &choice : row.at("choices").elements())
      texts.push_back(choice.string());
    const int64_t gold = integerOf(row.at("gold"), 0, std::ssize(texts) - 1);
    return multipleChoice(query->string() + "\nAnswer:", std::move(texts),
                          static_cast<size_t>(gold));
  }
  const JsonValue question = row.at("question");
  const bool isPublished = question.isObject();
  const JsonValue choices = (isPublished ? question : row).at("choices");
  if (choices.isObject()) {
    for (const JsonValue &text : choices.at("text").elements())
      texts.push_back(text.string());
    for (const JsonValue &label : choices.at("label").elements())
      labels.push_back(label.string());
  } else {
    for (const JsonValue &choice : choices.elements()) {
      texts.push_back(choice.at("text").string());
      labels.push_back(choice.at("label").string());
    }
  }
  const JsonValue key = row.at("answerKey");
  const auto gold = static_cast<size_t>(
      std::ranges::find(labels, key.string()) - labels.begin());
  if (gold >= texts.size())
    key.fail("the label of a choice");
  const JsonValue stem = isPublished ? question.at("stem") : question;
  return multipleChoice(
      "Question: " + stem.string() + "\nAnswer:", std::move(texts), gold);
}

static Task makeTask(const std::string &name, const std::string &folder) {
  Task task = {name, name};
  task.metrics = {&metric::acc, &metric::acc_norm};
  task.read = [name, folder](const DataFolder &data, bool examples) {
    const auto read = [&](const std::string &split, const std::string &file,
                          const std::string &asked) {
      return documentsOf(
          Records(firstFile(data,
                            {file, name + "/" + split + ".jsonl",
                             folder + "/" + folder + "-" + asked + ".jsonl"},
                            name)),
          readQuestion);
    };
    TaskData result = {read("test", name + ".jsonl", "Test")};
    if (examples)
      result.pool = read("train", name + "_train.jsonl", "Train");
    return result;
  };
  return task;
}

TaskFamily qwen::tasks::makeArc() {
  return {{makeTask("arc_easy", "ARC-Easy"),
           makeTask("arc_challenge", "ARC-Challenge")},
          {},
          {{"arc", {"arc_easy", "arc_challenge"}},
           {"ai2_arc", {"arc_easy", "arc_challenge"}}}};
}
