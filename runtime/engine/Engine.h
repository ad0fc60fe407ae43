//===- Engine.h - Runs ragged batches through a model -----------*- C++ -*-===//
//
// The engine has the weights, the programs and the state of sequences of a
// model. It splits a batch into calls of `forward` and checks that all numbers
// were finite. Several engines share threads and a budget of memory.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_ENGINE_H
#define QWEN_RUNTIME_ENGINE_ENGINE_H

#include "artifact/Artifact.h"
#include "artifact/WeightChecker.h"
#include "engine/EngineOptions.h"
#include "engine/MemoryBudget.h"
#include "engine/ThreadPool.h"
#include "engine/Token.h"
#include "engine/Tracer.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace qwen {

/// A sequence of a batch that stopped before its last token.
struct Failure {
  SequenceId sequence;
  /// NotFinite, NoPage, PastContext, InvalidToken or Cancelled.
  ErrorKind kind;
  /// Id and position of the token that did not run.
  int32_t id;
  int64_t position;
  /// NotFinite: the index of the op in the manifest.
  uint32_t op;
};

/// The bytes of a weight image, which must outlive an engine.
using WeightImage = std::span<const uint8_t>;

/// What the options of an engine ask for (Engine.cpp).
struct WantedState;

/// How many a call has of a count of its program.
struct CountNumber {
  std::string_view count;
  int64_t number;
};

/// A model that is ready to run. Only one thread may use it at a time; engines
/// with the same threads run their calls in turns. `run` allocates no memory.
class Engine {
public:
  /// The row of batch[index].
  struct Row {
    size_t index;
    std::span<float> values;
  };
  /// Receives the rows of a call, in the batch's order; they are valid until it
  /// returns. It may run other programs (call) when it needs the rows no more.
  using RowsFn = std::function<void(std::span<const Row> rows)>;
  /// The same, row by row.
  using RowFn = std::function<void(size_t index, std::span<float> row)>;
  /// Receives the number of tokens at the front of the batch that are done.
  /// Returns whether to go on.
  using ProgressFn = std::function<bool(size_t done)>;

  /// Maps the code for this machine, which runs on the threads of `pool`.
  /// `artifact` and `pool` must outlive the engine. Throws Error if this
  /// machine cannot run it, if memory is missing, or if WeightCheck::Now finds
  /// damage.
  Engine(const Artifact &artifact, ThreadPool &pool,
         const EngineOptions &options = {});

  /// The same, with threads and memory that several engines share. `weights`,
  /// if it is not null, is the model's image: the artifact's or a copy, which
  /// the caller has locked or read, checked and counted.
  Engine(const Artifact &artifact, std::shared_ptr<ThreadPool> pool,
         const std::shared_ptr<MemoryBudget> &budget,
         const EngineOptions &options, const uint8_t *weights = nullptr);

  /// Runs code that is in this process over `weights`: an entry for each of the
  /// manifest's programs. `manifest` and `pool` must outlive the engine.
  Engine(const Manifest &manifest, const uint8_t *weights,
         std::vector<ForwardFn *> entries, ThreadPool &pool,
         const EngineOptions &options = {});

  /// The same over several images: the model's, and one for each of the
  /// manifest's. Throws Error if one is missing or too short.
  Engine(const Manifest &manifest, std::span<const WeightImage> images,
         std::vector<ForwardFn *> entries, ThreadPool &pool,
         const EngineOptions &options = {});

  /// Another engine over the code and the weights of this one, which must
  /// outlive it, on the same threads: `options` say how many sequences and
  /// pages of its own it has. No budget counts them.
  std::unique_ptr<Engine> beside(const EngineOptions &options) const;

  const Manifest &manifest() const { return model; }
  int32_t threads() const { return pool->size(); }
  /// Where its threads run: "CPUs 0-7 of node 0", or how many they are.
  std::string describeThreads() const { return pool->describe(); }
  /// See ThreadPool::bindCaller.
  void bindCaller() const { pool->bindCaller(); }
  /// Maximum number of tokens in a call.
  int64_t maxCallTokens() const { return callTokens; }
  /// Maximum number of rows of each kind in a call.
  int64_t maxCallRows() const { return model.forward().limits.rows; }
  /// Positions of a sequence from one snapshot of its fixed state to the next.
  int64_t snapshotEvery() const { return everySnapshot; }
  /// Which drafter its answers have.
  Speculate speculate() const { return speculation; }
  /// Why no sequence can keep states to step back to, of a model that has some,
  /// and what helps; empty if one can.
  std::string whyNoSteps() const;
  /// The bytes that it has of its budget.
  uint64_t memoryBytes() const { return lease.bytes(); }
  /// A smaller model that drafts for its answers, or null.
  Engine *draftEngine() const { return drafts.get(); }
  /// Sets it, before there is a batcher. Only batchers of this engine may use
  /// it.
  void setDraftEngine(std::shared_ptr<Engine> engine) {
    drafts = std::move(engine);
  }
  SequenceState &state() { return sequenceState; }
  const SequenceState &state() const { return sequenceState; }
  /// The index in the batch of each token of the last call of `forward`.
  std::span<const size_t> lastCall() const { return indices; }

