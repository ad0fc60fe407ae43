//===- Engine.h - Runs ragged batches through a model -----------*- C++ -*-===//
//
// What stands between a list of tokens and the compiled `forward`: calls of a
// size that the code takes, the KV cache, threads, and the check that all
// numbers were finite.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_ENGINE_H
#define QWEN_RUNTIME_ENGINE_ENGINE_H

#include "artifact/Artifact.h"
#include "artifact/WeightChecker.h"
#include "engine/KvCache.h"
#include "engine/ThreadPool.h"
#include "engine/Tracer.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace qwen {

struct EngineOptions {
  /// 0: one for each physical performance core that this process may use.
  /// Others are taken as they are; see usableThreads.
  int32_t threads = 0;
  /// Sequences that can be open at once.
  int32_t sequences = 1;
  /// Pages of the KV cache; 0: enough for all sequences at full context. Fewer
  /// where a control group has memory for fewer.
  int64_t kvPages = 0;
  /// Tokens in one call of `forward` at most; 0: what the code takes.
  /// Results do not depend on it.
  int64_t callTokens = 0;
  /// Keep the artifact's weights in memory (Artifact::lock).
  bool lock = false;
  /// When the weights are checked for damage; see also usableCheck.
  WeightCheck check = WeightCheck::Background;
};

/// One token to run.
struct Token {
  int32_t id;
  SequenceId sequence;
  /// Its position: the one behind the last of its sequence.
  int64_t position;
  /// Whether its output is wanted.
  bool output;
};

/// Which output a batch gives for each wanted token.
enum class OutputKind {
  /// f32 [vocabSize].
  Logits,
  /// f32 [hiddenSize]: the final norm's row.
  Hidden,
};

/// A model that is ready to run. Not for use by two threads at once. `forward`
/// allocates no memory.
class Engine {
public:
  /// Gets the output of batch[index]; `row` is valid during the call.
  using OutputFn = std::function<void(size_t index, std::span<float> row)>;

  /// Maps the code for this machine. `artifact` must outlive the engine.
  /// Throws Error where this machine cannot run it, memory lacks, or the
  /// weights are checked now and damaged.
  explicit Engine(const Artifact &artifact, const EngineOptions &options = {});

  /// Runs `forward` of this process over `weights`, for tests and embedders
  /// that link the code. `manifest` must outlive the engine.
  Engine(const Manifest &manifest, const uint8_t *weights, ForwardFn *forward,
         const EngineOptions &options = {});

  const Manifest &manifest() const { return model; }
  int32_t threads() const { return pool.size(); }
  KvCache &cache() { return kv; }
  const KvCache &cache() const { return kv; }

  /// Runs tokens of any number of open sequences, in calls of at most the
  /// manifest's limits, and hands out the wanted rows in the batch's order.
  /// Tokens of one sequence come in the order of their positions. Throws Error
  /// where an id is no row of the embedding, a position is not the next one of
  /// its sequence or is past the context, the KV cache is full, a number was
  /// not finite (with sequence, position and op), or the weights are known to
  /// be damaged; the sequences then have the positions of the calls that
  /// succeeded.
  void forward(std::span<const Token> batch, const OutputFn &output,
               OutputKind kind = OutputKind::Logits);

  /// Ends the check of the weights in the background: checks what it has not
  /// reached, until `enough` returns true. Returns the MiB that are left
  /// unchecked, 0 without such a check. Throws Error where the weights are
  /// damaged.
  uint64_t finishCheck(const std::function<bool()> &enough = {});

  /// Records the calls from now on in `tracer`, which is for threads() threads;
  /// null ends it.
  void trace(Tracer *tracer);

private:
  /// Throws Error where a token cannot be run.
  void check(std::span<const Token> batch);
  /// Tokens from the front of `rest` that fit in one call.
  size_t callSize(std::span<const Token> rest) const;
  void call(std::span<const Token> part, OutputKind kind);
  void checkFlags(std::span<const Token> part) const;

  std::unique_ptr<const ElfMapping> code;
  const Manifest &model;
  ForwardFn *entry;
  ThreadPool pool;
  KvCache kv;
  int64_t callTokens;

  Mapping arena;
  Mapping outputs;
  std::vector<int32_t> ids, sequences, positions, rows;
  std::vector<uint32_t> flags, taken;
  /// Next position of each sequence, while a batch is checked.
  std::vector<int64_t> nextPositions;
  Context context = {};
  std::optional<WeightChecker> checker;
};

/// The entry of the target of `artifact` that this machine runs best, in
/// `code`. Throws Error where there is none.
ForwardFn *findForward(const Artifact &artifact, const ElfMapping &code);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_ENGINE_H
