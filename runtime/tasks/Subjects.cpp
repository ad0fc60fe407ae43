//===- Subjects.cpp - Exams with a task for each subject ------------------===//

#include "tasks/Subjects.h"

using namespace qwen;
using namespace qwen::tasks;

/// The choices of a question.
static const std::vector<std::string> &letters() {
  static const std::vector<std::string> all = {"A", "B", "C", "D"};
  return all;
}

/// A row has the question and the choices under their letters, or on Hugging
/// Face a list "choices"; its answer is a letter, or there an index.
static Document readQuestion(const Exam &exam, const JsonValue &row) {
  std::string context(strip(row.at(exam.question.c_str()).string()));
  const std::optional<JsonValue> list = row.find("choices");
  const std::vector<JsonValue> choices =
      list ? list->elements() : std::vector<JsonValue>();
  if (list && choices.size() != letters().size())
    list->fail("a list of 4 choices");
  for (size_t i = 0; i < letters().size(); ++i)
    context += "\n" + letters()[i] + ". " +
               (list ? choices[i] : row.at(letters()[i].c_str())).string();
  const JsonValue answer = row.at(exam.answer.c_str());
  const bool isLetter = answer.isOfKind("") && answer.string().size() == 1 &&
                        answer.string()[0] >= 'A' && answer.string()[0] <= 'D';
  if (answer.isOfKind("") && !isLetter)
    answer.fail("a letter from A to D");
  const auto gold = static_cast<size_t>(isLetter ? answer.string()[0] - 'A'
                                                 : answer.integer(0, 3));
  return multipleChoice(context + "\n" + exam.answerMark, letters(), gold);
}

Task qwen::tasks::subjectTask(const std::shared_ptr<const Exam> &exam,
                              const std::string &subject,
                              const std::string &description) {
  Task task = {exam->name + "_" + subject, exam->name + "_" + subject,
               exam->version};
  task.metrics = exam->metrics;
  task.examples = Examples::First;
  task.description = description;
  task.read = [exam, subject, name = task.name](const DataFolder &folder,
                                                bool examples) {
    const auto read = [&](const std::vector<std::string> &files) {
      return documentsOf(
          Records(firstFile(folder, files, name), exam->columns),
          [&](const JsonValue &row) { return readQuestion(*exam, row); });
    };
    TaskData data = {read(exam->files(subject))};
    if (examples)
      data.pool = read(exam->examples(subject));
    return data;
  };
  return task;
}

TaskFamily qwen::tasks::examFamily(const std::shared_ptr<const Exam> &exam,
                                   const std::string &before,
                                   const std::string &after,
                                   const std::vector<Subject> &subjects,
                                   const std::string &shortName) {
  TaskFamily family;
  TaskGroup whole = {exam->name, exam->name, exam->version,
                     {},         {},         exam->metrics};
  for (const Subject &subject : subjects) {
    std::string description = before;
    description.append(subject.description).append(after);
    family.tasks.push_back(subjectTask(exam, subject.name, description));
    whole.tasks.push_back(family.tasks.back().name);
  }
  whole.parts = whole.tasks;
  family.groups.push_back(std::move(whole));
  if (!shortName.empty())
    family.shortNames.push_back({shortName, {exam->name}});
  return family;
}