  /// Runs tokens of any number of open sequences, in calls within the
  /// manifest's limits, and passes the wanted rows to `receive` in the batch's
  /// order. Tokens of one sequence must be in the order of their positions.
  ///
  /// A sequence stops at its first token that cannot run: its id is not in the
  /// vocabulary, its position is past the context, no page is free, or one of
  /// its numbers is not finite. The sequence keeps the positions before this
  /// token, and the other sequences run as without it. With fixed caches, a
  /// number that is not finite takes it back to the last reachable length
  /// (SequenceState::reachable), but the rows before this token are given.
  /// `progress` is called between calls; if it returns false, all sequences
  /// with tokens left stop. Returns the sequences that stopped; the list is
  /// valid until the next run.
  ///
  /// Throws Error and runs nothing if a sequence is not open, if a position is
  /// not the next one of its sequence, if the model does not give the rows, if
  /// a token has a row of no input or of another width, or if the check has
  /// found damaged weights.
  [[nodiscard]] std::span<const Failure> run(std::span<const Token> batch,
                                             const RowsFn &receive,
                                             const ProgressFn &progress = {});
  [[nodiscard]] std::span<const Failure> run(std::span<const Token> batch,
                                             const RowFn &receive,
                                             const ProgressFn &progress = {});

  /// Calls visit(0) ... visit(items - 1) on the threads, as ThreadPool::forEach
  /// does.
  void forEach(size_t items, const std::function<void(size_t)> &visit) {
    pool->forEach(items, visit);
  }

  /// Runs a batch; if sequences stop, throws the first failure as Error, after
  /// the others have run.
  void forward(std::span<const Token> batch, const RowFn &receive);

  /// Runs program `program` of the manifest over `batch` in one call. `given`
  /// has the rows of its inputs that the caller gives. Rows of other programs
  /// are taken where they lie, from the row of token `first` of their last call
  /// on. A position is the next one of the program in its sequence
  /// (SequenceState::length) or, without fixed caches, one that it has run. It
  /// may be ahead of `forward`; all programs must run the same tokens, so the
  /// caller truncates the sequence before it runs others. A program without the
  /// input "ids" ignores the ids. One without caches runs any positions of any
  /// sequences, open or not, in the order of their numbers and of their
  /// windows. `numbers` has all of the program's own counts.
  ///
  /// Throws Error if the program does not exist, if an argument
  /// is beyond its limits or does not fit, and like `forward`. Its sequences
  /// then go back to the last reachable length before the batch.
  void call(std::string_view program, std::span<const Token> batch,
            std::span<const InputRows> given = {}, int64_t first = 0,
            std::span<const CountNumber> numbers = {});

  /// Row `index` of output `output` of the last call of `program`: of that one
  /// of what the output counts or, of logits, of that wanted token. Valid until
  /// a program runs that does not read these rows.
  std::span<const float> row(std::string_view program, std::string_view output,
                             size_t index) const;

  /// A failure of `run` in one line.
  std::string describe(const Failure &failure) const;

  /// Ends the background check of the weights: checks the rest until `enough`
  /// returns true. Returns the MiB that are still unchecked, 0 without such a
  /// check. Throws Error if the weights are damaged.
  uint64_t finishCheck(const std::function<bool()> &enough = {});

  /// Records all later calls in `to`, which must have threads() threads. Null
  /// stops the recording.
  void trace(Tracer *to);

private:
  Engine(const Manifest &manifest, std::span<const WeightImage> images,
         uint64_t weightBytes, std::vector<ForwardFn *> entries,
         std::shared_ptr<ThreadPool> pool, MemoryBudget &budget,
         const WantedState &wanted);

