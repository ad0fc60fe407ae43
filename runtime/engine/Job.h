//===- Job.h - A request that a batcher runs --------------------*- C++ -*-===//
//
// A job has known tokens: its prompt, the drawn tokens and drafts of the next
// ones. Its sequence holds the computed tokens. The row of a token decides the
// next token until that is settled. A job with beams has several sequences,
// with a job for each (Beams.h).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_JOB_H
#define QWEN_RUNTIME_ENGINE_JOB_H

#include "artifact/Manifest.h"
#include "engine/PrefixCache.h"
#include "engine/Request.h"

#include <algorithm>
#include <exception>
#include <memory>

namespace qwen {

class Beams;

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

/// A token that has been drawn ahead, or why none could be; neither: nobody has
/// tried.
struct Draw {
  std::optional<int32_t> token = {};
  std::exception_ptr failure = {};

  /// The token, or nothing. Throws the failure.
  std::optional<int32_t> take() const {
    if (failure)
      std::rethrow_exception(failure);
    return token;
  }
};

/// A request in a batcher.
class Job {
public:
  /// Throws Error if the request cannot run in `model`.
  Job(Request request, RequestId id, const ModelInfo &model);
  /// A job for another sequence of a beam search.
  Job(Job &first, const ModelInfo &model);
  ~Job();

  /// Begins again with another prompt, which must pass requirePrompt.
  void restart(std::span<const int32_t> prompt, const ModelInfo &model);

  /// Sets the options of the tokens that follow the next restart. Throws Error
  /// if one is out of range.
  void setSampling(const SamplerOptions &options, const ModelInfo &model);

  /// Maximum number of drafts of the next tokens. The row of each must give a
  /// token of the answer.
  int64_t mostDrafts() const {
    return static_cast<int64_t>(mostTokens - settled) - 1;
  }
  /// Appends drafts of the next tokens. The step confirms or removes them.
  void draft(std::span<const int32_t> next);

  int64_t promptSize() const { return std::ssize(request.prompt.ids); }
  /// Whether the job wants the row of the token at `position`.
  bool wants(int64_t position) const;
  /// The first position of a prompt of `size` tokens whose row the job wants.
  int64_t firstRow(int64_t size) const;
  /// The number of known tokens of which another sequence may have all but the
  /// last. The row of that one, and those after it, must be computed.
  size_t sharedTokens() const {
    return request.rows || request.scorePrompt
               ? std::min(static_cast<size_t>(nextRow) + 1, settled)
               : settled;
  }
  RowKind rowKind() const {
    return request.rows ? request.rows->kind : RowKind::Logits;
  }
  /// Whether `prepare` draws from the row of a wanted token.
  bool mayPrepare(const Token &token) const;
  /// Whether samplers that have seen drafts draw from rows behind these.
  bool mayDivide() const {
    return !request.constraint && request.sampling.mirostat == 0;
  }
  /// Makes `other` the job's sampler after the drafts up to `position`. Threads
  /// may do so at the same time.
  void copySampler(Sampler &other, int64_t position) const;
  void reserveSampler(Sampler &other) const { other.reserveFor(sampler); }
  /// Draws ahead from the row of a wanted token that `receive` gets later, and
  /// tells nobody. Null stands for the job's own sampler. Rows of one sampler
  /// come in their order; threads may prepare rows of different samplers at the
  /// same time. Returns whether the next row is of use: the draw confirms the
  /// draft whose row that is.
  bool prepare(const Token &token, std::span<const float> row, Sampler *with,
               Draw &draw) noexcept;
  /// Receives the row of a wanted token, with what `prepare` has drawn from it.
  /// Returns whether it drew a token. Throws Error if no token can be drawn.
  bool receive(const Token &token, std::span<float> row, const Draw &draw);
  /// Whether the constraint may leave one token only in place of the next draw.
  bool mayForce() const;
  /// Asks the constraint, and tells nobody. Threads may do so for different
  /// jobs at the same time.
  void lookAhead() noexcept;
  /// Appends the token that `lookAhead` has found to be the only one. Returns
  /// whether there is one. Throws Error if it cannot be drawn, or if the
  /// constraint has failed.
  bool force();
  /// Tells that the first `done` tokens of the prompt have run.
  void report(int64_t done);
  /// Whether the answer has all its tokens.
  bool isComplete() const { return settled == mostTokens; }
  /// Of a job of a beam search: of the whole search.
  void fail(const Error &error);
  /// Whether its answer waits for its reader.
  bool isHeld() const { return request.isHeld && request.isHeld(); }
  /// Sets how a beam search that is done has ended.
  void endSearch();
  /// Tells the end. Without memory for the answers of a beam search, it is a
  /// failure.
  void end(EndReason reason);

