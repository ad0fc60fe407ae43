//===- Scheduler.cpp - Answers requests of any number of threads ----------===//

#include "engine/Scheduler.h"

#include "qwen/Support/Process.h"

#include <new>

using namespace qwen;

Scheduler::Scheduler(Engine &engine, const SchedulerOptions &options)
    : model(engine.manifest().model), queue(options.queue),
      mostSubmitted(queue + static_cast<size_t>(engine.state().maxSequences())),
      onStep(options.onStep), state(engine.state()),
      batcher(engine, options.batcher) {
  latest.freePages = state.freePages();
  thread = startThread("runs requests", [this] { serve(); });
}

Scheduler::~Scheduler() {
  close();
  thread.join();
}

void Scheduler::close() {
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  changed.notify_one();
}

RequestId Scheduler::submit(Request request,
                            std::function<std::optional<Request>()> next) {
  RequestId id;
  {
    const std::lock_guard lock(mutex);
    id = ++lastId;
  }
  auto series = std::make_shared<Series>();
  series->next = std::move(next);
  auto job =
      std::make_unique<Job>(std::move(request), id, model, std::move(series));
  if (const auto beams = std::ssize(job->allTracks());
      beams > state.maxSequences())
    throw Error("num-beams is " + std::to_string(beams) + " when at most " +
                std::to_string(state.maxSequences()) + " sequences run");
  {
    const std::lock_guard lock(mutex);
    if (ending)
      throw Error("the scheduler has ended", ErrorKind::Cancelled);
    if (submitted >= mostSubmitted + latest.held)
      throw Error("the queue is full: " + std::to_string(queue) +
                      " requests wait",
                  ErrorKind::QueueFull);
    ++submitted;
    job->series()->onDone = [this] {
      const std::lock_guard guard(mutex);
      --submitted;
    };
    arrived.push_back(std::move(job));
  }
  changed.notify_one();
  return id;
}

void Scheduler::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex);
    cancels.push_back(id);
  }
  changed.notify_one();
}

void Scheduler::wake() {
  {
    const std::lock_guard lock(mutex);
    isWoken = true;
  }
  changed.notify_one();
}

SchedulerCounts Scheduler::counts() const {
  const std::lock_guard lock(mutex);
  return latest;
}

size_t Scheduler::load() const {
  const std::lock_guard lock(mutex);
  return submitted;
}

SchedulerCounts &SchedulerCounts::operator+=(const SchedulerCounts &other) {
  waiting += other.waiting;
  held += other.held;
  running += other.running;
  freePages += other.freePages;
  keptPages += other.keptPages;
  sums += other.sums;
  return *this;
}

bool Scheduler::takeArrived() {
  {
    std::unique_lock lock(mutex);
    const auto note = [&] {
      latest = {batcher.waitingCount(), batcher.heldCount(),
                batcher.runningCount(), state.freePages(),
                state.keptPages(),      batcher.counts()};
    };
    note();
    changed.wait(lock, [&] {
      return ending || isWoken || !arrived.empty() || !cancels.empty() ||
             !batcher.isIdle();
    });
    isWoken = false;
    taken.swap(arrived);
    takenCancels.swap(cancels);
    latest.waiting += taken.size();
    if (ending)
      return false;
  }
  for (std::unique_ptr<Job> &job : taken)
    batcher.add(std::move(job));
  taken.clear();
  for (RequestId id : takenCancels)
    batcher.cancel(id);
  takenCancels.clear();
  return true;
}

void Scheduler::serve() {
  while (takeArrived()) {
    try {
      batcher.step();
    } catch (const std::bad_alloc &) {
      // It was not for one request alone.
      batcher.failAll();
    }
    onStep();
  }
  for (std::unique_ptr<Job> &job : taken)
    batcher.add(std::move(job));
  batcher.cancelAll();
  onStep();
}
