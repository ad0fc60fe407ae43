//===- Session.h - One sequence that is continued ---------------*- C++ -*-===//
//
// A prompt and the tokens drawn after it, for `qwen-run generate` and `qwen-run
// chat`. Users of the C interface call the engine and the sampler themselves.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SESSION_H
#define QWEN_RUNTIME_ENGINE_SESSION_H

#include "engine/Engine.h"
#include "engine/Sampler.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace qwen {

/// Owns a sequence of an engine's KV cache. `next` allocates no memory.
class Session {
public:
  /// `ends` are the tokens that SamplerOptions::minTokens holds back. Throws
  /// Error if no sequence is free or a sampling option is out of range.
  /// `engine` must outlive the session.
  Session(Engine &engine, const SamplerOptions &options,
          std::span<const int32_t> ends = {});
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  /// Sets all tokens of the sequence. A prefix that the KV cache already has is
  /// kept; `next` runs the others. Throws Error if there are no tokens or more
  /// than the context.
  void setTokens(std::span<const int32_t> tokens);

  /// Runs the tokens that have not run yet, draws the next token and appends
  /// it. Returns nothing if the context is full, or if `stop` returns true,
  /// which is called between calls of `forward`. Throws Error as
  /// Engine::forward does.
  std::optional<int32_t> next(const std::function<bool()> &stop = {});

  /// The prompt and the drawn tokens.
  std::span<const int32_t> tokens() const { return ids; }

private:
  Engine &engine;
  Sampler sampler;
  SequenceId sequence;
  std::vector<int32_t> ids;
  std::vector<Token> batch;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SESSION_H
