//===- Task.h - What tasks are ----------------------------------*- C++ -*-===//
//
// Tasks measure the accuracy of models, with the requests and the metrics of
// EleutherAI's lm-evaluation-harness 0.4.13 ("lm-eval"). Strings are built as
// its task configs and Python build them; lengths of texts are in characters
// (code points).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TASKS_TASK_H
#define QWEN_RUNTIME_TASKS_TASK_H

#include "tasks/DataFolder.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen::tasks {

/// A question to the model: how likely is `continuation` after `context`?
struct Query {
  std::string context, continuation;
};

/// One item of a task.
struct Document {
  /// One for each choice. Contexts lack the description and the examples.
  std::vector<Query> queries;
  /// The choices without a delimiter, and the index of the right one.
  std::vector<std::string> choices = {};
  size_t gold = 0;
  /// The document as an example in the context of others.
  std::string example = {};
  /// Rolling tasks: the number of words and bytes that the perplexity is of.
  uint64_t words = 0, bytes = 0;
};

/// The score of a continuation.
struct Likelihood {
  /// Sum of the log-probabilities of its tokens, and whether each of them is
  /// the most likely one.
  double sum = 0;
  bool isGreedy = true;
};

/// The value of a metric for a document, which counts `weight` times.
struct Score {
  double value;
  double weight = 1;
};

/// A measure of a task.
struct Metric {
  const char *name;
  bool higherIsBetter;
  Score (*ofDocument)(const Document &document,
                      std::span<const Likelihood> likelihoods);
  double (*aggregate)(std::span<const Score> scores);
  /// The standard error, or nothing if it is unknown.
  std::optional<double> (*error)(std::span<const Score> scores);
};

// Each row of Metrics.def as "metric::acc".
namespace metric {
#define QWEN_METRIC(Id, ...) extern const Metric Id;
#include "tasks/Metrics.def"
} // namespace metric

/// How the examples of a document are chosen.
enum class Examples {
  /// At random, the same with each run.
  Random,
  /// At random, without the document itself.
  RandomOthers,
  /// The first ones.
  First,
  /// None, whatever the number of examples is.
  None,
};

/// The documents of a task.
struct TaskData {
  std::vector<Document> documents;
  /// Where examples are drawn from.
  std::vector<Document> pool = {};
  /// How the data differs from the published one, or "".
  std::string note = {};
};

struct Task {
  std::string name;
  /// The name in tables.
  std::string alias;
  double version = 1;
  std::vector<const Metric *> metrics = {};
  Examples examples = Examples::Random;
  /// Begins each context.
  std::string description = {};
  /// Whether windows over a whole text are scored (a context has no meaning).
  bool isRolling = false;
  /// Reads the documents and, if `examples` are needed, those to draw from.
  /// Throws Error.
  std::function<TaskData(const DataFolder &folder, bool examples)> read = {};
};

/// Tasks whose mean, weighted by their sizes, is a result of its own.
struct TaskGroup {
  std::string name, alias;
  double version = 1;
  std::vector<std::string> tasks;
  /// What lm-eval lists as its parts: groups or tasks.
  std::vector<std::string> parts;
  std::vector<const Metric *> metrics = {};
};

/// A short name of tasks or groups.
struct ShortName {
  std::string name;
  std::vector<std::string> names;
};

/// Tasks of one kind.
struct TaskFamily {
  std::vector<Task> tasks;
  std::vector<TaskGroup> groups = {};
  std::vector<ShortName> shortNames = {};
};

// The function of each row of Tasks.def.
#define QWEN_TASKS(Name) TaskFamily make##Name();
#include "tasks/Tasks.def"

/// All tasks and groups by name.
class TaskTable {
public:
  TaskTable();

  /// The tasks and groups that `names` ask for, each once, in order. Throws
  /// Error, which lists the names, if one is unknown.
  struct Chosen {
    std::vector<const Task *> tasks;
    std::vector<const TaskGroup *> groups;
  };
  Chosen choose(std::span<const std::string> names) const;
  /// The names of groups and of tasks without a group, for help.
  std::vector<std::string> names() const;

private:
  void add(Chosen &chosen, const std::string &name) const;

  std::vector<TaskFamily> families;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_TASK_H
