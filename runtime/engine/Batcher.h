//===- Batcher.h - Runs requests in steps -----------------------*- C++ -*-===//
//
// A step has one batch: the next token of every request that decodes, and
// prompt tokens within the limit of StepPace. docs/decisions/0013 has the
// rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_BATCHER_H
#define QWEN_RUNTIME_ENGINE_BATCHER_H

#include "engine/Engine.h"
#include "engine/PrefixCache.h"
#include "engine/Request.h"
#include "engine/StepPace.h"

#include <memory>

namespace qwen {

struct BatcherOptions {
  /// Maximum number of prompt tokens in a step; 0: as many as a call has.
  int64_t promptTokens = 0;
  /// Whether requests share pages and snapshots with earlier ones.
  bool prefixCache = true;
  /// Positions of a sequence from one snapshot of its fixed state to the next.
  int64_t snapshotEvery = PrefixCache::kSnapshotEvery;
};

/// Sums since the start.
struct BatcherCounts {
  int64_t steps = 0;
  /// Prompt tokens that ran (some again, after a preemption), and tokens that
  /// the prefix cache had instead.
  int64_t promptTokens = 0;
  int64_t cachedTokens = 0;
  int64_t drawnTokens = 0;
  int64_t preemptions = 0;
};

/// Requests that take one place in the queue, one after another.
struct Series {
  /// Called when a request of the series leaves the queue. Returns the one that
  /// takes its place, or nothing.
  std::function<std::optional<Request>()> next = {};
  /// Called once, before the last of the requests is told its end.
  std::function<void()> onDone = {};

  Series() = default;
  Series(const Series &) = delete;
  Series &operator=(const Series &) = delete;
  ~Series() {
    if (onDone)
      onDone();
  }
};

/// A request in a batcher.
struct Job {
  /// Throws Error if the request cannot run in `model`.
  Job(Request request, RequestId id, const ModelInfo &model);

  Request request;
  /// That of its series.
  RequestId id;
  /// Null for a request alone.
  std::shared_ptr<Series> series = {};
  Sampler sampler;
  /// The prompt and the drawn tokens.
  std::vector<int32_t> tokens;
  /// Number of tokens at which the answer ends.
  size_t mostTokens;
  /// Requests with the smallest number come first.
  int64_t deadline = 0;
  /// Its sequence while it runs.
  SequenceId sequence = -1;
  PrefixCache::Prefix prefix;
  bool wasPreempted = false;
  /// Tokens that the prefix cache had before a preemption.
  int64_t cachedTokens = 0;
  /// Tokens of the prompt that onProgress has told.
  int64_t told = 0;
  /// Tokens of the prompt that onToken has seen.
  size_t scored = 1;
  /// Set when the request ends in this step.
  std::optional<EndReason> ended;
  ErrorKind kind = ErrorKind::General;
  std::string error;
  std::vector<int32_t> topIds;
  std::vector<TokenLogprob> top;
};

/// One thread uses a batcher, and no one else opens sequences of its engine. A
/// step allocates nothing unless a request starts or ends.
class Batcher {
public:
  /// `engine` must outlive the batcher.
  Batcher(Engine &engine, const BatcherOptions &options = {});

  void add(std::unique_ptr<Job> job);
  /// Ends a request and its series. Does nothing if it has ended.
  void cancel(RequestId id);
  void cancelAll();
  bool isIdle() const { return waiting.empty() && running.empty(); }
  /// Number of requests without a sequence, and with one.
  size_t waitingCount() const { return waiting.size(); }
  size_t runningCount() const { return running.size(); }
  const BatcherCounts &counts() const { return sums; }

  /// Runs one batch.
  void step();

private:
  using Jobs = std::vector<std::unique_ptr<Job>>;

  /// Gives waiting requests a sequence, in order, while their tokens fit.
  void startWaiting();
  /// Adds the request that follows one that has left the queue.
  void addNext(const Job &job);
  /// Opens a sequence for a request if its tokens fit.
  bool start(Job &job);
  /// What the prefix cache has of the request's tokens after its prefix.
  PrefixCache::Hit find(const Job &job) const;
  /// Restores the snapshot of a hit whose pages the sequence has.
  void resume(Job &job, const PrefixCache::Hit &hit);
  /// Pages that the running requests need for their tokens, and one more each.
  int64_t promisedPages() const;
  /// Gives every running request a page for its next token. If pages lack, the
  /// last requests in the order lose their sequences.
  void reservePages();
  /// Fills `batch` with tokens for which there are pages.
  void plan();
  /// Adds the prompt tokens of a step.
  void planPrompts();
  void append(Job &job, int64_t count);
  void run(RowKind kind);
  /// Runs the last tokens of prompts whose hidden values are wanted.
  void runHidden();
  void receive(size_t index, std::span<float> logits);
  /// Draws the next token.
  void draw(Job &job, std::span<float> logits);
  void tell(Job &job, std::span<const float> logits, int32_t id,
            int64_t position);
  /// Tells that the first `done` tokens of a prompt have run.
  static void report(Job &job, int64_t done);
  /// Keeps full pages and reports progress after a step.
  void advance(Job &job);
  void preemptLast();
  /// Closes the sequence of a request. Takes a snapshot first, unless the
  /// request gets no answer.
  void leave(Job &job);
  void close(Job &job);
  void fail(Job &job, const Error &error);
  void removeEnded();
  void end(Job &job, EndReason reason);
  int64_t remaining(const Job &job) const;
  static void insert(Jobs &jobs, std::unique_ptr<Job> job);

  Engine &engine;
  SequenceState &state;
  const BatcherOptions options;
  PrefixCache prefixCache;
  StepPace pace;
  /// Both in the order of requests.
  Jobs waiting, running;
  std::vector<Token> batch;
  /// The request of each token of the batch.
  std::vector<Job *> owners;
  /// Requests whose next token gives hidden values.
  std::vector<Job *> hidden;
  /// Requests that read their prompts.
  std::vector<Job *> reading;
  RowKind rows = RowKind::Logits;
  const Engine::RowFn receiver;
  size_t decoding = 0;
  int64_t promptTokens = 0;
  /// Pages that reservePages promised.
  int64_t reserved = 0;
  BatcherCounts sums;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_BATCHER_H
