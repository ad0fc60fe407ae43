//===- Job.h - A request that a batcher runs --------------------*- C++ -*-===//
//
// A job is the side of an answer: its request, its constraint and what has been
// told. The side of its sequence is its track (Track.h). A job with beams has a
// track for each of them (Beams.h).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_JOB_H
#define QWEN_RUNTIME_ENGINE_JOB_H

#include "artifact/Manifest.h"
#include "engine/DraftPace.h"
#include "engine/Request.h"
#include "engine/Token.h"
#include "engine/Track.h"

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

/// How a job of Request::isContinued begins again.
struct Continuation {
  /// The ids of the prompt.
  std::span<const int32_t> prompt;
  /// Request::snapshotAt.
  int64_t snapshotAt = 0;
  /// PromptRows::count, for a request that has rows.
  size_t rows = 1;
  /// Options in place of the present ones.
  std::optional<SamplerOptions> sampling = {};
};

/// The drafts of a job.
struct DraftRecord {
  /// Whether a drafter drafts for the job.
  bool isOn = false;
  /// Drafts that ran, and those that the answer has.
  int64_t drafted = 0, accepted = 0;
  DraftShares shares = {};
};

/// A request in a batcher.
class Job {
public:
  /// Throws Error if the request cannot run in `model`.
  Job(Request request, RequestId id, const ModelInfo &model,
      std::shared_ptr<Series> series = {});
  ~Job();

  const Request &request() const { return asked; }
  RequestId id() const { return number; }
  /// Null for a request alone.
  const std::shared_ptr<Series> &series() const { return itsSeries; }
  int64_t promptSize() const { return std::ssize(asked.prompt.ids); }
  /// Why the request ends in this step, or nothing.
  std::optional<EndReason> ended() const { return reason; }
  /// Throws Error if the request has failed.
  void throwIfFailed() const;
  /// Whether its answer waits for its reader.
  bool isHeld() const { return asked.isHeld && asked.isHeld(); }

  /// Jobs of a priority come in the order of their deadlines.
  int64_t deadline() const { return itsDeadline; }
  void setDeadline(int64_t tokens) { itsDeadline = tokens; }
  bool hasDrafter() const { return draftRecord.isOn; }
  DraftRecord &drafts() { return draftRecord; }

  /// Its first track, which runs the prompt.
  const Track &track() const { return own; }
  Track &track() { return own; }
  /// The tracks that run: the first alone, or one for each beam.
  std::span<Track *const> tracks() const;
  /// The same, with the tracks that wait for a beam.
  std::span<Track *const> allTracks() const;
  /// Null without a beam search.
  Beams *beams() const { return search.get(); }

  /// Whether the job wants the row of a token of a track.
  bool wants(const Track &track, int64_t position) const;
  /// The first position of a prompt of `size` tokens whose row the job wants.
  int64_t firstRow(int64_t size) const;
  /// The number of settled tokens of a track that another sequence may have,
  /// but for the last. The rows of that and of all behind it must be computed.
  size_t sharedTokens(const Track &track) const;
  RowKind rowKind() const {
    return asked.rows ? asked.rows->kind : RowKind::Logits;
  }
  /// Maximum number of drafts of the next tokens. The row of each must give a
  /// token of the answer.
  int64_t mostDrafts() const {
    return static_cast<int64_t>(mostTokens) - own.settledSize() - 1;
  }
  /// Whether the answer has all its tokens.
  bool isComplete() const {
    return own.settledSize() == static_cast<int64_t>(mostTokens);
  }

