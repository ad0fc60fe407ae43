//===- Requests.h - What a model is asked in a task -------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_REQUESTS_H
#define QWEN_RUNTIME_TASKS_REQUESTS_H

#include "tasks/PythonRandom.h"
#include "tasks/Task.h"
#include "text/Tokenizer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen::tasks {

/// Tokens to score after tokens that are not scored. Neither is empty.
struct ScoreRequest {
  std::vector<int32_t> context, continuation;
};

/// Chooses the examples in the contexts of a task's documents, in their order.
class ExampleChooser {
public:
  /// Throws Error if the pool has fewer than `count` documents. `task` and
  /// `data` must outlive the chooser.
  ExampleChooser(const Task &task, const TaskData &data, int64_t count);

  /// The text before the next document.
  std::string next(const Document &document);

private:
  std::vector<size_t> choose(const Document &document);

  const Task &task;
  const TaskData &data;
  const size_t count;
  PythonRandom random;
};

/// Turns documents into requests, token for token as lm-eval does for models of
/// Hugging Face.
class RequestMaker {
public:
  /// `mostTokens` is the maximum that the model reads in a request. `tokenizer`
  /// must outlive the maker. Throws Error if the tokenizer has no token to
  /// begin a text with.
  RequestMaker(const Tokenizer &tokenizer, int64_t mostTokens);

  /// The requests of a document, whose contexts begin with `before`. A context
  /// that is too long loses its front. Throws Error if a continuation is too
  /// long.
  std::vector<ScoreRequest> requests(const Task &task, const Document &document,
                                     const std::string &before) const;

private:
  ScoreRequest pair(std::string context, const std::string &continuation) const;
  std::vector<ScoreRequest> windows(const std::string &text) const;

  const Tokenizer &tokenizer;
  const size_t most;
  /// Stands before a text without a context.
  int32_t first;
};

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_REQUESTS_H
