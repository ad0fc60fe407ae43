//===- Batcher.cpp - Runs requests in steps -------------------------------===//

#include "engine/Batcher.h"

#include "engine/Beams.h"
#include "engine/SteadyClock.h"
#include "engine/drafters/Drafters.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

using namespace qwen;

/// The most drafts of a sequence that can lose them again.
static int64_t mostDraftsOf(Engine &engine) {
  return engine.state().maxStepping() > 0 ? stepBackOf(engine.manifest()) : 0;
}

Batcher::Batcher(Engine &batchEngine, const BatcherOptions &options)
    : engine(batchEngine), model(engine.manifest().model),
      mostPrompt(options.promptTokens
                     ? std::min(options.promptTokens, engine.maxCallTokens())
                     : engine.maxCallTokens()),
      rowsOfCall(std::min(engine.maxCallTokens(), engine.maxCallRows())),
      paced(options.paced), mostDrafts(mostDraftsOf(engine)),
      fixedDrafts(options.drafts),
      pages(engine.state(), options.prefixCache,
            options.snapshotEvery.value_or(engine.snapshotEvery()),
            options.store, options.events,
            [this](size_t items, const std::function<void(size_t)> &visit) {
              engine.forEach(items, visit);
            }),
      pace(engine.state().maxSequences() + engine.maxCallRows(), mostPrompt,
           model.experts.has_value()),
      draftPace(engine.state().maxSequences() + engine.maxCallRows(),
                rowsOfCall),
      drafter(options.drafter  ? options.drafter(engine)
              : mostDrafts > 0 ? makeDrafter(engine.speculate(), engine)
                               : nullptr),
      receiver([this](std::span<const Engine::Row> rows) { receive(rows); }) {
  const auto sequences = static_cast<size_t>(engine.state().maxSequences());
  running.reserve(sequences);
  order.reserve(sequences);
  ranges.reserve(sequences + static_cast<size_t>(engine.threads()));
  draws.reserve(static_cast<size_t>(engine.maxCallTokens()));
  ahead.reserve(sequences);
  const size_t tokens = sequences + static_cast<size_t>(engine.maxCallTokens() +
                                                        engine.maxCallRows());
  batch.reserve(tokens);
  owners.reserve(tokens);
  drafts.reserve(static_cast<size_t>(rowsOfCall));
  places.reserve(static_cast<size_t>(engine.maxCallTokens()));
  wishes.reserve(sequences);
  orders.reserve(sequences);
  if (const auto share = drafter ? drafter->usualShare() : std::nullopt)
    draftPace.expect(*share);
}

// Only memory can lack.
// NOLINTNEXTLINE(bugprone-exception-escape)
Batcher::~Batcher() {
  while (!running.empty())
    pages.close(*running.takeBack());
}

void Batcher::enqueue(JobList &list, std::unique_ptr<Job> job) {
  attempt(*job, [&] { list.insert(std::move(job)); });
  if (job)
    end(std::move(job), EndReason::Failed);
}

void Batcher::add(std::unique_ptr<Job> job) {
  attempt(*job,
          [&] { job->setDeadline(sums.promptTokens + pages.enter(*job)); });
  if (job->ended())
    return end(std::move(job), EndReason::Failed);
  enqueue(waiting, std::move(job));
}

void Batcher::restart(Job &job, const Continuation &next) {
  model.requirePrompt(next.prompt, "the prompt");
  endDrafts(job);
  pages.restart(job, next, model);
  if (job.track().sequence() >= 0)
    beginDrafts(job);
}

void Batcher::keep(const Job &job) {
  if (job.track().sequence() >= 0)
    pages.keep(job);
}

size_t Batcher::runningCount() const {
  if (isIdle())
    return 0;
  size_t count = 0;
  for (const std::unique_ptr<Job> &job : running.all())
    count += job->allTracks().size();
  return std::max(count, order.size());
}

