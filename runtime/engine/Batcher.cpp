//===- Batcher.cpp - Runs requests in steps -------------------------------===//

#include "engine/Batcher.h"

#include "engine/Logprobs.h"
#include "engine/SteadyClock.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <tuple>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

Job::Job(Request newRequest, RequestId number, const ModelInfo &model)
    : request(std::move(newRequest)), id(number),
      sampler(request.sampling, model.vocabSize, model.tokenizerVocab,
              request.answer, request.stopTokens) {
  if (request.onLogits)
    model.output.requireScores(model.name);
  else if (!request.onHidden)
    model.output.requireLogits(model.name);
  const auto size = static_cast<int64_t>(request.prompt.size());
  if (size == 0)
    throw Error("the prompt is empty: at least one token is needed");
  if (size > model.context)
    throw Error("the prompt has " + std::to_string(size) + " tokens when " +
                    model.describeContext(),
                ErrorKind::PastContext);
  if (request.maxTokens < 0)
    throw Error("the answer has at most " + std::to_string(request.maxTokens) +
                " tokens when 0 or more is needed");
  if (request.scorePrompt && !request.logprobs)
    throw Error("the prompt has no scores without logprobs");
  for (int32_t token : request.prompt) {
    if (token < 0 || token >= model.vocabSize)
      throw Error("token id " + std::to_string(token) +
                      " is not in the model's vocabulary of " +
                      std::to_string(model.vocabSize),
                  ErrorKind::InvalidToken);
    sampler.acceptPrompt(token);
  }
  // The last drawn token never runs.
  mostTokens = static_cast<size_t>(
      size + (request.onHidden || request.onLogits
                  ? 0
                  : std::min(request.maxTokens, model.context + 1 - size)));
  tokens.reserve(mostTokens);
  tokens = request.prompt;
  if (request.logprobs) {
    const auto count =
        static_cast<size_t>(std::min(*request.logprobs, model.vocabSize));
    topIds.reserve(count);
    top.reserve(count);
  }
}

/// Whether `a` comes before `b`.
static bool isBefore(const std::unique_ptr<Job> &a,
                     const std::unique_ptr<Job> &b) {
  if (a->request.priority != b->request.priority)
    return a->request.priority > b->request.priority;
  if (a->deadline != b->deadline)
    return a->deadline < b->deadline;
  return a->id < b->id;
}

void Batcher::insert(Jobs &jobs, std::unique_ptr<Job> job) {
  jobs.insert(std::ranges::upper_bound(jobs, job, isBefore), std::move(job));
}

Batcher::Batcher(Engine &batchEngine, const BatcherOptions &batcherOptions)
    : engine(batchEngine), state(engine.state()), options(batcherOptions),
      prefixCache(state, options.snapshotEvery),
      pace(static_cast<size_t>(state.maxSequences()),
           options.promptTokens
               ? std::min(options.promptTokens, engine.maxCallTokens())
               : engine.maxCallTokens()),
      receiver([this](size_t index, std::span<float> logits) {
        receive(index, logits);
      }) {
  const auto sequences = static_cast<size_t>(state.maxSequences());
  running.reserve(sequences);
  const size_t tokens = sequences + static_cast<size_t>(engine.maxCallTokens());
  batch.reserve(tokens);
  owners.reserve(tokens);
  hidden.reserve(sequences);
  reading.reserve(sequences);
}

void Batcher::add(std::unique_ptr<Job> job) {
  job->prefix = {.salt = job->request.salt,
                 .snapshotAt = job->request.snapshotAt};
  job->deadline = sums.promptTokens + std::ssize(job->tokens) - find(*job).gain;
  insert(waiting, std::move(job));
}

void Batcher::end(Job &job, EndReason reason) {
  if (job.sequence >= 0)
    leave(job);
  const int64_t prompt = std::ssize(job.request.prompt);
  job.series.reset();
  if (job.request.onEnd)
    job.request.onEnd({reason, job.kind, job.error, prompt, job.cachedTokens,
                       std::ssize(job.tokens) - prompt});
}

