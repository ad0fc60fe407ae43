//===- Drafters.cpp - Makes drafters by name ------------------------------===//

#include "engine/drafters/Drafters.h"

#include "engine/Engine.h"
#include "engine/drafters/DraftModel.h"

#include <algorithm>
#include <array>

using namespace qwen;

int64_t qwen::stepBackOf(const Manifest &manifest) {
  int64_t most = manifest.model.context;
  for (const CacheInfo &cache : manifest.caches)
    if (cache.kind == CacheKind::Fixed)
      most = std::min(most, cache.stepBack);
  return most;
}

Speculate qwen::bestDrafter(const Manifest &manifest) {
  return manifest.draftHead() ? Speculate::Mtp : Speculate::Lookup;
}

std::string qwen::whyNoDrafts(Speculate which, const Manifest &manifest) {
  if (which == Speculate::Mtp && !manifest.draftHead())
    return "it has no draft head; compile a checkpoint that has one, without "
           "--no-mtp";
  if (stepBackOf(manifest) == 0)
    return "its fixed state cannot step back; compile it without "
           "--step-back 0";
  return {};
}

std::string qwen::whyNoDrafts(const Engine &engine) {
  if (engine.speculate() == Speculate::Off)
    return {};
  std::string why = whyNoDrafts(engine.speculate(), engine.manifest());
  return why.empty() ? engine.whyNoSteps() : why;
}

std::unique_ptr<Drafter> qwen::makeDrafter(Speculate which, Engine &engine) {
  using MakeFn = std::unique_ptr<Drafter>(Engine &);
  constexpr std::array<MakeFn *, kSpeculates - 2> kMakes = {
#define QWEN_DRAFTER(Name, Text, Help) make##Name,
#include "engine/drafters/Drafters.def"
  };
  const bool isAuto = which == Speculate::Auto;
  const bool hasModel = isAuto && engine.draftEngine();
  if (isAuto && !hasModel)
    which = bestDrafter(engine.manifest());
  if (which == Speculate::Off || !whyNoDrafts(which, engine.manifest()).empty())
    return nullptr;
  constexpr auto kFirst = static_cast<size_t>(Speculate::Auto) + 1;
  std::unique_ptr<Drafter> drafter =
      hasModel ? makeDraftModel(engine, *engine.draftEngine())
               : kMakes[static_cast<size_t>(which) - kFirst](engine);
  return isAuto && drafter->usualShare()
             ? makeLookupBeside(std::move(drafter), engine)
             : std::move(drafter);
}