BatcherCounts &BatcherCounts::operator+=(const BatcherCounts &other) {
  for (int64_t BatcherCounts::*sum :
       {&BatcherCounts::steps, &BatcherCounts::promptTokens,
        &BatcherCounts::cachedTokens, &BatcherCounts::drawnTokens,
        &BatcherCounts::preemptions, &BatcherCounts::drafts,
        &BatcherCounts::draftTokens, &BatcherCounts::acceptedTokens,
        &BatcherCounts::constraintNanoseconds})
    this->*sum += other.*sum;
  return *this;
}

BatcherCounts Batcher::counts() const {
  BatcherCounts counts = sums;
  counts.cachedTokens = pages.cachedTokens();
  return counts;
}

void Batcher::end(std::unique_ptr<Job> job, EndReason reason) {
  endDrafts(*job);
  try {
    if (job->track().sequence() >= 0)
      pages.leave(*job);
  } catch (const std::bad_alloc &) {
    // Its tokens are not kept.
    pages.close(*job);
  }
  job->end(reason);
}

void Batcher::cancel(RequestId id) {
  for (JobList *jobs : {&waiting, &held, &running})
    for (size_t i = jobs->size(); i-- > 0;)
      if ((*jobs)[i].id() == id)
        end(jobs->take(i), EndReason::Cancelled);
  if (heldSeries)
    countHeld();
}

void Batcher::cancelAll() {
  for (JobList *jobs : {&waiting, &held, &running})
    while (!jobs->empty())
      cancel(jobs->back().id());
}

void Batcher::failAll() {
  while (!running.empty()) {
    std::unique_ptr<Job> job = running.takeBack();
    job->fail(noMemory);
    end(std::move(job), EndReason::Failed);
  }
}

//===----------------------------------------------------------------------===//
// Who runs
//===----------------------------------------------------------------------===//

void Batcher::interrupt(Job &job) {
  attempt(job, [&] {
    pages.leave(job);
    if (job.beams())
      job.beams()->join();
  });
  job.preempt();
}

void Batcher::preemptLast() {
  std::unique_ptr<Job> job = running.takeBack();
  interrupt(*job);
  ++sums.preemptions;
  if (job->ended())
    return end(std::move(job), EndReason::Failed);
  enqueue(waiting, std::move(job));
}

void Batcher::countHeld() {
  try {
    std::set<RequestId> series;
    for (const std::unique_ptr<Job> &job : held.all())
      series.insert(job->id());
    heldSeries = series.size();
  } catch (const std::bad_alloc &) {
    // The queue takes fewer requests meanwhile.
    heldSeries = 0;
  }
}

void Batcher::hold() {
  bool isChanged = false;
  for (size_t i = held.size(); i-- > 0;)
    if (!held[i].isHeld()) {
      enqueue(waiting, held.take(i));
      isChanged = true;
    }
  for (JobList *jobs : {&waiting, &running})
    for (size_t i = jobs->size(); i-- > 0;) {
      if (!(*jobs)[i].isHeld())
        continue;
      std::unique_ptr<Job> job = jobs->take(i);
      if (job->track().sequence() >= 0)
        interrupt(*job);
      if (const std::optional<EndReason> reason = job->ended())
        end(std::move(job), *reason);
      else
        enqueue(held, std::move(job));
      isChanged = true;
    }
  if (isChanged)
    countHeld();
}

void Batcher::addNext(const Job &job) {
  const std::shared_ptr<Series> &series = job.series();
  if (!series || !series->next || job.wasPreempted())
    return;
  while (std::optional<Request> request = series->next()) {
    const auto onEnd = request->onEnd;
    const int64_t prompt = std::ssize(request->prompt.ids);
    const auto fail = [&](const Error &error) {
      if (onEnd)
        onEnd({EndReason::Failed, error.kind(), error.what(), prompt, 0, 0});
    };
    try {
      return add(
          std::make_unique<Job>(std::move(*request), job.id(), model, series));
    } catch (const Error &error) {
      fail(error);
    } catch (const std::bad_alloc &) {
      fail(noMemory);
    }
  }
}

