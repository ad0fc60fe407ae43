//===- Evaluation.h - Tasks from their data to their results ----*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_EVALUATION_H
#define QWEN_RUNTIME_TASKS_EVALUATION_H

#include "tasks/Requests.h"
#include "tasks/Task.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace qwen::tasks {

/// What is evaluated, of the tasks that are chosen.
struct EvaluationOptions {
  /// Number of examples in a context.
  int64_t examples = 0;
  /// Number of first documents of each task; nothing: all.
  std::optional<int64_t> limit;
};

/// A task with its documents and their scores.
struct EvaluatedTask {
  const Task *task;
  TaskData data;
  /// Number of documents of the data. The first ones are evaluated.
  size_t original;
  /// Empty for a document that is not scored yet.
  std::vector<std::vector<Likelihood>> scores;
};

/// A document of one of the tasks.
struct DocumentId {
  size_t task, document;
};

/// Collects the scores of all documents and computes the results.
class Evaluation {
public:
  /// Reads the data. Throws Error.
  Evaluation(const TaskTable::Chosen &chosen, const DataFolder &folder,
             const EvaluationOptions &options);

  /// How the data differs from the published one, a line each.
  const std::vector<std::string> &notes() const { return differences; }
  const std::vector<EvaluatedTask> &tasks() const { return evaluated; }
  size_t documents() const { return total; }
  int64_t examples() const { return options.examples; }

  /// Sets the scores of a document.
  void setScores(const DocumentId &id, std::vector<Likelihood> scores);
  bool hasScores(const DocumentId &id) const;
  /// The values of the metrics of a document that has scores.
  nlohmann::ordered_json metricsOf(const DocumentId &id) const;

  /// The results as JSON in the layout of lm-eval. All documents have scores.
  std::string resultsJson() const;
  /// The results as a table.
  std::string resultsTable() const;

private:
  nlohmann::ordered_json results() const;
  nlohmann::ordered_json resultsOf(const EvaluatedTask &task) const;
  nlohmann::ordered_json resultsOf(const TaskGroup &group,
                                   const nlohmann::ordered_json &ofTasks) const;

  EvaluationOptions options;
  std::vector<EvaluatedTask> evaluated;
  std::vector<const TaskGroup *> groups;
  std::vector<std::string> differences;
  size_t total = 0;
};

/// The documents of an evaluation that have no scores, in order.
class RequestStream {
public:
  /// Both must outlive the stream.
  RequestStream(const Evaluation &evaluation, const RequestMaker &maker)
      : evaluation(evaluation), maker(maker) {}

  struct Item {
    DocumentId id;
    std::vector<ScoreRequest> requests;
  };
  /// The next document, or nothing after the last. Throws Error, which names
  /// the document.
  std::optional<Item> next();

private:
  const Evaluation &evaluation;
  const RequestMaker &maker;
  DocumentId id = {0, 0};
  /// The examples of the present task.
  std::optional<ExampleChooser> examples;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_EVALUATION_H
