//===- Scorer.h - Runs the requests of tasks --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TASKS_SCORER_H
#define QWEN_RUNTIME_TASKS_SCORER_H

#include "engine/Engine.h"
#include "tasks/Requests.h"

#include <functional>
#include <optional>

namespace qwen::tasks {

/// Number of documents that run at once: enough for a full call of short texts.
inline constexpr int32_t kDocumentsAtOnce = 32;

/// Returns the requests of the next document, or nothing after the last.
using RequestsFn = std::function<std::optional<std::vector<ScoreRequest>>()>;
/// Receives the number of a document, in the order of RequestsFn, and a score
/// for each of its requests. Documents end in any order.
using ScoresFn =
    std::function<void(size_t document, std::vector<Likelihood> scores)>;

/// Scores documents, as many at once as `engine` has sequences. The requests of
/// a document run one after another in a sequence and share what they begin
/// with; requests that differ in their last token only run once. Log-
/// probabilities of tokens are floats, as in the server. Throws Error.
void scoreDocuments(Engine &engine, const RequestsFn &next,
                    const ScoresFn &done);

} // namespace qwen::tasks

#endif // QWEN_RUNTIME_TASKS_SCORER_H
