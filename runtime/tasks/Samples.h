//===- Samples.h - The scores of documents in a file ------------*- C++ -*-===//
//
// A file of JSON lines. The first says what was evaluated; each of the others
// is a document:
//
//   {"run": {"model": "qwen2", "num_fewshot": 0, ...}}
//   {"task": "piqa", "doc_id": 3,
//    "requests": [{"context": [1, 2], "continuation": [3],
//                  "loglikelihood": -1.5, "is_greedy": false}, ...],
//    "acc": 1.0, "acc_norm": 0.0}
//
// A run that was cut off goes on from it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TASKS_SAMPLES_H
#define QWEN_RUNTIME_TASKS_SAMPLES_H

#include "tasks/Evaluation.h"

#include "qwen/Support/OutputTarget.h"

#include <cstdint>
#include <span>
#include <string>

namespace qwen::tasks {

class SamplesFile {
public:
  /// Opens `path` or makes it, and takes the scores that it has for documents
  /// of `evaluation`. A last line that was cut off is removed. Throws Error,
  /// which names the file and the line, for other content, or if the file is of
  /// another `run`, a JSON object.
  SamplesFile(const std::string &path, const std::string &run,
              Evaluation &evaluation);
  ~SamplesFile();
  SamplesFile(const SamplesFile &) = delete;
  SamplesFile &operator=(const SamplesFile &) = delete;

  /// Appends a document. Without `scores`, its requests only. Throws Error.
  void add(const Evaluation &evaluation, const DocumentId &id,
           std::span<const ScoreRequest> requests,
           std::span<const Likelihood> scores);

private:
  /// Takes the scores of all whole lines. Returns the offset behind them.
  uint64_t read(const std::string &run, Evaluation &evaluation);
  void append(const std::string &line);

  const OutputTarget target;
  const std::string &path = target.path();
  int file;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_SAMPLES_H