  /// Whether `prepare` draws from the row of a wanted token.
  bool mayPrepare(const Track &track, const Token &token) const;
  /// Whether samplers that have seen drafts draw from rows behind these.
  bool mayDivide() const {
    return !asked.constraint && asked.sampling.mirostat == 0;
  }
  /// Draws ahead from the row of a wanted token that `receive` gets later, and
  /// tells nobody. Null stands for the track's own sampler. Rows of one sampler
  /// come in their order; threads may prepare rows of different samplers at the
  /// same time. Returns whether the next row is of use: the draw confirms the
  /// draft whose row that is.
  bool prepare(Track &track, const Token &token, std::span<const float> row,
               Sampler *with, Draw &draw) noexcept;
  /// Receives the row of a wanted token, with what `prepare` has drawn from it.
  /// Returns whether it drew a token. Throws Error if no token can be drawn.
  bool receive(Track &track, const Token &token, std::span<float> row,
               const Draw &draw);
  /// Whether the constraint may leave one token only in place of the next draw.
  bool mayForce() const;
  /// Asks the constraint, and tells nobody. Threads may do so for different
  /// jobs at the same time.
  void lookAhead() noexcept;
  /// Appends the token that `lookAhead` has found to be the only one. Returns
  /// whether there is one. Throws Error if it cannot be drawn, or if the
  /// constraint has failed.
  bool force();
  /// Nanoseconds that the constraint took since the last time.
  int64_t takeConstraintTime() { return std::exchange(constraintTime, 0); }

  /// Tells the start of the request.
  void start() const;
  /// Tells that the first `done` tokens of the prompt have run.
  void report(int64_t done);
  /// The prefix cache had further tokens of a track.
  void addCached(const Track &track, int64_t count);
  /// The job has lost its sequences and will run again. What it told of its
  /// prompt stays told.
  void preempt() { isPreempted = true; }
  bool wasPreempted() const { return isPreempted; }
  /// Begins again. The prompt must pass requirePrompt. Throws Error if a
  /// sampling option is out of range.
  void restart(const Continuation &next, const ModelInfo &model);
  /// Lets an answer go on behind its stop token.
  void goOn();
  /// Ends the answer with this step.
  void stop(EndReason why) { reason = why; }
  void fail(const Error &error);
  /// Sets how a beam search that is done has ended.
  void endSearch();
  /// Tells the end. Without memory for the answers of a beam search, it is a
  /// failure.
  void end(EndReason why);

private:
  void begin(const ModelInfo &model);
  /// The token that a sampler draws at `position`. A beam gets its candidates
  /// instead; the token is -1.
  int32_t sample(Track &track, Sampler &with, size_t position,
                 std::span<const float> logits);
  /// The logits of the tokens that the constraint allows; the others are
  /// -infinity.
  std::span<const float> allowed(std::span<const float> logits);
  /// Tells the answers of a beam search. Returns the number of their tokens.
  int64_t tellAnswers() const;
  /// Takes the token at `position`, which is drawn ahead or now. It confirms a
  /// draft or replaces it.
  void draw(Track &track, size_t position, std::span<float> logits,
            const Draw &ahead);
  /// Lets sampler and constraint see a token of the answer once.
  void see(size_t position, int32_t token);
  bool isStopToken(int32_t token) const {
    return std::ranges::count(asked.stopTokens, token) > 0;
  }
  /// Settles a token at `position`, and tells it. With logprobs, `logits` are
  /// the logits of the token before it.
  void settle(size_t position, int32_t token, std::span<const float> logits);
  void tell(std::span<const float> logits, int32_t token, int64_t position);

  Request asked;
  const RequestId number;
  std::shared_ptr<Series> itsSeries;
  Track own;
  Track *const ownTrack = &own;
  std::unique_ptr<Beams> search;
  std::optional<EndReason> reason;
  ErrorKind errorKind = ErrorKind::General;
  std::string error;
  int64_t itsDeadline = 0;
  bool isPreempted = false;
  DraftRecord draftRecord;
  /// Tokens that the prefix cache had before a preemption.
  int64_t cachedTokens = 0;
  int64_t constraintTime = 0;
  /// Number of tokens with which the constraint is done.
  size_t doneAt = SIZE_MAX;
  /// The only token that may follow, which `lookAhead` has found.
  Draw forced;
  /// Number of tokens at which the answer ends.
  size_t mostTokens = 0;
  /// Tokens of the prompt that onProgress has told.
  int64_t told = 0;
  /// The logits that `allowed` leaves.
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
