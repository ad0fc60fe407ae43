//===- ActivationLayouts.h - Layouts of quantized activations ---*- C++ -*-===//
//
// ActivationLayouts.def expanded: the places of codes and scales. Sums of
// groups have one layout, token by token.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_ACTIVATIONLAYOUTS_H
#define QWEN_ABI_ACTIVATIONLAYOUTS_H

#include "qwen/ABI/Blocks.h"

namespace qwen {

enum class ActivationLayout : uint8_t {
#define QWEN_ACTIVATION_LAYOUT(Layout, ...) Layout,
#include "qwen/ABI/ActivationLayouts.def"
};

/// A line of ActivationLayouts.def.
struct ActivationLayoutInfo {
  int64_t tokens, values;

  /// Codes of a token with k values, with the padding that tiles have.
  constexpr int64_t codes(int64_t k) const {
    return tokens == 1 ? k : alignTo(k, kActivationBlock);
  }
  /// The place of the code of value `value` of token `token`. The following
  /// codes of its line lie behind it.
  constexpr int64_t codeAt(int64_t token, int64_t value, int64_t k) const {
    const int64_t row = token % tokens;
    return (token - row) * codes(k) + (value / values * tokens + row) * values +
           value % values;
  }
  /// The place of the scale of activation block `block`. Scales of one block of
  /// a tile lie side by side.
  constexpr int64_t scaleAt(int64_t token, int64_t block, int64_t k) const {
    const int64_t row = token % tokens;
    return (token - row) * ceilDiv(k, kActivationBlock) + block * tokens + row;
  }
};

constexpr ActivationLayoutInfo activationLayout(ActivationLayout layout) {
  constexpr ActivationLayoutInfo layouts[] = {
#define QWEN_ACTIVATION_LAYOUT(Layout, Tokens, Values) {Tokens, Values},
#include "qwen/ABI/ActivationLayouts.def"
  };
  return layouts[static_cast<unsigned>(layout)];
}

/// The most tokens of a tile.
inline constexpr int64_t kMostTileTokens = [] {
  int64_t most = 1;
#define QWEN_ACTIVATION_LAYOUT(Layout, Tokens, Values)                         \
  most = most < (Tokens) ? (Tokens) : most;
#include "qwen/ABI/ActivationLayouts.def"
  return most;
}();

/// How many codes and scales the memory for `tokens` tokens with k values has:
/// enough for whole tiles of any layout.
constexpr int64_t roomForCodes(int64_t tokens, int64_t k) {
  return alignTo(tokens, kMostTileTokens) * alignTo(k, kActivationBlock);
}
constexpr int64_t roomForScales(int64_t tokens, int64_t k) {
  return alignTo(tokens, kMostTileTokens) * ceilDiv(k, kActivationBlock);
}

} // namespace qwen

#endif // QWEN_ABI_ACTIVATIONLAYOUTS_H
