//===- Batcher.h - Runs requests in steps -----------------------*- C++ -*-===//
//
// A step has one batch, in which every track catches up with its known tokens
// as far as pages and the limit of StepPace allow. docs/decisions/0013 and 0020
// have the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_BATCHER_H
#define QWEN_RUNTIME_ENGINE_BATCHER_H

#include "engine/DraftPace.h"
#include "engine/Engine.h"
#include "engine/Job.h"
#include "engine/JobPages.h"
#include "engine/Step.h"
#include "engine/StepPace.h"
#include "engine/drafters/Drafter.h"

#include <algorithm>
#include <new>

namespace qwen {

struct BatcherOptions {
  /// Maximum number of prompt tokens in a step; 0: as many as a call has.
  int64_t promptTokens = 0;
  /// Whether steps are short, for requests that come later (StepPace).
  bool paced = true;
  /// Whether requests share pages and snapshots with earlier ones.
  bool prefixCache = true;
  /// Replaces Engine::snapshotEvery.
  std::optional<int64_t> snapshotEvery = {};
  /// Makes the drafter, in place of the one of Engine::speculate.
  MakeDrafterFn drafter = {};
  /// Drafts that each answer has in a step, if there is room; 0: as many as
  /// save time (DraftPace).
  int64_t drafts = 0;
  /// Keeps pages and snapshots of requests that have a root. Null: none does.
  /// Must outlive the batcher.
  PageStore *store = nullptr;
  /// Hears which pages are kept. Null: nobody does. Must outlive the batcher.
  PageEvents *events = nullptr;
};

/// Sums since the start.
struct BatcherCounts {
  /// Adds the counts of another batcher.
  BatcherCounts &operator+=(const BatcherCounts &other);

  int64_t steps = 0;
  /// Prompt tokens that ran. A token that runs again after a preemption counts
  /// again. The second token that a step runs of an answer, and those behind
  /// it, count too, unless they are drafts.
  int64_t promptTokens = 0;
  /// Tokens that did not run because the prefix cache had them.
  int64_t cachedTokens = 0;
  int64_t drawnTokens = 0;
  int64_t preemptions = 0;
  /// Times that an answer had drafts in a step, those drafts, and the accepted
  /// ones.
  int64_t drafts = 0, draftTokens = 0, acceptedTokens = 0;
  /// Time of all threads in which constraints found the tokens that may come,
  /// followed the answers and masked the logits.
  int64_t constraintNanoseconds = 0;
};

/// One thread uses a batcher, and no one else opens sequences of its engine. A
/// step allocates nothing unless a request starts or ends.
class Batcher {
public:
  /// `engine` must outlive the batcher.
  Batcher(Engine &engine, const BatcherOptions &options = {});
  /// Closes all sequences.
  ~Batcher();
  Batcher(const Batcher &) = delete;
  Batcher &operator=(const Batcher &) = delete;

  void add(std::unique_ptr<Job> job);
  /// Begins a job of Request::isContinued again, which must run. Throws Error
  /// if it cannot begin so.
  void restart(Job &job, const Continuation &next);
  /// Gives the store what it lacks of a job that goes on, with a snapshot.
  void keep(const Job &job);
  /// Ends a request and its series. Does nothing if it has ended.
  void cancel(RequestId id);
  void cancelAll();
  /// Ends all requests that run, which lack memory.
  void failAll();
  /// Whether a step would do nothing, unless a held request goes on.
  bool isIdle() const { return waiting.empty() && running.empty(); }
  /// Number of requests without a sequence.
  size_t waitingCount() const { return waiting.size() + held.size(); }
  /// Number of series with a request that Request::isHeld holds.
  size_t heldCount() const { return heldSeries; }
  /// Number of sequences that requests have. A sequence of a request that ended
  /// in a step counts until the next step.
  size_t runningCount() const;
  BatcherCounts counts() const;

