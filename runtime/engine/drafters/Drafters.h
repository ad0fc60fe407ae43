//===- Drafters.h - Makes drafters by name ----------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTERS_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTERS_H

#include "engine/drafters/Drafter.h"
#include "engine/drafters/Speculate.h"

#include <memory>

namespace qwen {

#define QWEN_DRAFTER(Name, Text, Help)                                         \
  std::unique_ptr<Drafter> make##Name(Engine &engine);
#include "engine/drafters/Drafters.def"

/// Number of positions that a sequence can lose without a snapshot, which its
/// drafts need.
int64_t stepBackOf(const Manifest &manifest);

/// The drafter of `which`; null if that is off. Engine::draftEngine is the best
/// one of an engine. Only memory can lack.
std::unique_ptr<Drafter> makeDrafter(Speculate which, Engine &engine);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTERS_H
