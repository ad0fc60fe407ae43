//===- Drafters.h - Makes drafters by name ----------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTERS_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTERS_H

#include "engine/drafters/Drafter.h"
#include "engine/drafters/Speculate.h"

#include <memory>
#include <string>

namespace qwen {

#define QWEN_DRAFTER(Name, Text, Help)                                         \
  std::unique_ptr<Drafter> make##Name(Engine &engine);
#include "engine/drafters/Drafters.def"

/// Number of positions that a sequence can lose without a snapshot, which its
/// drafts need.
int64_t stepBackOf(const Manifest &manifest);

/// The drafter `model`, which has one, and lookup: each answer
/// has the drafts of one of them in a step.
std::unique_ptr<Drafter> makeLookupBeside(std::unique_ptr<Drafter> model,
                                          Engine &engine);

/// The best drafter of a model alone: its draft head, or lookup.
Speculate bestDrafter(const Manifest &manifest);

/// Why answers of a model get no drafts of `which`, which is not Off, and what
/// helps; empty if they do.
std::string whyNoDrafts(Speculate which, const Manifest &manifest);

/// The same of the answers of an engine, which may also lack memory for drafts;
/// empty as well if the engine is asked for none.
std::string whyNoDrafts(const Engine &engine);

/// The drafter of `which`; null if that is off or the model does not allow it.
/// "auto" is Engine::draftEngine, if there is one, else the draft head, if
/// there is one, with lookup beside it; else lookup. Only memory can lack.
std::unique_ptr<Drafter> makeDrafter(Speculate which, Engine &engine);

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTERS_H
