//===- ServiceFlags.h - Options of commands with a service ------*- C++ -*-===//
//
// The options of commands that answer the requests of the server's protocols,
// over HTTP or from a file.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_SERVICEFLAGS_H
#define QWEN_RUN_SERVICEFLAGS_H

#include "Options.h"
#include "TableOptions.h"
#include "engine/Scheduler.h"
#include "server/ServerOptions.h"

namespace qwen::run {

struct ServiceFlags : RunFlags {
  /// Clients come at once.
  ServiceFlags() {
    engine.sequences = 16;
    engine.speculate = Speculate::Auto;
  }

  server::ServerOptions server;

  Model openModel() const;
  /// Options of an engine, as a service needs them.
  EngineOptions forService(EngineOptions chosen) const;
  /// RunFlags::options, as a service needs them.
  EngineOptions engineOptions(const Model &model) const {
    return forService(options(model));
  }
  /// Starts the engine of a model for a scheduler with these options.
  std::unique_ptr<Engine> startEngine(const Model &model) const;
  /// The same on groups of cores, with the memory of `shared`.
  EngineGroups startEngines(const Model &model,
                            const std::shared_ptr<MemoryBudget> &shared) const;
  SchedulerOptions schedulerOptions() const;
};

} // namespace qwen::run

#endif // QWEN_RUN_SERVICEFLAGS_H
