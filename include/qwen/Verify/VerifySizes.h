//===- VerifySizes.h - Sizes of the cases of a kernel -----------*- C++ -*-===//

#ifndef QWEN_VERIFY_VERIFYSIZES_H
#define QWEN_VERIFY_VERIFYSIZES_H

#include <cstdint>
#include <vector>

namespace qwen {

/// What the cases of a kernel are made from.
struct VerifySizes {
  /// Values of a token: multiples of 32.
  std::vector<int64_t> depths;
  /// Values of a head: multiples of 8, 16 to 256.
  std::vector<int64_t> headDims;
  /// Tokens of a product; a kernel for M tokens takes the next multiple of M.
  std::vector<int64_t> tokens;
};

} // namespace qwen

#endif // QWEN_VERIFY_VERIFYSIZES_H
