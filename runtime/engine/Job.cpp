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

/// The request of another sequence of a beam search.
static Request requestOf(const Request &first) {
  Request request;
  request.prompt = first.prompt;
  request.sampling = first.sampling;
  request.answer = first.answer;
  request.maxTokens = first.maxTokens;
  request.stopTokens = first.stopTokens;
  request.priority = first.priority;
  return request;
}

Job::Job(Job &first, const ModelInfo &model)
    : request(requestOf(first.request)), id(first.id), owner(&first),
      sampler(request.sampling, model.vocabSize, model.tokenizerVocab,
              request.answer, request.stopTokens) {
  begin(model);
}

Job::~Job() = default;

Job::Job(Request newRequest, RequestId number, const ModelInfo &model)
    : request(std::move(newRequest)), id(number),
      sampler(request.sampling, model.vocabSize, model.tokenizerVocab,
              request.answer, request.stopTokens) {
  if (!request.rows)
    model.output.requireLogits(model.name);
  else if (request.rows->kind == RowKind::Logits)
    model.output.requireScores(model.name);
  if (request.maxTokens < 0)
    throw Error("the answer has at most " + std::to_string(request.maxTokens) +
                " tokens when 0 or more is needed");
  if (request.scorePrompt && !request.logprobs)
    throw Error("the prompt has no scores without logprobs");
  checkBeams(request);
  model.requirePrompt(request.prompt.ids, "the prompt");
  request.prompt.requireMedia();
  if (request.isContinued && !request.prompt.media.empty())
    throw Error("the prompt of a request that is continued has media");
  begin(model);
  if (request.beams.isSearch() && !isComplete())
    beams = std::make_unique<Beams>(*this, model);
  if (request.logprobs) {
    const auto count =
        static_cast<size_t>(std::min(*request.logprobs, model.vocabSize));
    topIds.reserve(count);
    top.reserve(count);
  }
}

void Job::begin(const ModelInfo &model) {
  const int64_t size = promptSize();
  // The last drawn token never runs.
  mostTokens = static_cast<size_t>(
      size + (request.rows
                  ? 0
                  : std::min(request.maxTokens, model.context + 1 - size)));
  sampler.reserve(mostTokens);
  for (int32_t token : request.prompt.ids)
    sampler.acceptPrompt(token);
  tokens.reserve(mostTokens);
  tokens = request.prompt.ids;
  settled = tokens.size();
  nextRow = request.rows ? firstRow(size) : 0;
  told = 0;
  seen = settled;
  doneAt = SIZE_MAX;
  forced = {};
  ended.reset();
}

int64_t Job::firstRow(int64_t size) const {
  if (request.scorePrompt)
    return 0;
  const size_t rows = request.rows ? request.rows->count : 1;
  return size - std::min(static_cast<int64_t>(rows), size);
}

void Job::restart(std::span<const int32_t> prompt, const ModelInfo &model) {
  request.prompt.ids.assign(prompt.begin(), prompt.end());
  sampler.reset();
  begin(model);
}

void Job::setSampling(const SamplerOptions &options, const ModelInfo &model) {
  request.sampling = options;
  sampler = Sampler(options, model.vocabSize, model.tokenizerVocab,
                    request.answer, request.stopTokens);
}

void Job::draft(std::span<const int32_t> next) {
  tokens.resize(settled);
  tokens.insert(tokens.end(), next.begin(), next.end());
  drafted = std::ssize(next);
  accepted = 0;
}

bool Job::wants(int64_t position) const {
  const auto next = static_cast<size_t>(position) + 1;
  if (position < nextRow)
    return false;
  if (request.rows)
    return true;
  if (next < request.prompt.ids.size())
    return request.scorePrompt;
  return next >= settled && next < mostTokens;
}

bool Job::isCurrent(const Token &token) const {
  const auto position = static_cast<size_t>(token.position);
  return !ended && position < tokens.size() && tokens[position] == token.id;
}

bool Job::mayPrepare(const Token &token) const {
  return isCurrent(token) && !request.rows && !request.onDraw &&
         token.position + 1 >= promptSize();
}

void Job::copySampler(Sampler &other, int64_t position) const {
  other.become(sampler);
  for (size_t i = settled; i <= static_cast<size_t>(position); ++i)
    other.acceptDrawn(tokens[i]);
}

bool Job::prepare(const Token &token, std::span<const float> row, Sampler *with,
                  Draw &draw) noexcept {
  const auto next = static_cast<size_t>(token.position) + 1;
  try {
    draw.token = sample(with ? *with : sampler, next, row);
    if (next >= tokens.size() || tokens[next] != *draw.token ||
        isStopToken(*draw.token))
      return false;
    if (with)
      with->acceptDrawn(*draw.token);
    else
      see(next, *draw.token);
    return seen < doneAt;
  } catch (...) {
    draw.failure = std::current_exception();
    return false;
  }
}

bool Job::receive(const Token &token, std::span<float> row, const Draw &ahead) {
  const auto next = static_cast<size_t>(token.position) + 1;
  if (!isCurrent(token))
    return false;
  nextRow = token.position + 1;
  if (request.rows) {
    request.rows->receive(row);
    return false;
  }
  if (next < request.prompt.ids.size()) {
    tell(row, tokens[next], nextRow);
    return false;
  }
  draw(next, row, ahead);
  return true;
}

int32_t Job::sample(Sampler &with, size_t position,
                    std::span<const float> logits) {
  if (!owner->beams)
    return with.sample(allowed(logits), position);
  owner->beams->findCandidates(*this, logits);
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
  if (!request.constraint)
    return logits;
  const AddedTime time(constraintNanoseconds);
  const std::span<const uint32_t> words = request.constraint->allowed();
  if (words.empty())
    return logits;
  masked.resize(logits.size());
  copyAllowed(logits, words, masked);
  return masked;
}

