//===- Drafters.cpp - Makes drafters by name ------------------------------===//

#include "engine/drafters/Drafters.h"

#include <array>

using namespace qwen;

std::unique_ptr<Drafter> qwen::makeDrafter(Speculate which, Engine &engine) {
  using MakeFn = std::unique_ptr<Drafter>(Engine &);
  constexpr std::array<MakeFn *, kSpeculates - 2> kMakes = {
#define QWEN_DRAFTER(Name, Text, Help) make##Name,
#include "engine/drafters/Drafters.def"
  };
  if (which == Speculate::Off)
    return nullptr;
  const auto first = static_cast<size_t>(Speculate::Auto) + 1;
  const auto index = static_cast<size_t>(which);
  return kMakes[index < first ? 0 : index - first](engine);
}