void Batcher::startWaiting() {
  while (!waiting.empty()) {
    Job &next = waiting.front();
    bool started = false;
    // It goes on in the next step, as a long prompt does.
    if (!pages.load(next, running))
      return;
    const auto open = [&] {
      attempt(next, [&] { started = pages.open(next, running); });
      return started || next.ended();
    };
    while (!open() && !running.empty() &&
           running.back().request().priority < next.request().priority)
      preemptLast();
    if (!started && !next.ended() && !running.empty())
      return;
    // The first job is still this one: preempted jobs come after it.
    std::unique_ptr<Job> first = waiting.take(0);
    attempt(*first, [&] { addNext(*first); });
    if (started && !first->wasPreempted())
      attempt(*first, [&] { first->start(); });
    if (started && !first->wasPreempted() && !first->ended())
      attempt(*first, [&] { beginDrafts(*first); });
    if (!started && !first->ended())
      attempt(*first, [&] { first->fail(pages.tooLong(*first)); });
    if (first->ended())
      end(std::move(first), EndReason::Failed);
    else
      running.insert(std::move(first));
  }
}

void Batcher::reservePages() {
  for (size_t i = 0; i < running.size(); ++i) {
    Job &job = running[i];
    while (!job.ended() && !pages.promise(job)) {
      if (running.size() == 1) {
        job.fail(pages.noneLeft(job));
        break;
      }
      const bool isLast = i + 1 == running.size();
      preemptLast();
      if (isLast)
        break;
    }
  }
  removeEnded();
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

int64_t Batcher::loadTime() const {
  // Beside others, a prompt may take as long as a step of theirs; alone, it
  // delays only those that come meanwhile.
  constexpr int64_t kLeast = 5'000'000, kMost = 100'000'000;
  return running.empty() ? kMost : std::clamp(stepNanoseconds, kLeast, kMost);
}

void Batcher::append(Track &track, int64_t count) {
  const Job &job = track.job();
  const int64_t first = pages.computed(track);
  for (int64_t i = first; i < first + count; ++i) {
    batch.push_back({track.known()[static_cast<size_t>(i)], track.sequence(), i,
                     job.wants(track, i), job.rowKind()});
    owners.push_back(&track);
  }
}

const Track *Batcher::findOrder() {
  order.clear();
  decoding = 0;
  const Track *first = nullptr;
  for (const std::unique_ptr<Job> &job : running.all()) {
    for (Track *track : job->tracks()) {
      if (job->ended() || pages.behind(*track) == 0)
        continue;
      order.push_back(track);
      if (!isInPrompt(*track))
        ++decoding;
      else if (!first)
        first = track;
    }
  }
  std::ranges::sort(order, {}, [&](const Track *track) {
    const bool late = isLate(*track);
    const Job &job = track->job();
    return std::tuple(late, late ? -int64_t{job.request().priority} : 0,
                      late ? pages.behind(*track) : 0, job.deadline(),
                      job.id());
  });
  return first;
}

int64_t Batcher::promptLimit() const {
  const int64_t full = std::max<int64_t>(0, (decoding - 1) / rowsOfCall);
  // A few tokens in a further call would read all weights again.
  const int64_t beside =
      engine.maxCallTokens() - (decoding - full * rowsOfCall);
  return std::min(paced ? pace.promptTokens(decoding) : mostPrompt,
                  std::max(beside, pace.leastPrompt()));
}

void Batcher::plan() {
  batch.clear();
  owners.clear();
  promptTokens = 0;
  // The first late prompt gets a part of each step, so that it does not wait
  // for ever. The rest goes to short prompts, which should not wait for a long
  // one.
  const Track *first = findOrder();
  draft();
  const int64_t most = promptLimit();
  int64_t kept = std::max<int64_t>(1, most / 4);
  int64_t spare = pages.spare();
  for (Track *track : order) {
    const bool late = isLate(*track);
    if (track == first)
      kept = 0;
    // A token of an answer runs in each step, as it does without forced ones.
    const int64_t own = isInPrompt(*track) ? 0 : 1;
    const int64_t allowed =
        late ? own + std::max<int64_t>(0, most - promptTokens - kept)
             : INT64_MAX;
    const int64_t count =
        std::min({pages.behind(*track), allowed, pages.room(*track, spare)});
    if (count <= 0)
      continue;
    spare -= pages.pagesFor(*track, count);
    append(*track, count);
    promptTokens += late ? count - own : 0;
  }
}

void Batcher::step() {
  hold();
  pages.beginStep(steadyNanoseconds() + loadTime());
  startWaiting();
  reservePages();
  const int64_t start = steadyNanoseconds();
  plan();
  if (batch.empty())
    return;
  run();
  tellAccepted();
  force();
  stepNanoseconds = steadyNanoseconds() - start;
  const double seconds = static_cast<double>(stepNanoseconds) * 1e-9;
  pace.record(decoding, promptTokens, seconds);
  if (drafter && promptTokens == 0)
    draftPace.record(std::ssize(batch),
                     seconds - static_cast<double>(drafterNanoseconds) * 1e-9);
  if (drafter)
    for (const auto &[rows, ofCall] : drafter->calls())
      draftPace.recordCall(rows, ofCall);
  ++sums.steps;
  sums.promptTokens += promptTokens;
  for (const std::unique_ptr<Job> &job : running.all())
    attempt(*job, [&] { endStep(*job); });
  removeEnded();
}

void Batcher::endStep(Job &job) {
  for (Track *track : job.tracks())
    pages.endStep(*track);
  job.report(pages.computed(*job.tracks().front()));
  sums.constraintNanoseconds += job.takeConstraintTime();
  if (job.ended())
    return;
  if (Beams *beams = job.beams()) {
    beams->endStep(pages);
    if (beams->isDone())
      job.endSearch();
  } else if (job.isComplete() &&
             pages.computed(job.track()) >= job.promptSize()) {
    job.stop(EndReason::Length);
  }
}

void Batcher::run() {
  try {
    for (const Failure &failure : engine.run(batch, receiver)) {
      Track &track =
          **std::ranges::find(order, failure.sequence, &Track::sequence);
      // A wrong draft may fail: the answer does not have it.
      if (track.isCurrent(failure.position, failure.id))
        track.job().fail(Error(engine.describe(failure), failure.kind));
    }
  } catch (const Error &error) {
    for (Track *track : order)
      track->job().fail(error);
  } catch (const std::bad_alloc &) {
    for (Track *track : order)
      track->job().fail(noMemory);
  }
}

void Batcher::divide(std::span<const Engine::Row> rows) {
  ranges.clear();
  // There are fewer further ranges of tracks than threads.
  const auto most =
      static_cast<size_t>(ceilDiv(std::ssize(rows), int64_t{engine.threads()}));
  size_t used = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    Track *track = owners[rows[i].index];
    if (!track->job().mayPrepare(*track, batch[rows[i].index]))
      continue;
    const bool isNew = ranges.empty() || ranges.back().track != track;
    if (isNew)
      ranges.push_back({track, i, i + 1, nullptr});
    else if (i - ranges.back().begin < most || !track->job().mayDivide())
      ++ranges.back().end;
    else
      ranges.push_back({track, i, i + 1, &samplers[used++]});
  }
}

