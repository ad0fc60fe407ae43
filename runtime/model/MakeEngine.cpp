//===- MakeEngine.cpp - Starts the engine of a model ----------------------===//

#include "model/MakeEngine.h"

#include <utility>

using namespace qwen;

std::unique_ptr<Engine>
qwen::makeEngine(const Model &model, std::shared_ptr<ThreadPool> pool,
                 const std::shared_ptr<MemoryBudget> &budget,
                 const EngineOptions &options) {
  return std::make_unique<Engine>(model.artifact(), std::move(pool), budget,
                                  options);
}
