//===- ServiceFlags.cpp - Options of commands with a service --------------===//

#include "ServiceFlags.h"

using namespace qwen;
using namespace qwen::run;

Model ServiceFlags::openModel() const {
  std::string chatTemplate = readTemplate(server.chatTemplate);
  return Model(file.path(), std::move(chatTemplate));
}

EngineOptions ServiceFlags::engineOptions(const Model &model) const {
  EngineOptions chosen = options(model);
  if (server.noPrefixCache)
    chosen.snapshotBytes = 0;
  return chosen;
}

std::unique_ptr<Engine> ServiceFlags::startEngine(const Model &model) const {
  return start(model, engineOptions(model));
}

EngineGroups ServiceFlags::startEngines(const Model &model) const {
  return startGroups(model, engineOptions(model));
}

SchedulerOptions ServiceFlags::schedulerOptions() const {
  return {.queue = static_cast<size_t>(server.queue),
          .batcher = {.prefixCache = !server.noPrefixCache}};
}