void Batcher::prepare(std::span<const Engine::Row> rows) {
  draws.assign(rows.size(), {});
  divide(rows);
  const auto tokenOf = [&](size_t row) -> const Token & {
    return batch[rows[row].index];
  };
  const auto copy = [&](size_t i) {
    const auto [track, begin, end, sampler] = ranges[i];
    if (sampler)
      track->copySampler(*sampler, tokenOf(begin).position);
  };
  const auto draw = [&](size_t i) {
    const auto [track, begin, end, sampler] = ranges[i];
    for (size_t row = begin; row < end; ++row)
      if (!track->job().prepare(*track, tokenOf(row), rows[row].values, sampler,
                                draws[row]))
        break;
  };
  // Draws with a track's own sampler change it.
  if (std::ranges::any_of(ranges, &Range::sampler))
    engine.forEach(ranges.size(), std::ref(copy));
  engine.forEach(ranges.size(), std::ref(draw));
}

void Batcher::receive(std::span<const Engine::Row> rows) {
  prepare(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [index, values] = rows[i];
    Track &track = *owners[index];
    attempt(track.job(), [&] {
      sums.drawnTokens +=
          track.job().receive(track, batch[index], values, draws[i]);
    });
  }
  if (drafter)
    follow();
}

void Batcher::follow() {
  places.clear();
  for (size_t row = 0; row < engine.lastCall().size(); ++row) {
    const size_t index = engine.lastCall()[row];
    const Track &track = *owners[index];
    // A sequence that has stopped lacks its last positions.
    if (const int64_t position = batch[index].position;
        !track.job().ended() && position < pages.computed(track))
      places.push_back({&track, position, row});
  }
  Step step(engine, places);
  drafter->follow(step);
}

