//===- Speculate.h - The choice of a drafter --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_SPECULATE_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_SPECULATE_H

#include <array>
#include <cstddef>
#include <string_view>

namespace qwen {

/// Which drafter the answers of an engine have.
enum class Speculate {
  Off,
  /// The best one of the engine.
  Auto,
#define QWEN_DRAFTER(Name, Text, Help) Name,
#include "engine/drafters/Drafters.def"
};

/// The words of command lines for the values 0, 1, ...
inline constexpr auto kSpeculateWords = std::to_array<std::string_view>({
    "off",
    "auto",
#define QWEN_DRAFTER(Name, Text, Help) Text,
#include "engine/drafters/Drafters.def"
});

/// The number of values of Speculate.
inline constexpr size_t kSpeculates = kSpeculateWords.size();

constexpr std::array<std::string_view, kSpeculates> wordsOf(Speculate /*any*/) {
  return kSpeculateWords;
}

/// What the option does.
inline constexpr char kSpeculateHelp[] =
    "Draft the next tokens of answers where that saves time, which changes no "
    "answer: as the model allows (auto)"
#define QWEN_DRAFTER(Name, Text, Help) ", " Help " (" Text ")"
#include "engine/drafters/Drafters.def"
    ", or never (off)";

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_SPECULATE_H
