//===- Mmlu.cpp - MMLU: questions of 57 subjects --------------------------===//
//
// Hendrycks et al., "Measuring Massive Multitask Language Understanding", 2021.
//
//===----------------------------------------------------------------------===//

#include "tasks/Subjects.h"

using namespace qwen;
using namespace qwen::tasks;

static std::shared_ptr<const Exam> mmluExam() {
  Exam exam = {"mmlu", 1, {&metric::acc}, "Answer:"};
  exam.columns = {"question", "A", "B", "C", "D", "answer"};
  exam.question = "question";
  exam.answer = "answer";
  exam.files = [](const std::string &subject) -> std::vector<std::string> {
    return {"mmlu/test/" + subject + "_test.csv",
            "data/test/" + subject + "_test.csv",
            "mmlu/" + subject + "/test.jsonl"};
  };
  exam.examples = [](const std::string &subject) -> std::vector<std::string> {
    return {"mmlu/dev/" + subject + "_dev.csv",
            "data/dev/" + subject + "_dev.csv",
            "mmlu/" + subject + "/dev.jsonl"};
  };
  return std::make_shared<const Exam>(std::move(exam));
}

TaskFamily qwen::tasks::makeMmlu() {
  const auto exam = mmluExam();
  TaskFamily family;
  std::vector<TaskGroup> parts;
  for (const char *part : {"stem", "other", "social_sciences", "humanities"})
    parts.push_back({std::string("mmlu_") + part,
                     replaceAll(part, "_", " "),
                     2,
                     {},
                     {},
                     exam->metrics});
  TaskGroup whole = {"mmlu", "mmlu", 2, {}, {}, exam->metrics};
  const auto add = [&](const std::string &subject, const std::string &part) {
    Task task = subjectTask(
        exam, subject,
        "The following are multiple choice questions (with answers) about " +
            replaceAll(subject, "_", " ") + ".\n\n");
    task.alias = subject;
    for (TaskGroup &group : parts)
      if (group.name == "mmlu_" + part) {
        group.tasks.push_back(task.name);
        group.parts.push_back(task.name);
      }
    whole.tasks.push_back(task.name);
    family.tasks.push_back(std::move(task));
  };
#define QWEN_SUBJECT(Subject, Group) add(#Subject, #Group);
#include "tasks/MmluSubjects.def"
  for (const TaskGroup &group : parts)
    whole.parts.push_back(group.name);
  family.groups = std::move(parts);
  family.groups.push_back(std::move(whole));
  return family;
}