void Batcher::tellAccepted() {
  for (size_t i = 0; i < wishes.size(); ++i) {
    Track &track = *order[i];
    const int64_t drafted = track.takeDrafted(), accepted = track.accepted();
    if (!drafted)
      continue;
    // Forced tokens come behind the settled ones.
    pages.removeDrafts(track);
    DraftRecord &record = track.job().drafts();
    record.drafted += drafted;
    record.accepted += accepted;
    ++sums.drafts;
    sums.draftTokens += drafted;
    sums.acceptedTokens += accepted;
    draftPace.accept(record.shares, wishes[i].strength, drafted, accepted);
    attempt(track.job(), [&] { drafter->accept(track, drafted, accepted); });
  }
}

void Batcher::beginDrafts(Job &job) {
  if (!drafter || job.request().rows || job.beams())
    return;
  while (std::ssize(samplers) + 1 < engine.threads())
    samplers.emplace_back(SamplerOptions(), model.vocabSize,
                          model.tokenizerVocab);
  for (Sampler &sampler : samplers)
    job.track().reserveSampler(sampler);
  drafter->begin(job.track());
  job.drafts().isOn = true;
}

void Batcher::endDrafts(Job &job) {
  if (job.hasDrafter())
    drafter->end(job.track());
  job.drafts().isOn = false;
}

/// Tokens of an answer that a step appends without a draw, at most: each takes
/// a mask, which other answers wait for.
static constexpr int kMostForced = 32;

void Batcher::force() {
  ahead.clear();
  for (const std::unique_ptr<Job> &job : running.all())
    if (job->mayForce() && !isLate(job->track()))
      ahead.push_back(job.get());
  const auto lookAhead = [&](size_t i) { ahead[i]->lookAhead(); };
  const auto isDone = [&](Job *job) {
    bool isForced = false;
    attempt(*job, [&] {
      isForced = job->force();
      sums.drawnTokens += isForced;
    });
    return !isForced || !job->mayForce();
  };
  for (int i = 0; i < kMostForced && !ahead.empty(); ++i) {
    engine.forEach(ahead.size(), std::ref(lookAhead));
    std::erase_if(ahead, isDone);
  }
}

void Batcher::removeEnded() {
  for (size_t i = running.size(); i-- > 0;)
    if (running[i].ended() && !running[i].request().isContinued) {
      const EndReason reason = *running[i].ended();
      end(running.take(i), reason);
    }
}