void Job::draw(size_t position, std::span<float> logits, const Draw &ahead) {
  report(promptSize());
  std::optional<int32_t> token;
  if (request.onDraw)
    token = request.onDraw(logits, static_cast<int64_t>(position));
  if (!token)
    token = ahead.take();
  if (!token)
    token = sample(sampler, position, logits);
  if (owner->beams)
    return owner->beams->offer();
  settle(position, *token, logits);
}

bool Job::mayForce() const {
  return request.constraint && !request.logprobs && !request.onDraw && !ended &&
         settled > request.prompt.ids.size() && !isComplete();
}

void Job::lookAhead() noexcept {
  const AddedTime time(constraintNanoseconds);
  try {
    forced.token = onlyAllowed(request.constraint->allowed());
  } catch (...) {
    forced.failure = std::current_exception();
  }
}

bool Job::force() {
  const std::optional<int32_t> token = std::exchange(forced, {}).take();
  if (!token)
    return false;
  sampler.force(*token);
  settle(settled, *token, {});
  return true;
}

void Job::see(size_t position, int32_t token) {
  if (position < seen)
    return;
  if (request.constraint) {
    const AddedTime time(constraintNanoseconds);
    request.constraint->accept(token);
    if (request.constraint->isDone())
      doneAt = position + 1;
  }
  sampler.acceptDrawn(token);
  seen = position + 1;
}

void Job::settle(size_t position, int32_t token,
                 std::span<const float> logits) {
  see(position, token);
  if (position == tokens.size() || tokens[position] != token) {
    tokens.resize(position);
    tokens.push_back(token);
  } else {
    ++accepted;
  }
  settled = position + 1;
  tell(logits, token, static_cast<int64_t>(position));
  const bool isOver = settled >= doneAt;
  const auto isEnd = [&] {
    return isStopToken(token) && (!request.isEnd || request.isEnd(token));
  };
  if (!ended && (isOver || isEnd()))
    ended = EndReason::Stop;
}

void Job::tell(std::span<const float> logits, int32_t token, int64_t position) {
  TokenEvent event = {.id = token,
                      .position = position,
                      .isPrompt = position < promptSize(),
                      .logprob = 0,
                      .top = {}};
  if (request.logprobs) {
    const double sum = logSumExp(logits);
    const auto logprob = [&](int32_t of) {
      return static_cast<float>(logits[static_cast<size_t>(of)] - sum);
    };
    topTokens(logits, static_cast<size_t>(*request.logprobs), topIds);
    top.clear();
    for (int32_t each : topIds)
      top.push_back({each, logprob(each)});
    event.logprob = logprob(token);
    event.top = top;
  }
  if (request.onToken && !request.onToken(event))
    ended = EndReason::Callback;
}

void Job::report(int64_t done) {
  if (!request.onProgress || wasPreempted || done > promptSize() ||
      done == told)
    return;
  told = done;
  request.onProgress({done, promptSize(), cachedTokens});
}

std::span<Job *const> Job::sequences() const {
  return beams ? beams->running() : std::span(&self, 1);
}

std::span<Job *const> Job::allSequences() const {
  return beams ? beams->all() : std::span(&self, 1);
}

void Job::follow(const Job &other) {
  tokens = other.tokens;
  settled = other.settled;
  nextRow = other.nextRow;
  told = other.told;
  sampler.follow(other.sampler);
}

void Job::extend(int32_t token) {
  tokens.push_back(token);
  settled = tokens.size();
  sampler.acceptDrawn(token);
}

void Job::fail(const Error &reason) {
  if (owner != this)
    return owner->fail(reason);
  ended = EndReason::Failed;
  kind = reason.kind();
  error = reason.what();
}

void Job::endSearch() {
  const std::vector<BeamTokens> found = beams->answers();
  if (std::ssize(found) < request.answers)
    return fail(Error("the beam search found " + std::to_string(found.size()) +
                      " of " + std::to_string(request.answers) +
                      " answers: no token is left"));
  ended = std::ranges::count(request.stopTokens, found[0].ids.back())
              ? EndReason::Stop
              : EndReason::Length;
}

int64_t Job::tellAnswers() const {
  const auto count = static_cast<size_t>(request.answers);
  const std::vector<BeamTokens> answers =
      beams ? beams->answers() : std::vector<BeamTokens>(count);
  int64_t tokensOfAnswers = 0;
  for (const BeamTokens &answer : answers)
    tokensOfAnswers += std::ssize(answer.ids);
  if (request.onAnswers)
    request.onAnswers(answers);
  return tokensOfAnswers;
}

void Job::end(EndReason reason) {
  series.reset();
  int64_t drawn = static_cast<int64_t>(settled) - promptSize();
  if (beams)
    drawn = 0;
  if (request.beams.isSearch() &&
      (reason == EndReason::Stop || reason == EndReason::Length))
    try {
      drawn += tellAnswers();
    } catch (const std::bad_alloc &) {
      reason = EndReason::Failed;
      kind = ErrorKind::NoMemory;
      error = "out of memory";
    }
  if (request.onEnd)
    request.onEnd({reason, kind, error, promptSize(), cachedTokens, drawn});
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

void JobList::insert(std::unique_ptr<Job> &&job) {
  const auto key = [](const std::unique_ptr<Job> &of) {
    return std::tuple(-int64_t{of->request.priority}, of->deadline, of->id);
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
