//===- TokenConstraint.h - What an answer may go on with --------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_TOKENCONSTRAINT_H
#define QWEN_RUNTIME_ENGINE_TOKENCONSTRAINT_H

#include "qwen/Numerics/WideVectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace qwen {

/// Says which tokens may come next in one answer, and follows its tokens.
class TokenConstraint {
public:
  virtual ~TokenConstraint() = default;

  /// The tokens that may come next: bit id % 32 of word id / 32 is set. No
  /// words: any token may. Valid until `accept`, before which further calls
  /// cost little. Throws Error if it takes too long to find them.
  virtual std::span<const uint32_t> allowed() = 0;
  /// Takes the next token of the answer. Throws Error if it may not come.
  virtual void accept(int32_t id) = 0;
  /// Whether the answer is over, as no token may follow.
  virtual bool isDone() const = 0;
};

/// The only token of a set that has one, or nothing.
inline std::optional<int32_t> onlyAllowed(std::span<const uint32_t> allowed) {
  std::optional<int32_t> only;
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] == 0)
      continue;
    if (only || !std::has_single_bit(allowed[word]))
      return std::nullopt;
    only = static_cast<int32_t>(word * 32) + std::countr_zero(allowed[word]);
  }
  return only;
}

/// Copies the logits of the allowed tokens. The others get -infinity, with
/// which no token is drawn. `masked` has the size of `logits`.
inline void copyAllowed(std::span<const float> logits,
                        std::span<const uint32_t> allowed,
                        std::span<float> masked) {
  constexpr size_t kBits = 32;
  const size_t most = std::min(logits.size() / kBits, allowed.size());
  numerics::inWideVectors([&] {
    for (size_t word = 0; word < most; ++word) {
      const float *const from = &logits[word * kBits];
      float *const to = &masked[word * kBits];
      const uint32_t bits = allowed[word];
      // Most words have no token, and need no logits.
      if (bits == 0)
        std::fill_n(to, kBits, -INFINITY);
      else
        for (uint32_t i = 0; i < kBits; ++i)
          to[i] = bits >> i & 1 ? from[i] : -INFINITY;
    }
  });
  for (size_t id = most * kBits; id < logits.size(); ++id) {
    const size_t word = id / kBits;
    const bool may = word < allowed.size() && (allowed[word] >> id % kBits & 1);
    masked[id] = may ? logits[id] : -INFINITY;
  }
}

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TOKENCONSTRAINT_H
