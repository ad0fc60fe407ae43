//===- Session.h - One sequence that is continued ---------------*- C++ -*-===//
//
// A prompt, and the tokens drawn after it: what `qwen-run generate` and
// `qwen-run chat` have in common above the engine. Users of the C API call the
// engine and the sampler themselves.
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
  /// Throws Error where no sequence is free or a sampling option is out of
  /// range. `engine` must outlive the session.
  Session(Engine &engine, const SamplerOptions &options);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  /// Sets all tokens of the sequence. Those that it begins with already stay
  /// in the KV cache; the others run with the next token. Throws Error where
  /// there are none or they are more than the context.
  void setTokens(std::span<const int32_t> tokens);

  /// Runs what has not run yet and draws the next token, which the sequence
  /// then has. Returns nothing where the context is full, or where `stop`
  /// returns true (it is asked between calls of `forward`). Throws Error as
  /// Engine::forward does.
  std::optional<int32_t> next(const std::function<bool()> &stop = {});

  /// The prompt and what was drawn.
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
