//===- Job.cpp - A request that a batcher runs ----------------------------===//

#include "engine/Job.h"

#include "engine/Beams.h"
#include "engine/Logprobs.h"
#include "engine/SteadyClock.h"

#include <algorithm>
#include <tuple>
#include <utility>

using namespace qwen;

/// Throws Error if a request with beams asks for what a beam search cannot do.
static void checkBeams(const Request &request) {
  request.beams.check(request.answers);
  if (!request.beams.isSearch())
    return;
  if (request.rows || request.constraint || request.onDraw ||
      request.isContinued)
    throw Error("num-beams needs a request whose tokens are drawn by nothing "
                "else");
  if (request.logprobs.value_or(0) > 0)
    throw Error("the logprobs of the most likely tokens are " +
                std::to_string(*request.logprobs) +
                " when 0 with num-beams is needed");
}

static Sampler samplerOf(const Request &request, const SamplerOptions &options,
                         const ModelInfo &model) {
  return {options, model.vocabSize, model.tokenizerVocab, request.answer,
          request.stopTokens};
}

Job::~Job() = default;

Job::Job(Request request, RequestId id, const ModelInfo &model,
         std::shared_ptr<Series> series)
    : asked(std::move(request)), number(id), itsSeries(std::move(series)),
      own(*this, samplerOf(asked, asked.sampling, model)) {
  if (!asked.rows)
    model.output.requireLogits(model.name);
  else if (asked.rows->kind == RowKind::Logits)
    model.output.requireScores(model.name);
  if (asked.maxTokens < 0)
    throw Error("the answer has at most " + std::to_string(asked.maxTokens) +
                " tokens when 0 or more is needed");
  if (asked.scorePrompt && !asked.logprobs)
    throw Error("the prompt has no scores without logprobs");
  checkBeams(asked);
  model.requirePrompt(asked.prompt.ids, "the prompt");
  asked.prompt.requireMedia();
  if (asked.isContinued && !asked.prompt.media.empty())
    throw Error("the prompt of a request that is continued has media");
  begin(model);
  if (asked.beams.isSearch() && !isComplete())
    search = std::make_unique<Beams>(
        own, static_cast<int64_t>(mostTokens) - promptSize(),
        [&] { return samplerOf(asked, asked.sampling, model); });
  if (asked.logprobs) {
    const auto count =
        static_cast<size_t>(std::min(*asked.logprobs, model.vocabSize));
    topIds.reserve(count);
    top.reserve(count);
  }
}

void Job::begin(const ModelInfo &model) {
  const int64_t size = promptSize();
  // The last drawn token never runs.
  mostTokens = static_cast<size_t>(
      size +
      (asked.rows ? 0 : std::min(asked.maxTokens, model.context + 1 - size)));
  own.begin(asked.prompt.ids, mostTokens, asked.rows ? firstRow(size) : 0);
  told = 0;
  doneAt = SIZE_MAX;
  forced = {};
  reason.reset();
}

int64_t Job::firstRow(int64_t size) const {
  if (asked.scorePrompt)
    return 0;
  const size_t rows = asked.rows ? asked.rows->count : 1;
  return size - std::min(static_cast<int64_t>(rows), size);
}

size_t Job::sharedTokens(const Track &track) const {
  const auto settled = static_cast<size_t>(track.settledSize());
  return asked.rows || asked.scorePrompt
             ? std::min(static_cast<size_t>(track.nextRow()) + 1, settled)
             : settled;
}

void Job::restart(const Continuation &next, const ModelInfo &model) {
  if (next.sampling) {
    own.setSampler(samplerOf(asked, *next.sampling, model));
    asked.sampling = *next.sampling;
  }
  if (asked.rows)
    asked.rows->count = next.rows;
  asked.prompt.ids.assign(next.prompt.begin(), next.prompt.end());
  begin(model);
}

void Job::goOn() {
  if (reason == EndReason::Stop && !isComplete())
    reason.reset();
}

void Job::throwIfFailed() const {
  if (reason == EndReason::Failed)
    throw Error(error, errorKind);
}

