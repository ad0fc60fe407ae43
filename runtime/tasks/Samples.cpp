//===- Samples.cpp - The scores of documents in a file --------------------===//

#include "tasks/Samples.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/FileLines.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Support/Text.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::tasks;
using nlohmann::json;
using nlohmann::ordered_json;

/// The first line of a file.
static std::string headerOf(const std::string &run) {
  return R"({"run":)" + run + "}";
}

SamplesFile::SamplesFile(const std::string &filePath, const std::string &run,
                         Evaluation &evaluation)
    : target(filePath),
      file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file < 0)
    throw Error("cannot write " + path + ": " + strerror(errno));
  const uint64_t end = read(run, evaluation);
  if (ftruncate(file, static_cast<off_t>(end)) != 0 ||
      lseek(file, 0, SEEK_END) < 0)
    throw Error("cannot write " + path + ": " + strerror(errno));
  if (end == 0)
    append(headerOf(run));
}

SamplesFile::~SamplesFile() { close(file); }

void SamplesFile::append(const std::string &line) {
  const std::string text = line + "\n";
  if (const int error = writeAll(file, text.data(), text.size()))
    throw Error("cannot write " + path + ": " + strerror(error));
}

/// The scores of a document's line. Checks that they are one for each of
/// `count` requests, unless it is 0.
static std::vector<Likelihood> readScores(const JsonValue &line, size_t count) {
  std::vector<Likelihood> scores;
  const JsonValue requests = line.at("requests");
  for (const JsonValue &request : requests.elements()) {
    const JsonValue sum = request.at("loglikelihood");
    if (sum.isNull())
      return {};
    constexpr double kMost = std::numeric_limits<double>::max();
    scores.push_back(
        {sum.number(-kMost, 0), request.at("is_greedy").boolean()});
  }
  if (scores.empty() || (count && scores.size() != count))
    requests.fail(std::to_string(count) + " requests");
  return scores;
}

uint64_t SamplesFile::read(const std::string &run, Evaluation &evaluation) {
  FileLines lines(path, SIZE_MAX);
  uint64_t end = 0;
  while (const std::optional<FileLine> line = lines.next()) {
    if (!line->isWhole) {
      // Else it is a file of something else, which must not be cut.
      if (line->number == 1 && !headerOf(run).starts_with(line->text))
        throw Error(part::file(path) + " begins with " +
                    part::found(quote(line->text)) + " when " +
                    part::needed(headerOf(run)) +
                    " is needed; choose another file");
      break;
    }
    end = line->begin + line->text.size() + 1;
    const std::string where = path + " line " + std::to_string(line->number);
    const json value = parseJsonObject<json>(line->text, part::file(where));
    const JsonSource source = JsonSource::ofFile(where);
    const JsonValue document(value, source);
    if (line->number == 1) {
      if (!document.at("run").is(json::parse(run)))
        throw Error(part::file(path) + " has the documents of another run, " +
                    part::found(value["run"].dump()) + " when this one is " +
                    part::needed(run) + "; choose another file");
      continue;
    }
    const std::string &name = document.at("task").string();
    const int64_t index = document.at("doc_id").integer(0, INT32_MAX);
    const std::vector<EvaluatedTask> &tasks = evaluation.tasks();
    for (size_t i = 0; i < tasks.size(); ++i)
      if (tasks[i].task->name == name && index < std::ssize(tasks[i].scores)) {
        const auto at = static_cast<size_t>(index);
        const size_t count = tasks[i].task->isRolling
                                 ? 0
                                 : tasks[i].data.documents[at].queries.size();
        evaluation.setScores({i, at}, readScores(document, count));
      }
  }
  return end;
}

void SamplesFile::add(const Evaluation &evaluation, const DocumentId &id,
                      std::span<const ScoreRequest> requests,
                      std::span<const Likelihood> scores) {
  ordered_json line = {{"task", evaluation.tasks()[id.task].task->name},
                       {"doc_id", id.document},
                       {"requests", ordered_json::array()}};
  for (size_t i = 0; i < requests.size(); ++i) {
    ordered_json request = {{"context", requests[i].context},
                            {"continuation", requests[i].continuation},
                            {"loglikelihood", nullptr},
                            {"is_greedy", nullptr}};
    if (!scores.empty()) {
      request["loglikelihood"] = scores[i].sum;
      request["is_greedy"] = scores[i].isGreedy;
    }
    line["requests"].push_back(std::move(request));
  }
  if (!scores.empty())
    line.update(evaluation.metricsOf(id));
  append(line.dump());
}