  /// Runs one batch.
  void step();

private:
  /// Moves jobs between `held` and the other lists.
  void hold();
  void countHeld();
  /// Gives waiting jobs a sequence, in order, while their tokens fit and what
  /// the store has of them is loaded.
  void startWaiting();
  /// Nanoseconds in which this step may load pages.
  int64_t loadTime() const;
  /// Adds the request that follows one that has left the queue.
  void addNext(const Job &job);
  /// Promises every running job a page for its next token. If pages lack, the
  /// last jobs in the order lose their sequences.
  void reservePages();
  void preemptLast();
  /// Takes the sequences of a running job.
  void interrupt(Job &job);
  /// Adds a job to a list. Without memory for that, the job fails.
  void enqueue(JobList &list, std::unique_ptr<Job> job);
  /// Does something for a job, which fails with the error.
  template <typename Function>
  void attempt(Job &job, const Function &function) const {
    try {
      function();
    } catch (const Error &error) {
      job.fail(error);
    } catch (const std::bad_alloc &) {
      job.fail(noMemory);
    }
  }
  /// Fills the batch.
  void plan();
  /// Fills `order`, and counts the tokens that decode without drafts. Returns
  /// the first track whose prompt runs, or null.
  const Track *findOrder();
  /// Asks the drafter for tokens that run in the calls which the step makes
  /// without them.
  void draft();
  /// Fills `wishes` for tracks that decode, and has DraftPace share `most`
  /// drafts among them.
  void wish(std::span<Track *const> tracks, int64_t most);
  /// Fills `orders` from `wishes`. At most `left` drafts have room.
  void orderDrafts(std::span<Track *const> tracks, int64_t left);
  /// Lets the drafter make the drafts of `orders`.
  void prepareDrafts();
  /// Asks it for at most `most` tokens of a track. Returns their number.
  int64_t draft(Track &track, int64_t most);
  /// Maximum number of prompt tokens of this step beside those that decode.
  int64_t promptLimit() const;
  /// Whether a track has more to run than the token whose row gives its next
  /// one, and whether its prompt is a part of that.
  bool isLate(const Track &track) const {
    return pages.computed(track) + 1 < track.settledSize();
  }
  bool isInPrompt(const Track &track) const {
    return isLate(track) && pages.computed(track) < track.job().promptSize();
  }
  /// Appends the next `count` known tokens of a track.
  void append(Track &track, int64_t count);
  void run();
  /// Gives the rows of a call to their jobs, and lets the drafter follow.
  void receive(std::span<const Engine::Row> rows);
  /// Draws from the rows of a call on all threads.
  void prepare(std::span<const Engine::Row> rows);
  /// Divides the rows of a call that are drawn from into ranges.
  void divide(std::span<const Engine::Row> rows);
  /// Lets the drafter run programs behind a call.
  void follow();
  /// Tells the drafter how many of its tokens are settled.
  void tellAccepted();
  /// Begins to draft for a job that draws tokens one after another.
  void beginDrafts(Job &job);
  void endDrafts(Job &job);
  /// Appends the tokens of jobs that constraints leave no choice about, after
  /// their draws, up to a bound. Constraints are asked on all threads.
  void force();
  /// Follows a step for a job: keeps its pages and finds whether it ends.
  void endStep(Job &job);
  void removeEnded();
  void end(std::unique_ptr<Job> job, EndReason reason);

  Engine &engine;
  const ModelInfo &model;
  const int64_t mostPrompt;
  /// Maximum number of tokens that want a row in a call.
  const int64_t rowsOfCall;
  const bool paced;
  /// Maximum number of drafts of a sequence.
  const int64_t mostDrafts;
  const int64_t fixedDrafts;
  JobPages pages;
  StepPace pace;
  DraftPace draftPace;
  const std::unique_ptr<Drafter> drafter;
  /// Made in advance, because none can be made without memory.
  const Error noMemory{"out of memory", ErrorKind::NoMemory};
  JobList waiting, running, held;
  size_t heldSeries = 0;
  std::vector<Token> batch;
  /// The track of each token of the batch.
  std::vector<Track *> owners;
  /// The running tracks in the order in which they get tokens of a step.
  std::vector<Track *> order;
  const Engine::RowsFn receiver;
  /// The drafts of a track, and the tokens of a call.
  std::vector<int32_t> drafts;
  std::vector<Step::Place> places;
  /// Those of the first tracks of `order`.
  std::vector<DraftWish> wishes;
  std::vector<DraftOrder> orders;
  /// Time of the last step that ran tokens.
  int64_t stepNanoseconds = 0;
  /// Time that the drafter takes in this step.
  int64_t drafterNanoseconds = 0;
  /// Rows of a track, [begin, end) of the rows of a call, from which a sampler
  /// draws. Null stands for the track's own.
  struct Range {
    Track *track;
    size_t begin, end;
    Sampler *sampler;
  };
  std::vector<Range> ranges;
  /// What has been drawn from the rows of a call.
  std::vector<Draw> draws;
  /// Samplers that see drafts, fewer than threads.
  std::vector<Sampler> samplers;
  /// The jobs that may get a token without a draw.
  std::vector<Job *> ahead;
  /// Number of tokens of this step that decode, with the drafts behind them,
  /// and of its prompt tokens.
  int64_t decoding = 0, promptTokens = 0;
  BatcherCounts sums;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_BATCHER_H
