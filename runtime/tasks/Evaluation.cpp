//===- Evaluation.cpp - Tasks from their data to their results ------------===//

#include "tasks/Evaluation.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace qwen;
using namespace qwen::tasks;
using nlohmann::ordered_json;

Evaluation::Evaluation(const TaskTable::Chosen &chosen,
                       const DataFolder &folder,
                       const EvaluationOptions &options)
    : options(options), groups(chosen.groups) {
  for (const Task *task : chosen.tasks) {
    const bool drawsExamples =
        options.examples > 0 && task->examples != Examples::None;
    EvaluatedTask &next = evaluated.emplace_back(
        EvaluatedTask{task, task->read(folder, drawsExamples), 0, {}});
    next.original = next.data.documents.size();
    if (next.original == 0)
      throw Error(part::subject(task->name) + " has no document");
    const size_t most =
        options.limit ? static_cast<size_t>(*options.limit) : next.original;
    next.data.documents.resize(std::min(most, next.original));
    next.scores.resize(next.data.documents.size());
    total += next.scores.size();
    if (!next.data.note.empty())
      differences.push_back(task->name + ": " + next.data.note);
  }
}

std::optional<RequestStream::Item> RequestStream::next() {
  const std::vector<EvaluatedTask> &tasks = evaluation.tasks();
  for (; id.task < tasks.size(); ++id.task, id.document = 0, examples.reset()) {
    const EvaluatedTask &task = tasks[id.task];
    if (!examples)
      examples.emplace(*task.task, task.data, evaluation.examples());
    while (id.document < task.data.documents.size()) {
      const DocumentId present = id;
      const Document &document = task.data.documents[id.document++];
      // Examples are drawn for each document, so that a run that goes on draws
      // the same.
      const std::string before = examples->next(document);
      if (evaluation.hasScores(present))
        continue;
      try {
        return Item{present, maker.requests(*task.task, document, before)};
      } catch (const Error &error) {
        throw Error(task.task->name + " document " +
                    std::to_string(present.document) + ": " + error.what());
      }
    }
  }
  return std::nullopt;
}

void Evaluation::setScores(const DocumentId &id,
                           std::vector<Likelihood> scores) {
  evaluated[id.task].scores[id.document] = std::move(scores);
}

bool Evaluation::hasScores(const DocumentId &id) const {
  return !evaluated[id.task].scores[id.document].empty();
}

