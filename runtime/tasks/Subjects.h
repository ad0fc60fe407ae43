//===- Subjects.h - Exams with a task for each subject ----------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_SUBJECTS_H
#define QWEN_RUNTIME_TASKS_SUBJECTS_H

#include "tasks/TaskText.h"

#include <memory>

namespace qwen::tasks {

/// What the subjects of an exam share: questions with the choices A to D.
struct Exam {
  /// "mmlu", as in "mmlu_SUBJECT".
  std::string name;
  double version;
  std::vector<const Metric *> metrics;
  /// Ends a question: "Answer:".
  std::string answerMark;
  /// Names of the columns of a file without a header.
  std::vector<std::string> columns = {};
  /// The names of the columns with the question and with the right answer.
  std::string question = {}, answer = {};
  /// The files of the questions and of the examples of a subject.
  std::function<std::vector<std::string>(const std::string &subject)>
      files = {},
      examples = {};
};

/// The task of a subject, with the description that begins its contexts.
Task subjectTask(const std::shared_ptr<const Exam> &exam,
                 const std::string &subject, const std::string &description);

/// A subject and its name in descriptions.
struct Subject {
  std::string name, description;
};

/// An exam whose descriptions are `before`, a subject's description and
/// `after`. `shortName` also names it, unless it is empty.
TaskFamily examFamily(const std::shared_ptr<const Exam> &exam,
                      const std::string &before, const std::string &after,
                      const std::vector<Subject> &subjects,
                      const std::string &shortName);

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_SUBJECTS_H
