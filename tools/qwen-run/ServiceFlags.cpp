//===- ServiceFlags.cpp - Options of commands with a service --------------===//

#include "ServiceFlags.h"

using namespace qwen;
using namespace qwen::run;

Model ServiceFlags::openModel() const {
  return Model(file, readTemplate(server.chatTemplate));
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
