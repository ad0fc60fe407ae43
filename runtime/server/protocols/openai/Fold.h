//===- Fold.h - Items as OpenAI's answers have them -------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_FOLD_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_FOLD_H

#include "server/Items.h"

#include <nlohmann/json.hpp>

namespace qwen::server::openai {

/// A call of a tool, or a part of one.
struct CallPart {
  /// Number of the calls of the choice before it.
  size_t index;
  /// Only the first part has them.
  std::string id = {}, name = {};
  /// A part of a JSON object.
  std::string arguments = {};
};

/// A message of a choice, or a part of one. It has one text: what stands before
/// and behind calls is joined.
struct Folded {
  std::string text = {}, reasoning = {};
  std::vector<CallPart> calls = {};
  std::vector<TokenRecord> tokens = {};

  bool hasText() const {
    return !text.empty() || !reasoning.empty() || !calls.empty();
  }
};

/// Joins the items of one choice by their kinds.
class Fold {
public:
  /// Takes items and tokens of the next delta.
  Folded take(Delta &delta);

private:
  /// Number of calls that have begun.
  size_t calls = 0;
};

/// "finish_reason" of a choice; null if it has not ended.
nlohmann::ordered_json finishReason(const Delta &delta);
/// vLLM's "stop_reason": the stop string, or the id of the stop token.
nlohmann::ordered_json stopReason(const Delta &delta);

} // namespace qwen::server::openai

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_FOLD_H
