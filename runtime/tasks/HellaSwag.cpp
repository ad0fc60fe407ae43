//===- HellaSwag.cpp - HellaSwag: which sentence comes next ---------------===//
//
// Zellers et al., "HellaSwag: Can a Machine Really Finish Your Sentence?",
// 2019.
//
//===----------------------------------------------------------------------===//

#include "tasks/TaskText.h"

#include <sstream>

using namespace qwen;
using namespace qwen::tasks;

/// A text without the marks of WikiHow's articles.
static std::string cleaned(std::string_view text) {
  const std::string sentences = replaceAll(strip(text), " [title]", ". ");
  // Deletes each \[.*?\], which lies in one line.
  std::string result;
  size_t begin = 0;
  while (begin < sentences.size()) {
    const size_t end = sentences[begin] == '['
                           ? sentences.find_first_of("]\n", begin)
                           : std::string::npos;
    if (end != std::string::npos && sentences[end] == ']')
      begin = end + 1;
    else
      result += sentences[begin++];
  }
  return replaceAll(result, "  ", " ");
}

static Document readContext(const JsonValue &row) {
  std::vector<std::string> endings;
  for (const JsonValue &ending : row.at("endings").elements())
    endings.push_back(cleaned(ending.string()));
  const int64_t gold = integerOf(row.at("label"), 0, std::ssize(endings) - 1);
  return multipleChoice(cleaned(row.at("activity_label").string() + ": " +
                                row.at("ctx_a").string() + " " +
                                capitalize(row.at("ctx_b").string())),
                        std::move(endings), static_cast<size_t>(gold));
}

/// Six lines a document: the context, the index of the right ending, and four
/// endings.
static std::vector<Document> readLines(const DataFile &file) {
  std::istringstream lines(file.bytes);
  std::vector<Document> documents;
  size_t number = 0;
  for (std::string context; std::getline(lines, context);) {
    std::string label;
    std::vector<std::string> endings(4);
    std::getline(lines, label);
    for (std::string &ending : endings)
      std::getline(lines, ending);
    if (!lines || label.size() != 1 || label[0] < '0' || label[0] > '3')
      throw Error(part::file(file.where) + " line " +
                  std::to_string(number + 1) +
                  ": six lines with a context, an index from 0 to 3 and four "
                  "endings are needed");
    number += 6;
    documents.push_back(multipleChoice(context, std::move(endings),
                                       static_cast<size_t>(label[0] - '0')));
  }
  return documents;
}

static TaskData readHellaSwag(const DataFolder &folder, bool examples) {
  const char *const name = "hellaswag";
  TaskData data;
  const std::string joined = "hellaswag_val_full.txt";
  const DataFile file = firstFile(
      folder, {"hellaswag_val.jsonl", "hellaswag/validation.jsonl", joined},
      name);
  if (file.where.find(joined) == std::string::npos) {
    data.documents = documentsOf(Records(file), readContext);
  } else {
    data.documents = readLines(file);
    data.note = file.where +
                " has the contexts joined: they are used as they are, and "
                "results differ from those of the published data";
  }
  if (examples)
    data.pool = documentsOf(
        Records(firstFile(
            folder, {"hellaswag_train.jsonl", "hellaswag/train.jsonl"}, name)),
        readContext);
  return data;
}

TaskFamily qwen::tasks::makeHellaSwag() {
  Task task = {"hellaswag", "hellaswag"};
  task.metrics = {&metric::acc, &metric::acc_norm};
  task.examples = Examples::RandomOthers;
  task.read = readHellaSwag;
  return {{task}};
}
