//===- Session.h - One sequence that is continued ---------------*- C++ -*-===//
//
// A batcher with one job, for `qwen-run generate` and `qwen-run chat`.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SESSION_H
#define QWEN_RUNTIME_ENGINE_SESSION_H

#include "engine/Batcher.h"

namespace qwen {

/// Owns a sequence of an engine's KV cache. `next` allocates no memory.
class Session {
public:
  /// `ends` are the tokens that SamplerOptions::minTokens holds back. `engine`
  /// must outlive the session, and have no other user; so must `store`, which
  /// keeps pages and snapshots of prompts with `root`, unless one is null.
  Session(Engine &engine, const SamplerOptions &options,
          std::vector<int32_t> ends = {}, PageStore *store = nullptr,
          RootRef root = {});

  /// Sets the options of the tokens that follow the next setTokens. Throws
  /// Error, at the latest there, if one is out of range.
  void setSampling(const SamplerOptions &options);

  /// Sets all tokens of the sequence. A prefix whose state the engine has is
  /// kept; `next` runs the others. `snapshotAt` is Request::snapshotAt. Throws
  /// Error if there are no tokens or more than the context, if the model has no
  /// logits, or if a sampling option is out of range.
  void setTokens(std::span<const int32_t> tokens, int64_t snapshotAt = 0);

  /// Runs the tokens that have not run yet, draws the next token and appends
  /// it. Returns nothing if the context is full, or if `stop` returns true,
  /// which is called between steps. Throws Error as Engine::forward does.
  std::optional<int32_t> next(const std::function<bool()> &stop = {});

  /// Gives the store what it lacks of the tokens, for another session to go on
  /// with them.
  void keep();

  /// The prompt and the tokens that `next` has returned.
  std::span<const int32_t> tokens() const;
  /// Sums over all prompts so far.
  BatcherCounts counts() const { return batcher.counts(); }

private:
  const ModelInfo &model;
  Batcher batcher;
  SamplerOptions sampling;
  /// Whether the job has other options.
  bool isChanged = false;
  const std::vector<int32_t> ends;
  const RootRef root;
  /// The batcher's; null before the first prompt.
  Job *job = nullptr;
  /// The number of tokens of the prompt and of those that `next` has returned.
  /// A step may draw further ones.
  size_t given = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SESSION_H
