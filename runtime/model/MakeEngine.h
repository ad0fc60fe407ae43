//===- MakeEngine.h - Starts the engine of a model --------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_MODEL_MAKEENGINE_H
#define QWEN_RUNTIME_MODEL_MAKEENGINE_H

#include "engine/Engine.h"
#include "model/Model.h"

namespace qwen {

/// An engine of a model, which must outlive it. Engines of one process share
/// `pool`, on which their calls take turns, and `budget`: each takes what the
/// engines before it left. Throws Error as Engine does.
std::unique_ptr<Engine> makeEngine(const Model &model,
                                   std::shared_ptr<ThreadPool> pool,
                                   const std::shared_ptr<MemoryBudget> &budget,
                                   const EngineOptions &options);

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_MAKEENGINE_H
