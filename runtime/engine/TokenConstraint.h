//===- TokenConstraint.h - What an answer may go on with --------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_TOKENCONSTRAINT_H
#define QWEN_RUNTIME_ENGINE_TOKENCONSTRAINT_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace qwen {

/// Says which tokens may come next in one answer, and follows its tokens.
class TokenConstraint {
public:
  virtual ~TokenConstraint() = default;

  /// The tokens that may come next: bit id % 32 of word id / 32 is set. No
  /// words: any token may. Valid until `accept`. Throws Error if it takes too
  /// long to find them.
  virtual std::span<const uint32_t> allowed() = 0;
  /// Takes the next token of the answer. Throws Error if it may not come.
  virtual void accept(int32_t id) = 0;
  /// Whether the answer is over, as no token may follow.
  virtual bool isDone() const = 0;
};

/// Copies the logits of the allowed tokens. The others get -infinity, with
/// which no token is drawn. `masked` has the size of `logits`.
inline void copyAllowed(std::span<const float> logits,
                        std::span<const uint32_t> allowed,
                        std::span<float> masked) {
  constexpr size_t kBits = 32;
  for (size_t begin = 0; begin < logits.size(); begin += kBits) {
    const size_t word = begin / kBits;
    const uint32_t bits = word < allowed.size() ? allowed[word] : 0;
    const size_t end = std::min(begin + kBits, logits.size());
    for (size_t id = begin; id < end; ++id)
      masked[id] = bits >> (id - begin) & 1 ? logits[id] : -INFINITY;
  }
}

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_TOKENCONSTRAINT_H