  /// The jobs whose sequences run: this job alone, or one for each beam.
  std::span<Job *const> sequences() const;
  /// The same, with the jobs whose sequences wait for a beam.
  std::span<Job *const> allSequences() const;
  /// Takes over all tokens of another job of the search.
  void follow(const Job &other);
  /// Appends the next token of a beam.
  void extend(int32_t token);

  Request request;
  /// That of its series.
  RequestId id;
  /// Null for a request alone.
  std::shared_ptr<Series> series = {};
  /// The known tokens.
  std::vector<int32_t> tokens;
  /// Number of tokens at the front that are no drafts.
  size_t settled = 0;
  /// Number of drafts in this step, and of those that are settled.
  int64_t drafted = 0, accepted = 0;
  /// Whether a drafter drafts for the job.
  bool hasDrafter = false;
  /// Jobs with the smallest number come first.
  int64_t deadline = 0;
  /// Its sequence while it runs, with the computed tokens.
  SequenceId sequence = -1;
  PrefixCache::Prefix prefix;
  bool wasPreempted = false;
  /// Tokens that the prefix cache had before a preemption.
  int64_t cachedTokens = 0;
  /// Time that the constraint took since the batcher last counted it.
  int64_t constraintNanoseconds = 0;
  /// Set when the request ends in this step.
  std::optional<EndReason> ended;
  ErrorKind kind = ErrorKind::General;
  std::string error;
  /// The job that has the request.
  Job *const owner = this;
  /// Of a job with the request of a beam search.
  std::unique_ptr<Beams> beams;

private:
  friend class Beams;
  void begin(const ModelInfo &model);
  /// Whether the row of a token counts: it has not turned out to be a wrong
  /// draft.
  bool isCurrent(const Token &token) const;
  /// The token that a sampler draws at `position`. A beam gets its candidates
  /// instead; the token is -1.
  int32_t sample(Sampler &with, size_t position, std::span<const float> logits);
  /// The logits of the tokens that the constraint allows; the others are
  /// -infinity.
  std::span<const float> allowed(std::span<const float> logits);
  /// Tells the answers of a beam search. Returns the number of their tokens.
  int64_t tellAnswers() const;
  /// Takes the token at `position`, which is drawn ahead or now. It confirms a
  /// draft or replaces it.
  void draw(size_t position, std::span<float> logits, const Draw &ahead);
  /// Lets sampler and constraint see a token of the answer once.
  void see(size_t position, int32_t token);
  bool isStopToken(int32_t token) const {
    return std::ranges::count(request.stopTokens, token) > 0;
  }
  /// Makes a token that of `position`, and tells it. With logprobs, `logits`
  /// are those of the token before it.
  void settle(size_t position, int32_t token, std::span<const float> logits);
  void tell(std::span<const float> logits, int32_t token, int64_t position);

  /// What sequences() has without beams.
  Job *const self = this;
  Sampler sampler;
  /// Number of tokens that the sampler and the constraint have seen: the
  /// settled ones and, between `prepare` and `receive`, drafts that it
  /// confirms.
  size_t seen = 0;
  /// Number of tokens with which the constraint is done.
  size_t doneAt = SIZE_MAX;
  /// The only token that may follow, which `lookAhead` has found.
  Draw forced;
  /// Number of tokens at which the answer ends.
  size_t mostTokens = 0;
  /// Tokens of the prompt that onProgress has told.
  int64_t told = 0;
  /// The first token whose row the request has not received.
  int64_t nextRow = 0;
  /// What `allowed` makes of logits.
  std::vector<float> masked;
  std::vector<int32_t> topIds;
  std::vector<TokenLogprob> top;
};

/// Jobs in their order: by priority, then by deadline.
class JobList {
public:
  using Jobs = std::vector<std::unique_ptr<Job>>;

  void reserve(size_t count) { jobs.reserve(count); }
  bool empty() const { return jobs.empty(); }
  size_t size() const { return jobs.size(); }
  Job &operator[](size_t index) { return *jobs[index]; }
  Job &front() { return *jobs.front(); }
  Job &back() { return *jobs.back(); }
  const Jobs &all() const { return jobs; }

  /// The caller keeps the job if that throws std::bad_alloc.
  void insert(std::unique_ptr<Job> &&job);
  std::unique_ptr<Job> take(size_t index);
  std::unique_ptr<Job> takeBack() { return take(jobs.size() - 1); }

private:
  Jobs jobs;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_JOB_H
