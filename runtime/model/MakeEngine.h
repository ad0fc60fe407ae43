//===- MakeEngine.h - Starts the engine of a model --------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_MODEL_MAKEENGINE_H
#define QWEN_RUNTIME_MODEL_MAKEENGINE_H

#include "engine/Engine.h"
#include "model/Model.h"

#include <string>

namespace qwen {

/// An engine of a model, which must outlive it. Engines of one process share
/// `pool`, on which their calls take turns, and `budget`: each takes what the
/// engines before it left. The smaller model of the file `draftModel`, if it is
/// not empty, drafts for its answers where Speculate::Auto is chosen and the
/// model can have drafts. Engine's constructor describes `weights`. Throws
/// Error as Engine does, or if the smaller model has other tokens.
std::unique_ptr<Engine> makeEngine(const Model &model,
                                   std::shared_ptr<ThreadPool> pool,
                                   const std::shared_ptr<MemoryBudget> &budget,
                                   const EngineOptions &options,
                                   const std::string &draftModel = {},
                                   const uint8_t *weights = nullptr);

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_MAKEENGINE_H
