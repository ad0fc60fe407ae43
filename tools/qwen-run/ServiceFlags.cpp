//===- ServiceFlags.cpp - Options of commands with a service --------------===//

#include "ServiceFlags.h"

using namespace qwen;
using namespace qwen::run;

Model ServiceFlags::openModel() const {
  std::string chatTemplate = readTemplate(server.chatTemplate);
  return Model(file.path(), std::move(chatTemplate));
}

EngineOptions ServiceFlags::forService(EngineOptions chosen) const {
  if (server.noPrefixCache)
    chosen.snapshotBytes = 0;
  chosen.isStored = !server.cacheFolder.empty();
  return chosen;
}

std::unique_ptr<Engine> ServiceFlags::startEngine(const Model &model) const {
  return start(model, engineOptions(model));
}

EngineGroups
ServiceFlags::startEngines(const Model &model,
                           const std::shared_ptr<MemoryBudget> &shared) const {
  return startGroups(model, engineOptions(model), shared);
}

SchedulerOptions ServiceFlags::schedulerOptions() const {
  return {.queue = static_cast<size_t>(server.queue),
          .batcher = {.prefixCache = !server.noPrefixCache}};
}
