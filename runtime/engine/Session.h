//===- Session.h - One sequence that is continued ---------------*- C++ -*-===//
//
// A prompt and the tokens drawn after it, for `qwen-run generate` and `qwen-run
// chat`. Users of the C interface call the engine and the sampler themselves.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SESSION_H
#define QWEN_RUNTIME_ENGINE_SESSION_H

#include "engine/Engine.h"
#include "engine/PrefixCache.h"
#include "engine/Sampler.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace qwen {

/// Owns a sequence of an engine's KV cache. `next` allocates no memory.
class Session {
public:
  /// `ends` are the tokens that SamplerOptions::minTokens holds back. An engine
  /// with snapshots takes one every `snapshotEvery` positions. Throws Error if
  /// no sequence is free or a sampling option is out of range. `engine` must
  /// outlive the session.
  Session(Engine &engine, const SamplerOptions &options,
          std::span<const int32_t> ends = {},
          int64_t snapshotEvery = PrefixCache::kSnapshotEvery);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  /// Sets all tokens of the sequence. A prefix whose state the engine has is
  /// kept; `next` runs the others. `snapshotAt` is that of Request. Throws
  /// Error if there are no tokens or more than the context.
  void setTokens(std::span<const int32_t> tokens, int64_t snapshotAt = 0);

  /// Runs the tokens that have not run yet, draws the next token and appends
  /// it. Returns nothing if the context is full, or if `stop` returns true,
  /// which is called between calls of `forward`. Throws Error as
  /// Engine::forward does.
  std::optional<int32_t> next(const std::function<bool()> &stop = {});

  /// The prompt and the drawn tokens.
  std::span<const int32_t> tokens() const { return ids; }

private:
  /// Shortens the sequence to a state that `tokens` begin with.
  void keepPrefix(std::span<const int32_t> tokens, int64_t snapshotAt);

  Engine &engine;
  Sampler sampler;
  SequenceId sequence;
  /// Finds snapshots, if the engine has some.
  std::optional<PrefixCache> cache;
  PrefixCache::Prefix prefix;
  std::vector<int32_t> ids;
  std::vector<Token> batch;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SESSION_H
