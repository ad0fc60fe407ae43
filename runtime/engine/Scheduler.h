//===- Scheduler.h - Answers requests of any number of threads --*- C++ -*-===//
//
// Owns the thread that uses the engine, and the queue to it. Answers are the
// same, bit for bit, whatever else runs. docs/decisions/0013 has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_SCHEDULER_H
#define QWEN_RUNTIME_ENGINE_SCHEDULER_H

#include "engine/Batcher.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace qwen {

struct SchedulerOptions {
  /// Maximum number of requests that wait while the engine's sequences run
  /// others.
  size_t queue = 64;
  BatcherOptions batcher = {};
  /// Called on the scheduler's thread after each step, when all functions of
  /// requests have been called for it.
  std::function<void()> onStep = [] {};
};

/// What a scheduler does now, and sums since its start.
struct SchedulerCounts {
  /// Adds the counts of another scheduler.
  SchedulerCounts &operator+=(const SchedulerCounts &other);

  size_t waiting = 0;
  /// Series of the waiting ones that wait for their readers. They take no place
  /// in the queue.
  size_t held = 0;
  size_t running = 0;
  int64_t freePages = 0;
  /// Pages that the prefix cache has, free or not.
  int64_t keptPages = 0;
  BatcherCounts sums;
};

/// All threads may call all functions at the same time, also from a request's
/// functions.
class Scheduler {
public:
  /// Nothing else may use `engine`, which must outlive the scheduler. Throws
  /// Error if the system gives no thread.
  explicit Scheduler(Engine &engine, const SchedulerOptions &options = {});
  /// Closes it, and waits for the end of its thread.
  ~Scheduler();
  Scheduler(const Scheduler &) = delete;
  Scheduler &operator=(const Scheduler &) = delete;

  /// Adds a request. Throws Error if the queue is full or the request cannot
  /// run; none of its functions is called then.
  ///
  /// A series of requests has one number and one place in the queue: when one
  /// of them leaves it, `next` is called on the scheduler's thread and returns
  /// the one that takes its place, or nothing.
  RequestId submit(Request request,
                   std::function<std::optional<Request>()> next = {});

  /// Ends a request and its series before the next step. Does nothing if it has
  /// ended.
  void cancel(RequestId id);

  /// Asks Request::isHeld again.
  void wake();

  /// Cancels all requests. `submit` throws Error of the kind Cancelled from now
  /// on. Does not wait for the ends of the requests.
  void close();

  /// As of the last step.
  SchedulerCounts counts() const;
  /// Number of series that have not ended.
  size_t load() const;

private:
  void serve();
  /// Moves what has arrived to the batcher, and waits if there is nothing to
  /// do. Returns false if the scheduler ends.
  bool takeArrived();

  const ModelInfo &model;
  /// Maximum number of waiting requests.
  const size_t queue;
  /// Maximum number of running and waiting requests.
  const size_t mostSubmitted;
  const std::function<void()> onStep;
  /// The scheduler's thread uses this and what follows, up to the mutex.
  SequenceState &state;
  Batcher batcher;
  std::vector<std::unique_ptr<Job>> taken;
  std::vector<RequestId> takenCancels;

  /// Guards all below it.
  mutable std::mutex mutex;
  std::condition_variable changed;
  /// Number of series that have not ended.
  size_t submitted = 0;
  std::vector<std::unique_ptr<Job>> arrived;
  std::vector<RequestId> cancels;
  SchedulerCounts latest;
  RequestId lastId = 0;
  bool ending = false, isWoken = false;

  std::thread thread;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SCHEDULER_H
