//===- GroupSchedulers.h - Schedulers of groups of cores --------*- C++ -*-===//
//
// Engines of one model answer side by side, each with a scheduler, pages and a
// queue of its own. docs/decisions/0046 has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_GROUPSCHEDULERS_H
#define QWEN_RUNTIME_ENGINE_GROUPSCHEDULERS_H

#include "engine/KnownPrefixes.h"
#include "engine/Scheduler.h"

#include <memory>
#include <vector>

namespace qwen {

/// All threads may call all functions.
class GroupSchedulers {
public:
  /// There is at least one engine. Nothing else may use the engines, and they
  /// must outlive this. Each queue has an equal part of `options.queue`, and
  /// `options.onStep` is called on the thread of each scheduler.
  GroupSchedulers(std::span<Engine *const> engines,
                  const SchedulerOptions &options);

  /// The scheduler for a prompt. Those that can start it at once, or have the
  /// least to do, come first; of them, the one that knows most of the
  /// prompt's beginning; of equal ones, the one that has the least to do.
  Scheduler &choose(std::span<const int32_t> ids, const RootRef &root);

  /// Sums over all.
  SchedulerCounts counts() const;
  /// Sum of the pages of all engines.
  int64_t pages() const;

private:
  struct Group {
    Group(Engine &engineOfGroup, const SchedulerOptions &options)
        : engine(engineOfGroup),
          known(static_cast<size_t>(engine.state().pages())),
          scheduler(engine, options) {}

    Engine &engine;
    KnownPrefixes known;
    Scheduler scheduler;
  };

  std::vector<std::unique_ptr<Group>> groups;
  /// Guards what groups know.
  std::mutex mutex;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_GROUPSCHEDULERS_H