bool Job::wants(const Track &track, int64_t position) const {
  const int64_t next = position + 1;
  if (position < track.nextRow())
    return false;
  if (asked.rows)
    return true;
  if (next < promptSize())
    return asked.scorePrompt;
  return next >= track.settledSize() && next < static_cast<int64_t>(mostTokens);
}

bool Job::mayPrepare(const Track &track, const Token &token) const {
  return !reason && track.isCurrent(token.position, token.id) && !asked.rows &&
         !asked.onDraw && token.position + 1 >= promptSize();
}

bool Job::prepare(Track &track, const Token &token, std::span<const float> row,
                  Sampler *with, Draw &draw) noexcept {
  const auto next = static_cast<size_t>(token.position) + 1;
  try {
    const int32_t drawn =
        sample(track, with ? *with : track.sampler, next, row);
    draw.token = drawn;
    if (next >= track.known().size() || track.known()[next] != drawn ||
        isStopToken(drawn))
      return false;
    if (with)
      with->acceptDrawn(drawn);
    else
      see(next, drawn);
    return next + 1 < doneAt;
  } catch (...) {
    draw.failure = std::current_exception();
    return false;
  }
}

bool Job::receive(Track &track, const Token &token, std::span<float> row,
                  const Draw &ahead) {
  const auto next = static_cast<size_t>(token.position) + 1;
  if (reason || !track.isCurrent(token.position, token.id))
    return false;
  track.passRow(token.position);
  if (asked.rows) {
    asked.rows->receive(row);
    return false;
  }
  if (next < asked.prompt.ids.size()) {
    tell(row, track.known()[next], static_cast<int64_t>(next));
    return false;
  }
  draw(track, next, row, ahead);
  return true;
}

int32_t Job::sample(Track &track, Sampler &with, size_t position,
                    std::span<const float> logits) {
  if (!search)
    return with.sample(allowed(logits), position);
  search->findCandidates(track, logits);
  return -1;
}

namespace {
/// Adds the time until its end to a sum.
class AddedTime {
public:
  explicit AddedTime(int64_t &sum) : sum(sum), start(steadyNanoseconds()) {}
  ~AddedTime() { sum += steadyNanoseconds() - start; }
  AddedTime(const AddedTime &) = delete;
  AddedTime &operator=(const AddedTime &) = delete;

private:
  int64_t &sum;
  const int64_t start;
};
} // namespace

std::span<const float> Job::allowed(std::span<const float> logits) {
  if (!asked.constraint)
    return logits;
  const AddedTime time(constraintTime);
  const std::span<const uint32_t> words = asked.constraint->allowed();
  if (words.empty())
    return logits;
  masked.resize(logits.size());
  copyAllowed(logits, words, masked);
  return masked;
}

void Job::draw(Track &track, size_t position, std::span<float> logits,
               const Draw &ahead) {
  report(promptSize());
  std::optional<int32_t> token;
  if (asked.onDraw)
    token = asked.onDraw(allowed(logits), static_cast<int64_t>(position));
  if (!token)
    token = ahead.take();
  if (!token)
    token = sample(track, track.sampler, position, logits);
  if (search)
    return search->offer();
  settle(position, *token, logits);
}

bool Job::mayForce() const {
  return asked.constraint && !asked.logprobs && !asked.onDraw && !reason &&
         own.settledSize() > promptSize() && !isComplete();
}

void Job::lookAhead() noexcept {
  const AddedTime time(constraintTime);
  try {
    forced.token = onlyAllowed(asked.constraint->allowed());
  } catch (...) {
    forced.failure = std::current_exception();
  }
}

bool Job::force() {
  const std::optional<int32_t> token = std::exchange(forced, {}).take();
  if (!token)
    return false;
  own.sampler.force(*token);
  settle(own.settled().size(), *token, {});
  return true;
}

void Job::see(size_t position, int32_t token) {
  if (own.hasSeen(position))
    return;
  if (asked.constraint) {
    const AddedTime time(constraintTime);
    asked.constraint->accept(token);
    if (asked.constraint->isDone())
      doneAt = position + 1;
  }
  own.see(token);
}

