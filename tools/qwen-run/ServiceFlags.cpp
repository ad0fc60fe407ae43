//===- ServiceFlags.cpp - Options of commands with a service --------------===//

#include "ServiceFlags.h"

using namespace qwen;
using namespace qwen::run;

Model ServiceFlags::openModel() const {
  std::string chatTemplate = readTemplate(server.chatTemplate);
  return Model(file.path(), std::move(chatTemplate));
}

Engine &ServiceFlags::startEngine(Model &model) const {
  EngineOptions engine = options(model);
  engine.sequences = server.sequences;
  engine.kvPages = server.pages;
  if (!server.noPrefixCache)
    engine.snapshotBytes = snapshots.bytes;
  return start(model, engine);
}

SchedulerOptions ServiceFlags::schedulerOptions() const {
  return {.queue = static_cast<size_t>(server.queue),
          .batcher = {.prefixCache = !server.noPrefixCache,
                      .snapshotEvery = snapshots.every}};
}
