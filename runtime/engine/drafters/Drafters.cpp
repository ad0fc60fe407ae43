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

std::unique_ptr<Drafter> qwen::makeDrafter(Speculate which, Engine &engine) {
  using MakeFn = std::unique_ptr<Drafter>(Engine &);
  constexpr std::array<MakeFn *, kSpeculates - 2> kMakes = {
#define QWEN_DRAFTER(Name, Text, Help) make##Name,
#include "engine/drafters/Drafters.def"
  };
  if (which == Speculate::Off)
    return nullptr;
  if (which == Speculate::Auto && engine.draftEngine())
    return makeDraftModel(engine, *engine.draftEngine());
  const auto first = static_cast<size_t>(Speculate::Auto) + 1;
  const auto index = static_cast<size_t>(which);
  return kMakes[index < first ? 0 : index - first](engine);
}
