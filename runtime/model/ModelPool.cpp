//===- ModelPool.cpp - Models that are loaded on demand -------------------===//

#include "model/ModelPool.h"

#include "qwen/Support/Process.h"

#include <algorithm>
#include <new>
#include <utility>

using namespace qwen;

struct ModelPool::Entry {
  explicit Entry(PoolModel pooled) : how(std::move(pooled)) {}

  bool isLoaded() const { return model && !isUnloading; }
  bool isIdle() const { return isLoaded() && users == 0; }

  const PoolModel how;
  std::unique_ptr<LoadedModel> model;
  bool isQueued = false, isLoading = false, isUnloading = false;
  LoadProgress progress;
  std::string failure;
  /// Until when callers get `failure` in place of another load.
  Clock::time_point failsUntil;
  /// Leases of requests, and of looks.
  size_t users = 0, looks = 0;
  Clock::time_point lastUse;
  uint64_t loads = 0;
  std::vector<ReadyFn> waiters;
};

struct ModelPool::Hold {
  Hold(const ModelPool &ofPool, Entry &ofModel, size_t Entry::*counted)
      : pool(ofPool), entry(ofModel), count(counted) {}
  Hold(const Hold &) = delete;
  Hold &operator=(const Hold &) = delete;
  ~Hold() {
    if (!isCounted)
      return;
    const std::lock_guard lock(pool.mutex);
    const bool isLast = --(entry.*count) == 0;
    if (count == &Entry::users)
      entry.lastUse = Clock::now();
    if (isLast)
      pool.changed.notify_all();
  }

  const ModelPool &pool;
  Entry &entry;
  size_t Entry::*const count;
  bool isCounted = false;
};

ModelPool::ModelPool(std::vector<PoolModel> models,
                     std::shared_ptr<MemoryBudget> ofProcess,
                     ModelPoolOptions poolOptions)
    : budget(std::move(ofProcess)), options(std::move(poolOptions)) {
  for (PoolModel &model : models)
    entries.push_back(std::make_unique<Entry>(std::move(model)));
  thread = startThread("loads models", [this] { serve(); });
}

ModelPool::~ModelPool() {
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  changed.notify_all();
  thread.join();
}

//===----------------------------------------------------------------------===//
// Callers
//===----------------------------------------------------------------------===//

ModelPool::Lease ModelPool::lease(Entry &entry, size_t Entry::*count) const {
  const auto hold = std::make_shared<Hold>(*this, entry, count);
  ++(entry.*count);
  hold->isCounted = true;
  return {hold, entry.model.get()};
}

ModelPool::Lease ModelPool::find(size_t model) {
  const std::lock_guard lock(mutex);
  Entry &entry = *entries[model];
  return entry.isLoaded() ? lease(entry, &Entry::users) : nullptr;
}

ModelPool::Lease ModelPool::peek(size_t model) const {
  const std::lock_guard lock(mutex);
  Entry &entry = *entries[model];
  return entry.isLoaded() ? lease(entry, &Entry::looks) : nullptr;
}

void ModelPool::enqueue(size_t model) {
  Entry &entry = *entries[model];
  if (entry.isQueued || entry.isLoading)
    return;
  queue.push_back(model);
  entry.isQueued = true;
  changed.notify_all();
}

void ModelPool::acquire(size_t model, ReadyFn ready) {
  Lease loaded;
  {
    const std::lock_guard lock(mutex);
    Entry &entry = *entries[model];
    if (!entry.isLoaded()) {
      if (!entry.failure.empty() && Clock::now() < entry.failsUntil)
        throw Error(entry.failure);
      if (waiting >= options.queue)
        throw Error("the queue is full: " + std::to_string(waiting) +
                        " requests wait for models that are loading",
                    ErrorKind::QueueFull);
      entry.waiters.push_back(std::move(ready));
      ++waiting;
      enqueue(model);
      return;
    }
    loaded = lease(entry, &Entry::users);
  }
  ready(loaded, {});
}

void ModelPool::load(size_t model) {
  const std::lock_guard lock(mutex);
  if (!entries[model]->isLoaded())
    enqueue(model);
}

void ModelPool::unload(size_t model) {
  std::unique_lock lock(mutex);
  Entry &entry = *entries[model];
  if (entry.isQueued || entry.isLoading)
    throw Error(entry.how.name + " is loading");
  if (!entry.isLoaded())
    return;
  if (entry.users > 0)
    throw Error(entry.how.name + " answers " + std::to_string(entry.users) +
                (entry.users == 1 ? " request" : " requests") +
                "; it can be unloaded when none is left");
  unload(entry, lock, "a client asked for it");
}