  /// Throws Error if a token does not follow in its sequence, if the model
  /// does not give its row, or if it has a row that no input takes.
  void check(std::span<const Token> batch);
  /// Throws Error unless inputs of `forward` take the rows of the token.
  void checkInputs(const Token &token) const;
  /// Begins a call without tokens.
  void beginCall();
  /// Fills the context with tokens from batch[next] on, as many as one call
  /// may have, and returns the index of the first token after them.
  size_t fillCall(std::span<const Token> batch, size_t next);
  /// The tokens of the call with rows as `token` wants one.
  std::vector<int32_t> &rowsOf(const Token &token) {
    return token.row == RowKind::Hidden ? hiddenTokens : wantedTokens;
  }
  /// Appends a token to the call.
  void addToken(const Token &token);
  /// Makes room for `batch[i]` in the caches of program `number`. Throws Error.
  void extend(size_t number, std::span<const Token> batch, size_t i);
  /// Runs an entry over the context.
  void runEntry(size_t program);
  /// Runs the call and stops the sequences with a flag.
  void callForward(std::span<const Token> batch);
  /// The place of a program in the manifest. Throws Error.
  size_t find(std::string_view program) const;
  float *rowAt(const ProgramValue &value, int64_t token) const;
  /// Puts the rows of a token, which is token `place` of the call, into the
  /// inputs of `forward`.
  void fillToken(const Token &token, int64_t place);
  /// Puts the rows of the inputs of a call into their places.
  void fillInputs(const ProgramInfo &program, std::span<const InputRows> given,
                  int64_t first);
  /// Sets how many the call has of the program's own counts.
  void fillOwnCounts(const ProgramInfo &program,
                     std::span<const CountNumber> numbers);
  /// Throws Error if one of them has a flag.
  void checkOwnCounts(const ProgramInfo &program) const;
  std::string describe(const Failure &failure,
                       const ProgramInfo &program) const;
  std::string describeNotFinite(const std::string &where, uint32_t op,
                                const ProgramInfo &program) const;
  /// Passes the rows of the call to `receive`.
  void giveRows(std::span<const Token> batch, const RowsFn &receive);
  void stop(const Token &token, ErrorKind kind, uint32_t op = kNoFlag);
  /// Removes positions that have run, from `position` on.
  void takeBack(SequenceId sequence, int64_t position);
  /// Removes the positions of the call.
  void takeBackCall();
  /// Whether the sequence of `token` has stopped, at this token or before it.
  bool isStopped(const Token &token) const {
    return stopPositions[static_cast<size_t>(token.sequence)] <= token.position;
  }

  std::unique_ptr<const ElfMapping> code;
  const Manifest &model;
  /// Context::images.
  const std::vector<const uint8_t *> images;
  std::vector<ForwardFn *> entries;
  const std::shared_ptr<ThreadPool> pool;
  /// What the budget allowed before the lease, for errors.
  const std::string allowed;
  const MemoryLease lease;
  SequenceState sequenceState;
  int64_t callTokens;
  const int64_t everySnapshot;
  const Speculate speculation;
  std::shared_ptr<Engine> drafts;

  Mapping arena;
  /// Rows of one call.
  Mapping result;
  std::vector<int32_t> ids, sequences, positions, ropePositions, windows;
  /// The tokens of a call whose logits or hidden values are wanted.
  std::vector<int32_t> wantedTokens, hiddenTokens;
  /// Flags of the tokens of a call, and of the program's own counts.
  std::vector<uint32_t> flags, ownFlags;
  std::vector<uint32_t> taken;
  Tracer *tracer = nullptr;
  /// Index in the batch of each token of a call of `forward`.
  std::vector<size_t> indices;
  /// The rows that a call gives.
  std::vector<Row> callRows;
  /// Next position of each sequence, while a batch is checked.
  std::vector<int64_t> nextPositions;
  /// Position at which each sequence has stopped in this run, or kNoStop.
  std::vector<int64_t> stopPositions;
  std::vector<Failure> failures;
  Context context = {};
  std::optional<WeightChecker> checker;
};

/// The bytes without which an engine with these options does not start where a
/// budget counts all weights (MemoryBudget::countWeights).
uint64_t leastMemory(const Artifact &artifact, const EngineOptions &options);

/// Finds the programs of the best target for this machine in `code`. Throws
/// Error if `artifact` lacks one.
std::vector<ForwardFn *> findPrograms(const Artifact &artifact,
                                      const ElfMapping &code);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_ENGINE_H