ordered_json Evaluation::metricsOf(const DocumentId &id) const {
  const EvaluatedTask &task = evaluated[id.task];
  ordered_json result;
  for (const Metric *metric : task.task->metrics)
    result[metric->name] = metric
                               ->ofDocument(task.data.documents[id.document],
                                            task.scores[id.document])
                               .value;
  return result;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

/// lm-eval's keys have the name of a filter; the tasks have none.
static std::string keyOf(const std::string &metric) { return metric + ",none"; }
static std::string errorKeyOf(const std::string &metric) {
  return metric + "_stderr,none";
}

static ordered_json orUnknown(const std::optional<double> &value) {
  return value ? ordered_json(*value) : ordered_json("N/A");
}

ordered_json Evaluation::resultsOf(const EvaluatedTask &task) const {
  ordered_json result = {{"name", task.task->name},
                         {"alias", task.task->alias},
                         {"sample_len", task.scores.size()}};
  for (const Metric *metric : task.task->metrics) {
    std::vector<Score> scores;
    scores.reserve(task.scores.size());
    for (size_t i = 0; i < task.scores.size(); ++i)
      scores.push_back(
          metric->ofDocument(task.data.documents[i], task.scores[i]));
    result[keyOf(metric->name)] = metric->aggregate(scores);
    result[errorKeyOf(metric->name)] = orUnknown(metric->error(scores));
  }
  return result;
}

/// The mean of tasks by their numbers of documents, and its standard error from
/// the pooled variance of the documents.
ordered_json Evaluation::resultsOf(const TaskGroup &group,
                                   const ordered_json &ofTasks) const {
  ordered_json result = {{"alias", group.alias}, {"name", group.name}};
  double size = 0;
  for (const std::string &task : group.tasks)
    size += ofTasks[task]["sample_len"].get<double>();
  result["sample_len"] = static_cast<uint64_t>(size);
  ordered_json counts;
  for (const Metric *metric : group.metrics) {
    double sum = 0;
    std::optional<double> squares = 0;
    for (const std::string &name : group.tasks) {
      const ordered_json &task = ofTasks[name];
      const double documents = task["sample_len"].get<double>();
      const ordered_json &error = task[errorKeyOf(metric->name)];
      sum += task[keyOf(metric->name)].get<double>() * documents;
      if (!error.is_number())
        squares.reset();
      else if (squares)
        *squares +=
            (documents - 1) * std::pow(error.get<double>(), 2) * documents;
    }
    result[keyOf(metric->name)] = sum / size;
    const double freedom = size - static_cast<double>(group.tasks.size());
    result[errorKeyOf(metric->name)] =
        orUnknown(squares ? std::optional(std::sqrt(*squares / freedom / size))
                          : std::nullopt);
    counts[keyOf(metric->name)] = static_cast<uint64_t>(size);
  }
  result["sample_count"] = counts;
  return result;
}

ordered_json Evaluation::results() const {
  ordered_json ofTasks, ofGroups, parts = ordered_json::object(), configs,
                                  versions, shots, samples;
  std::map<std::string, ordered_json> higher;
  const auto describe = [&](const std::string &name, double version,
                            std::span<const Metric *const> metrics) {
    versions[name] = version;
    for (const Metric *metric : metrics)
      higher[name][metric->name] = metric->higherIsBetter;
  };
  for (const EvaluatedTask &task : evaluated) {
    const std::string &name = task.task->name;
    const int64_t count =
        task.task->examples == Examples::None ? 0 : options.examples;
    ofTasks[name] = resultsOf(task);
    describe(name, task.task->version, task.task->metrics);
    configs[name] = {{"task", name},
                     {"num_fewshot", count},
                     {"metadata", {{"version", task.task->version}}}};
    shots[name] = count;
    samples[name] = {{"original", task.original},
                     {"effective", task.scores.size()}};
  }
  ordered_json all = ofTasks;
  for (const TaskGroup *group : groups) {
    ofGroups[group->name] = resultsOf(*group, ofTasks);
    all[group->name] = ofGroups[group->name];
    parts[group->name] = group->parts;
    // lm-eval counts the examples of a group by its own tasks, so mmlu, whose
    // parts are groups, has no count.
    if (ofTasks.contains(group->parts.front()))
      shots[group->name] = options.examples;
    describe(group->name, group->version, group->metrics);
  }
  ordered_json result = {{"results", all}};
  if (!groups.empty())
    result["groups"] = ofGroups;
  result["group_subtasks"] = parts;
  result["configs"] = configs;
  result["versions"] = versions;
  result["n-shot"] = shots;
  result["higher_is_better"] = higher;
  result["n-samples"] = samples;
  return result;
}

/// "0.3714", or the text of a value that is unknown.
static std::string figure(const ordered_json &value) {
  if (!value.is_number())
    return value.get<std::string>();
  char text[32];
  snprintf(text, sizeof(text), "%.4f", value.get<double>());
  return text;
}

std::string Evaluation::resultsJson() const { return results().dump(); }

std::string Evaluation::resultsTable() const {
  const ordered_json all = results();
  std::vector<std::array<std::string, 6>> rows = {
      {"task", "examples", "documents", "metric", "value", "error"}};
  for (const auto &[name, result] : all["results"].items()) {
    const ordered_json &shots = all["n-shot"];
    for (const auto &[metric, isHigher] : all["higher_is_better"][name].items())
      rows.push_back({name, shots.contains(name) ? shots[name].dump() : "",
                      result["sample_len"].dump(), metric,
                      figure(result[keyOf(metric)]),
                      figure(result[errorKeyOf(metric)])});
  }
  std::array<size_t, 6> widths = {};
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      // Numbers stand at the right of their column.
      const std::string space(widths[i] - row[i].size(), ' ');
      const bool isText = i == 0 || i == 3;
      text += isText ? row[i] + space : space + row[i];
      text += i + 1 < row.size() ? "  " : "\n";
    }
  return text;
}
