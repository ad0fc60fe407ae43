//===- ModelPool.h - Models that are loaded on demand -----------*- C++ -*-===//
//
// Which of the models of a process are loaded: one at a time is loaded, and the
// one that was used least recently goes where memory lacks. The pool knows
// neither requests nor files (docs/decisions/0041-several-models.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_MODEL_MODELPOOL_H
#define QWEN_RUNTIME_MODEL_MODELPOOL_H

#include "engine/MemoryBudget.h"

#include "qwen/Support/Error.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace qwen {

/// A model that is loaded. Its end unloads it.
class LoadedModel {
public:
  LoadedModel() = default;
  LoadedModel(const LoadedModel &) = delete;
  LoadedModel &operator=(const LoadedModel &) = delete;
  virtual ~LoadedModel() = default;

  /// The bytes that it has of the pool's budget.
  virtual uint64_t bytes() const = 0;
};

/// What a load does now, and how much of it is done.
struct LoadProgress {
  std::string stage = {};
  /// Of `total` parts; both are 0 if there is nothing to count.
  uint64_t done = 0, total = 0;
};

/// Throws Error of the kind Cancelled when the pool ends.
using LoadProgressFn = std::function<void(const LoadProgress &progress)>;

/// How a pool loads a model. Its thread alone calls the functions, which throw
/// Error.
struct PoolModel {
  std::string name;
  /// Makes what `load` needs, such as a compiled file. Returns the bytes of the
  /// budget without which the model does not run.
  std::function<uint64_t(const LoadProgressFn &tell)> prepare;
  std::function<std::unique_ptr<LoadedModel>()> load;
};

/// Why a load failed. No exception, because it passes between threads.
struct LoadFailure {
  std::string text = {};
  ErrorKind kind = ErrorKind::General;
};

enum class ModelState : uint8_t { Unloaded, Waiting, Loading, Loaded };

struct ModelStatus {
  ModelState state = ModelState::Unloaded;
  /// Of a model that is loading.
  LoadProgress progress = {};
  /// Why the last load failed; empty if it did not.
  std::string failure = {};
  /// Requests that it answers now.
  size_t users = 0;
  /// The bytes of a loaded model, and the number of loads.
  uint64_t bytes = 0, loads = 0;
};

struct ModelPoolOptions {
  /// A model that has no request for this time is unloaded. Nothing: it goes
  /// only where memory lacks.
  std::optional<std::chrono::milliseconds> idle = {};
  /// Maximum number of callers that wait for models.
  size_t queue = 64;
  /// For this time after a load has failed, callers get its error at once.
  std::chrono::milliseconds retry = std::chrono::seconds(10);
  /// Receives lines of the log, from any thread.
  std::function<void(const std::string &line)> log = {};
};

/// All threads may call all functions. Models are meant by their places in the
/// list that the pool was made of.
class ModelPool {
public:
  /// A model that is in use, and is not unloaded meanwhile. Must end before the
  /// pool.
  using Lease = std::shared_ptr<LoadedModel>;
  /// Receives a lease, or null and why the load failed.
  using ReadyFn =
      std::function<void(const Lease &model, const LoadFailure &failure)>;

  /// Throws Error if the system gives no thread.
  ModelPool(std::vector<PoolModel> models, std::shared_ptr<MemoryBudget> budget,
            ModelPoolOptions options);
  /// Ends a load, whose callers get an error, and unloads all models.
  ~ModelPool();
  ModelPool(const ModelPool &) = delete;
  ModelPool &operator=(const ModelPool &) = delete;

  /// The model if it is loaded, else null.
  Lease find(size_t model);
  /// The same for a look that is no use: the time of the last use stays.
  Lease peek(size_t model) const;
  /// Loads a model that is not loaded and calls `ready`, on the pool's thread
  /// or, if it is loaded, on this one. Throws Error and calls nothing if the
  /// last load has just failed, or, of the kind QueueFull, if too many wait.
  void acquire(size_t model, ReadyFn ready);

  /// Begins to load a model that is not loaded. It tries again after a failure.
  void load(size_t model);
  /// Unloads a model that is loaded. Throws Error if requests use it or wait
  /// for it.
  void unload(size_t model);

  ModelStatus status(size_t model) const;

private:
  using Clock = std::chrono::steady_clock;
  struct Entry;
  /// Counts a lease while it lives.
  struct Hold;

  // With the mutex held.
  Lease lease(Entry &entry, size_t Entry::*count) const;
  void enqueue(size_t model);
  /// When an idle model is to be unloaded; nothing if none is.
  std::optional<Clock::time_point> nextIdle() const;
  void unloadIdle(std::unique_lock<std::mutex> &lock);
  /// The loaded model without requests that was used least recently, or null.
  Entry *leastRecent() const;
  void unload(Entry &entry, std::unique_lock<std::mutex> &lock,
              const std::string &why);
  /// Unloads models until `bytes` are free. Throws Error if those that have no
  /// requests are too few.
  void makeRoom(const Entry &entry, uint64_t bytes,
                std::unique_lock<std::mutex> &lock);

  void serve();
  void loadNext(std::unique_lock<std::mutex> &lock);
  std::unique_ptr<LoadedModel> load(Entry &entry);
  void tell(Entry &entry, const LoadProgress &progress);
  void log(const std::string &line) const {
    if (options.log)
      options.log(line);
  }

  const std::shared_ptr<MemoryBudget> budget;
  const ModelPoolOptions options;

  /// Guards all below it, and the entries.
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::vector<std::unique_ptr<Entry>> entries;
  /// The models that are to be loaded.
  std::deque<size_t> queue;
  /// Number of callers that wait.
  size_t waiting = 0;
  bool ending = false;

  std::thread thread;
};

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_MODELPOOL_H