void Job::settle(size_t position, int32_t token,
                 std::span<const float> logits) {
  see(position, token);
  own.settle(position, token);
  tell(logits, token, static_cast<int64_t>(position));
  const bool isOver = position + 1 >= doneAt;
  const auto isEnd = [&] {
    return isStopToken(token) && (!asked.isEnd || asked.isEnd(token));
  };
  if (!reason && (isOver || isEnd()))
    reason = EndReason::Stop;
}

void Job::tell(std::span<const float> logits, int32_t token, int64_t position) {
  TokenEvent event = {.id = token,
                      .position = position,
                      .isPrompt = position < promptSize(),
                      .logprob = 0,
                      .top = {}};
  if (asked.logprobs) {
    const double sum = logSumExp(logits);
    const auto logprob = [&](int32_t of) {
      return static_cast<float>(logits[static_cast<size_t>(of)] - sum);
    };
    topTokens(logits, static_cast<size_t>(*asked.logprobs), topIds);
    top.clear();
    for (int32_t each : topIds)
      top.push_back({each, logprob(each)});
    event.logprob = logprob(token);
    event.top = top;
  }
  if (asked.onToken && !asked.onToken(event))
    reason = EndReason::Callback;
}

void Job::start() const {
  if (asked.onStart)
    asked.onStart();
}

void Job::report(int64_t done) {
  if (!asked.onProgress || isPreempted || done > promptSize() || done == told)
    return;
  told = done;
  asked.onProgress({done, promptSize(), cachedTokens});
}

void Job::addCached(const Track &track, int64_t count) {
  if (!isPreempted && &track == &own)
    cachedTokens += count;
}

std::span<Track *const> Job::tracks() const {
  return search ? search->running() : std::span(&ownTrack, 1);
}

std::span<Track *const> Job::allTracks() const {
  return search ? search->all() : std::span(&ownTrack, 1);
}

void Job::fail(const Error &why) {
  reason = EndReason::Failed;
  errorKind = why.kind();
  error = why.what();
}

void Job::endSearch() {
  const std::vector<BeamTokens> found = search->answers();
  if (std::ssize(found) < asked.answers)
    return fail(Error("the beam search found " + std::to_string(found.size()) +
                      " of " + std::to_string(asked.answers) +
                      " answers: no token is left"));
  reason =
      isStopToken(found[0].ids.back()) ? EndReason::Stop : EndReason::Length;
}

int64_t Job::tellAnswers() const {
  const auto count = static_cast<size_t>(asked.answers);
  const std::vector<BeamTokens> answers =
      search ? search->answers() : std::vector<BeamTokens>(count);
  int64_t tokensOfAnswers = 0;
  for (const BeamTokens &answer : answers)
    tokensOfAnswers += std::ssize(answer.ids);
  if (asked.onAnswers)
    asked.onAnswers(answers);
  return tokensOfAnswers;
}

void Job::end(EndReason why) {
  itsSeries.reset();
  int64_t drawn = search ? 0 : own.settledSize() - promptSize();
  if (asked.beams.isSearch() &&
      (why == EndReason::Stop || why == EndReason::Length))
    try {
      drawn += tellAnswers();
    } catch (const std::bad_alloc &) {
      why = EndReason::Failed;
      errorKind = ErrorKind::NoMemory;
      error = "out of memory";
    }
  if (asked.onEnd)
    asked.onEnd({why, errorKind, error, promptSize(), cachedTokens, drawn,
                 draftRecord.drafted, draftRecord.accepted});
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

void JobList::insert(std::unique_ptr<Job> &&job) {
  const auto key = [](const std::unique_ptr<Job> &of) {
    return std::tuple(-int64_t{of->request().priority}, of->deadline(),
                      of->id());
  };
  jobs.insert(std::ranges::upper_bound(jobs, key(job), {}, key),
              std::move(job));
}

std::unique_ptr<Job> JobList::take(size_t index) {
  const auto place = jobs.begin() + static_cast<int64_t>(index);
  std::unique_ptr<Job> job = std::move(*place);
  jobs.erase(place);
  return job;
}