void Batcher::cancel(RequestId id) {
  for (Jobs *jobs : {&waiting, &running})
    for (size_t i = jobs->size(); i-- > 0;)
      if ((*jobs)[i]->id == id) {
        const std::unique_ptr<Job> job = std::move((*jobs)[i]);
        jobs->erase(jobs->begin() + static_cast<int64_t>(i));
        end(*job, EndReason::Cancelled);
      }
}

void Batcher::cancelAll() {
  for (Jobs *jobs : {&waiting, &running})
    while (!jobs->empty())
      cancel(jobs->back()->id);
}

//===----------------------------------------------------------------------===//
// Who runs
//===----------------------------------------------------------------------===//

int64_t Batcher::remaining(const Job &job) const {
  return std::ssize(job.tokens) - state.length(job.sequence);
}

void Batcher::preemptLast() {
  std::unique_ptr<Job> job = std::move(running.back());
  running.pop_back();
  leave(*job);
  job->wasPreempted = true;
  ++sums.preemptions;
  insert(waiting, std::move(job));
}

void Batcher::leave(Job &job) {
  const bool hasAnswer = !job.request.onHidden && !job.request.onLogits;
  if (options.prefixCache && hasAnswer)
    prefixCache.snapshot(job.sequence, job.tokens, job.prefix);
  close(job);
}

void Batcher::close(Job &job) {
  state.close(job.sequence);
  job.sequence = -1;
  job.prefix.pages = 0;
  job.prefix.last = 0;
}

PrefixCache::Hit Batcher::find(const Job &job) const {
  if (!options.prefixCache ||
      (job.request.scorePrompt && job.scored < job.request.prompt.size()))
    return {.pages = job.prefix.pages};
  return prefixCache.find(job.tokens, job.prefix);
}

void Batcher::resume(Job &job, const PrefixCache::Hit &hit) {
  prefixCache.resume(job.sequence, hit);
  sums.cachedTokens += hit.gain;
  if (!job.wasPreempted)
    job.cachedTokens += hit.gain;
}

int64_t Batcher::promisedPages() const {
  int64_t pages = 0;
  for (const std::unique_ptr<Job> &job : running)
    pages += ceilDiv(std::ssize(job->tokens), kPageTokens) + 1 -
             ceilDiv(state.length(job->sequence), kPageTokens);
  return pages;
}

bool Batcher::start(Job &job) {
  if (state.freeSequences() == 0)
    return false;
  job.sequence = state.open();
  const PrefixCache::Hit hit = find(job);
  prefixCache.share(job.sequence, job.tokens, job.prefix, hit);
  const int64_t needed =
      ceilDiv(std::ssize(job.tokens), kPageTokens) - hit.pages;
  if (needed + promisedPages() > state.freePages()) {
    close(job);
    return false;
  }
  resume(job, hit);
  return true;
}

void Batcher::addNext(const Job &job) {
  if (!job.series || !job.series->next || job.wasPreempted)
    return;
  while (std::optional<Request> request = job.series->next()) {
    const auto onEnd = request->onEnd;
    const int64_t prompt = std::ssize(request->prompt);
    try {
      auto next = std::make_unique<Job>(std::move(*request), job.id,
                                        engine.manifest().model);
      next->series = job.series;
      return add(std::move(next));
    } catch (const Error &error) {
      if (onEnd)
        onEnd({EndReason::Failed, error.kind(), error.what(), prompt, 0, 0});
    }
  }
}

void Batcher::startWaiting() {
  while (!waiting.empty()) {
    Job &job = *waiting.front();
    bool started = start(job);
    while (!started && !running.empty() &&
           running.back()->request.priority < job.request.priority) {
      preemptLast();
      started = start(job);
    }
    if (!started && !running.empty())
      return;
    // The first request is still this one: preempted requests come after it.
    std::unique_ptr<Job> first = std::move(waiting.front());
    waiting.erase(waiting.begin());
    addNext(*first);
    if (started) {
      if (first->request.onStart && !first->wasPreempted)
        first->request.onStart();
      insert(running, std::move(first));
      continue;
    }
    fail(*first,
         Error("the request has " + std::to_string(first->tokens.size()) +
                   " tokens when all " + std::to_string(state.pages()) +
                   " pages of the KV cache have room for " +
                   std::to_string(state.pages() * kPageTokens),
               ErrorKind::NoPage));
    end(*first, EndReason::Failed);
  }
}

