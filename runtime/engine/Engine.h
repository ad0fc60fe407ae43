//===- Engine.h - Runs ragged batches through a model -----------*- C++ -*-===//
//
// The engine splits a batch into calls of the compiled `forward`. It owns the
// threads and the KV cache, and checks that all numbers were finite.
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
  /// 0: one for each physical performance core that this process may use. The
  /// engine starts any other number of threads as given; see usableThreads.
  int32_t threads = 0;
  /// Maximum number of open sequences.
  int32_t sequences = 1;
  /// Pages of the KV cache; 0: enough for all sequences at full context. The
  /// memory of a control group may reduce the number.
  int64_t kvPages = 0;
  /// Maximum number of tokens in a call; 0: the manifest's limit. Results do
  /// not depend on it.
  int64_t callTokens = 0;
  /// Keep the artifact's weights in memory (Artifact::lock).
  bool lock = false;
  /// When to compare the weights with their checksums; see also usableCheck.
  WeightCheck check = WeightCheck::Background;
};

/// One token to run.
struct Token {
  int32_t id;
  SequenceId sequence;
  /// The number of tokens before it in its sequence.
  int64_t position;
  /// Whether the caller wants its row of the result.
  bool wanted;
};

/// The rows that a batch gives for its wanted tokens.
enum class RowKind {
  /// Logits, f32 [vocabSize].
  Logits,
  /// Hidden values, f32 [hiddenSize].
  Hidden,
};

/// A model that is ready to run. Only one thread may use it at a time.
/// `forward` allocates no memory.
class Engine {
public:
  /// Receives the row of batch[index]; `row` is valid during the call.
  using RowFn = std::function<void(size_t index, std::span<float> row)>;

  /// Maps the code for this machine. `artifact` must outlive the engine. Throws
  /// Error if this machine cannot run it, if memory is missing, or if
  /// WeightCheck::Now finds damage.
  explicit Engine(const Artifact &artifact, const EngineOptions &options = {});

  /// Runs a `forward` that is linked into this process, over `weights`.
  /// `manifest` must outlive the engine.
  Engine(const Manifest &manifest, const uint8_t *weights, ForwardFn *forward,
         const EngineOptions &options = {});

  const Manifest &manifest() const { return model; }
  int32_t threads() const { return pool.size(); }
  KvCache &cache() { return kv; }
  const KvCache &cache() const { return kv; }

  /// Runs tokens of any number of open sequences, in calls within the
  /// manifest's limits, and passes the wanted rows to `receive` in the batch's
  /// order. Tokens of one sequence must be in the order of their positions.
  ///
  /// Throws Error if an id is outside of the vocabulary, if a position is not
  /// the next one of its sequence or is past the context, if the KV cache is
  /// full, if a number was not finite (with sequence, position and op), or if
  /// the check has found damaged weights. The sequences then keep the positions
  /// of the calls that succeeded.
  void forward(std::span<const Token> batch, const RowFn &receive,
               RowKind kind = RowKind::Logits);

  /// Ends the background check of the weights: checks the rest until `enough`
  /// returns true. Returns the MiB that are still unchecked, 0 without such a
  /// check. Throws Error if the weights are damaged.
  uint64_t finishCheck(const std::function<bool()> &enough = {});

  /// Records all later calls in `tracer`, which must have threads() threads.
  /// Null stops the recording.
  void trace(Tracer *tracer);

private:
  /// Throws Error if a token cannot run.
  void check(std::span<const Token> batch);
  /// The number of tokens at the front of `rest` that fit in one call.
  size_t callSize(std::span<const Token> rest) const;
  void call(std::span<const Token> part, RowKind kind);
  void checkFlags(std::span<const Token> part) const;

  std::unique_ptr<const ElfMapping> code;
  const Manifest &model;
  ForwardFn *entry;
  ThreadPool pool;
  KvCache kv;
  int64_t callTokens;

  Mapping arena;
  /// Rows of one call.
  Mapping result;
  std::vector<int32_t> ids, sequences, positions, wantedRows;
  std::vector<uint32_t> flags, taken;
  /// Next position of each sequence, while a batch is checked.
  std::vector<int64_t> nextPositions;
  Context context = {};
  std::optional<WeightChecker> checker;
};

/// Finds `forward` of the best target for this machine in `code`. Throws Error
/// if `artifact` has none.
ForwardFn *findForward(const Artifact &artifact, const ElfMapping &code);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_ENGINE_H