ModelStatus ModelPool::status(size_t model) const {
  const std::lock_guard lock(mutex);
  const Entry &entry = *entries[model];
  ModelStatus status = {.progress = entry.progress,
                        .failure = entry.failure,
                        .users = entry.users,
                        .loads = entry.loads};
  if (entry.isLoaded()) {
    status.state = ModelState::Loaded;
    status.bytes = entry.model->bytes();
  } else if (entry.isLoading) {
    status.state = ModelState::Loading;
  } else if (entry.isQueued) {
    status.state = ModelState::Waiting;
  }
  return status;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

void ModelPool::unload(Entry &entry, std::unique_lock<std::mutex> &lock,
                       const std::string &why) {
  entry.isUnloading = true;
  changed.wait(lock, [&] { return entry.looks == 0; });
  std::unique_ptr<LoadedModel> model = std::move(entry.model);
  lock.unlock();
  model.reset();
  log(entry.how.name + " is unloaded: " + why);
  lock.lock();
  entry.isUnloading = false;
  changed.notify_all();
}

std::optional<ModelPool::Clock::time_point> ModelPool::nextIdle() const {
  std::optional<Clock::time_point> next;
  if (options.idle)
    for (const auto &entry : entries)
      if (entry->isIdle())
        next = std::min(next.value_or(Clock::time_point::max()),
                        entry->lastUse + *options.idle);
  return next;
}

void ModelPool::unloadIdle(std::unique_lock<std::mutex> &lock) {
  if (!options.idle)
    return;
  for (const auto &entry : entries)
    if (entry->isIdle() && Clock::now() >= entry->lastUse + *options.idle)
      unload(*entry, lock,
             "it had no request for " +
                 std::to_string(options.idle->count() / 1000) + " s");
}

ModelPool::Entry *ModelPool::leastRecent() const {
  Entry *least = nullptr;
  for (const auto &entry : entries)
    if (entry->isIdle() && (!least || entry->lastUse < least->lastUse))
      least = entry.get();
  return least;
}

void ModelPool::makeRoom(const Entry &entry, uint64_t bytes,
                         std::unique_lock<std::mutex> &lock) {
  while (true) {
    uint64_t room = budget->free();
    if (room >= bytes)
      return;
    for (const auto &other : entries)
      if (other->isIdle())
        room += other->model->bytes();
    if (room < bytes)
      throw Error(entry.how.name + " needs " + std::to_string(bytes) +
                      " bytes of memory when " + budget->describe(),
                  ErrorKind::NoMemory);
    unload(*leastRecent(), lock, entry.how.name + " needs its memory");
  }
}

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

void ModelPool::tell(Entry &entry, const LoadProgress &progress) {
  bool isNew = false;
  {
    const std::lock_guard lock(mutex);
    if (ending)
      throw Error("the server is shutting down", ErrorKind::Cancelled);
    isNew = progress.stage != entry.progress.stage;
    entry.progress = progress;
  }
  if (isNew)
    log(entry.how.name + ": " + progress.stage);
}

std::unique_ptr<LoadedModel> ModelPool::load(Entry &entry) {
  const uint64_t bytes = entry.how.prepare(
      [&](const LoadProgress &progress) { tell(entry, progress); });
  {
    std::unique_lock lock(mutex);
    makeRoom(entry, bytes, lock);
  }
  tell(entry, {.stage = "starts"});
  return entry.how.load();
}

static LoadFailure failureOf(const std::exception &error) {
  if (const auto *const known = dynamic_cast<const Error *>(&error))
    return {known->what(), known->kind()};
  if (dynamic_cast<const std::bad_alloc *>(&error))
    return {"out of memory", ErrorKind::NoMemory};
  return {error.what()};
}

void ModelPool::loadNext(std::unique_lock<std::mutex> &lock) {
  Entry &entry = *entries[queue.front()];
  queue.pop_front();
  entry.isQueued = false;
  changed.wait(lock, [&] { return !entry.isUnloading; });
  entry.isLoading = true;
  entry.progress = {};
  entry.failure.clear();
  lock.unlock();
  const auto start = Clock::now();
  LoadFailure failure;
  std::unique_ptr<LoadedModel> model;
  try {
    model = load(entry);
    log(entry.how.name + " is loaded after " +
        std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(
                           Clock::now() - start)
                           .count()) +
        " ms and has " + std::to_string(model->bytes()) + " bytes of memory");
  } catch (const std::exception &error) {
    model.reset();
    failure = failureOf(error);
    log(entry.how.name + " cannot be loaded: " + failure.text);
  }
  lock.lock();
  entry.isLoading = false;
  entry.lastUse = Clock::now();
  if (model) {
    entry.model = std::move(model);
    ++entry.loads;
  } else {
    entry.failure = failure.text;
    // Another model may end at any time.
    if (failure.kind != ErrorKind::NoMemory)
      entry.failsUntil = entry.lastUse + options.retry;
  }
  const std::vector<ReadyFn> waiters = std::exchange(entry.waiters, {});
  waiting -= waiters.size();
  // Until the callers have their leases, the model is in use.
  Lease own = entry.model ? lease(entry, &Entry::users) : nullptr;
  lock.unlock();
  for (const ReadyFn &ready : waiters)
    ready(own, failure);
  own.reset();
  lock.lock();
}

void ModelPool::serve() {
  std::unique_lock lock(mutex);
  while (!ending) {
    unloadIdle(lock);
    if (!queue.empty() && !ending) {
      loadNext(lock);
      continue;
    }
    const auto isWanted = [&] { return ending || !queue.empty(); };
    if (isWanted())
      continue;
    if (const auto next = nextIdle())
      changed.wait_until(lock, *next);
    else
      changed.wait(lock);
  }
  std::vector<ReadyFn> waiters;
  for (const auto &entry : entries)
    std::ranges::move(std::exchange(entry->waiters, {}),
                      std::back_inserter(waiters));
  lock.unlock();
  for (const ReadyFn &ready : waiters)
    ready(nullptr, {"the server is shutting down", ErrorKind::Cancelled});
}