void Batcher::reservePages() {
  reserved = 0;
  for (size_t i = 0; i < running.size(); ++i) {
    Job &job = *running[i];
    if (state.length(job.sequence) % kPageTokens)
      continue;
    const PrefixCache::Hit hit = find(job);
    // A snapshot may need one more page.
    if (state.freePages() - (hit.pages - job.prefix.pages) > reserved) {
      prefixCache.share(job.sequence, job.tokens, job.prefix, hit);
      resume(job, hit);
    }
    if (state.length(job.sequence) % kPageTokens)
      continue;
    while (state.freePages() <= reserved && i + 1 < running.size())
      preemptLast();
    if (state.freePages() > reserved) {
      ++reserved;
    } else if (i > 0) {
      preemptLast();
    } else {
      fail(job, Error("the request has " + std::to_string(job.tokens.size()) +
                          " tokens and " + state.describeFull(),
                      ErrorKind::NoPage));
    }
  }
  removeEnded();
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

void Batcher::append(Job &job, int64_t count) {
  const int64_t first = state.length(job.sequence);
  const auto end = static_cast<size_t>(first + count);
  for (auto i = static_cast<size_t>(first); i < end; ++i) {
    const bool isLast = i + 1 == job.tokens.size();
    const bool isScored = job.request.scorePrompt && i + 1 >= job.scored &&
                          i + 1 < job.request.prompt.size();
    batch.push_back(
        {job.tokens[i], job.sequence, static_cast<int64_t>(i),
         isScored ||
             (isLast && (job.tokens.size() < job.mostTokens ||
                         job.request.onHidden || job.request.onLogits))});
    owners.push_back(&job);
  }
}

void Batcher::plan() {
  batch.clear();
  owners.clear();
  decoding = 0;
  promptTokens = 0;
  hidden.clear();
  for (const std::unique_ptr<Job> &job : running) {
    if (remaining(*job) != 1)
      continue;
    if (job->request.onHidden) {
      hidden.push_back(job.get());
    } else {
      append(*job, 1);
      ++decoding;
    }
  }
  planPrompts();
}

void Batcher::planPrompts() {
  reading.clear();
  for (const std::unique_ptr<Job> &job : running)
    if (remaining(*job) > 1)
      reading.push_back(job.get());
  if (reading.empty())
    return;
  // The first request gets a part of each step, so that it does not wait for
  // ever. The rest goes to short prompts, which should not wait for a long one.
  const Job *const first = reading.front();
  std::ranges::sort(reading, {}, [&](const Job *job) {
    return std::tuple(-int64_t{job->request.priority}, remaining(*job),
                      job->deadline, job->id);
  });
  const int64_t most = pace.promptTokens(decoding);
  int64_t kept = std::max<int64_t>(1, most / 4);
  int64_t spare = state.freePages() - reserved;
  for (Job *job : reading) {
    if (job == first)
      kept = 0;
    const int64_t length = state.length(job->sequence);
    const int64_t left = remaining(*job);
    const int64_t room = kPageTokens - length % kPageTokens;
    const int64_t count =
        std::min({job->request.onHidden ? left - 1 : left,
                  most - promptTokens - kept, room + spare * kPageTokens,
                  prefixCache.untilSnapshot(job->prefix, length)});
    if (count <= 0)
      continue;
    spare -= ceilDiv(std::max<int64_t>(count - room, 0), kPageTokens);
    append(*job, count);
    promptTokens += count;
  }
}

void Batcher::step() {
  startWaiting();
  reservePages();
  plan();
  if (running.empty())
    return;
  const int64_t start = steadyNanoseconds();
  run(RowKind::Logits);
  runHidden();
  pace.record(decoding, promptTokens,
              static_cast<double>(steadyNanoseconds() - start) * 1e-9);
  ++sums.steps;
  sums.promptTokens += promptTokens;
  for (const std::unique_ptr<Job> &job : running)
    advance(*job);
  removeEnded();
}

void Batcher::runHidden() {
  if (hidden.empty())
    return;
  batch.clear();
  owners.clear();
  for (Job *job : hidden)
    if (!job->ended)
      append(*job, 1);
  run(RowKind::Hidden);
  promptTokens += std::ssize(hidden);
}

void Batcher::run(RowKind kind) {
  rows = kind;
  try {
    for (const Failure &failure : engine.run(batch, receiver, kind)) {
      const auto owner =
          std::ranges::find(running, failure.sequence,
                            [](const auto &job) { return job->sequence; });
      fail(**owner, Error(engine.describe(failure), failure.kind));
    }
  } catch (const Error &error) {
    for (const std::unique_ptr<Job> &job : running)
      fail(*job, error);
  }
}

void Batcher::receive(size_t index, std::span<float> logits) {
  Job &job = *owners[index];
  if (job.ended)
    return;
  if (rows == RowKind::Hidden) {
    job.request.onHidden(logits);
    return;
  }
  const auto next = static_cast<size_t>(batch[index].position) + 1;
  if (next < job.request.prompt.size()) {
    tell(job, logits, job.tokens[next], batch[index].position + 1);
    job.scored = next + 1;
    return;
  }
  if (job.request.onLogits) {
    job.request.onLogits(logits);
    return;
  }
  try {
    draw(job, logits);
  } catch (const Error &error) {
    fail(job, error);
  }
}

void Batcher::draw(Job &job, std::span<float> logits) {
  const size_t position = job.tokens.size();
  report(job, std::ssize(job.request.prompt));
  std::optional<int32_t> given;
  if (job.request.onDraw)
    given = job.request.onDraw();
  const int32_t id = given ? *given : job.sampler.sample(logits, position);
  job.sampler.acceptDrawn(id);
  job.tokens.push_back(id);
  ++sums.drawnTokens;
  tell(job, logits, id, static_cast<int64_t>(position));
  if (!job.ended && std::ranges::count(job.request.stopTokens, id))
    job.ended = EndReason::Stop;
}

void Batcher::tell(Job &job, std::span<const float> logits, int32_t id,
                   int64_t position) {
  TokenEvent event = {.id = id,
                      .position = position,
                      .isPrompt = position < std::ssize(job.request.prompt),
                      .logprob = 0,
                      .top = {}};
  if (job.request.logprobs) {
    const double sum = logSumExp(logits);
    const auto logprob = [&](int32_t token) {
      return static_cast<float>(logits[static_cast<size_t>(token)] - sum);
    };
    topTokens(logits, static_cast<size_t>(*job.request.logprobs), job.topIds);
    job.top.clear();
    for (int32_t token : job.topIds)
      job.top.push_back({token, logprob(token)});
    event.logprob = logprob(id);
    event.top = job.top;
  }
  if (job.request.onToken && !job.request.onToken(event))
    job.ended = EndReason::Callback;
}

void Batcher::report(Job &job, int64_t done) {
  const int64_t prompt = std::ssize(job.request.prompt);
  if (!job.request.onProgress || job.wasPreempted || done > prompt ||
      done == job.told)
    return;
  job.told = done;
  job.request.onProgress({done, prompt, job.cachedTokens});
}

void Batcher::advance(Job &job) {
  if (options.prefixCache)
    prefixCache.keep(job.sequence, job.tokens, job.prefix);
  const int64_t length = state.length(job.sequence);
  const int64_t prompt = std::ssize(job.request.prompt);
  report(job, length);
  if (!job.ended && job.tokens.size() == job.mostTokens && length >= prompt)
    job.ended = EndReason::Length;
}

void Batcher::fail(Job &job, const Error &error) {
  job.ended = EndReason::Failed;
  job.kind = error.kind();
  job.error = error.what();
}

void Batcher::removeEnded() {
  for (size_t i = running.size(); i-- > 0;)
    if (running[i]->ended) {
      const std::unique_ptr<Job> job = std::move(running[i]);
      running.erase(running.begin() + static_cast<int64_t>(i));
      end(*job, *job->ended);
    }
}
