//===- Batch.h - Requests without connections -------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_BATCH_BATCH_H
#define QWEN_RUNTIME_SERVER_BATCH_BATCH_H

#include "server/batch/BatchLine.h"

namespace qwen::server {

/// Receives the line of an answer, and whether it is an error.
using AnswerFn = std::function<void(const std::string &answer, bool isError)>;

/// Gives lines to the handler that also answers HTTP requests, at most `most`
/// at a time. `next` returns the next line, or nullopt at the end; `done` gets
/// the line of each answer as soon as it is known, in any order. Both are
/// called on this thread. What they throw cancels all that runs.
void answerLines(HttpHandler &handler, size_t most,
                 const std::function<std::optional<BatchLine>()> &next,
                 const AnswerFn &done);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_BATCH_BATCH_H
