//===- VerifySizes.h - Sizes of the cases of a kernel -----------*- C++ -*-===//

#ifndef QWEN_VERIFY_VERIFYSIZES_H
#define QWEN_VERIFY_VERIFYSIZES_H

#include <cstdint>
#include <vector>

namespace qwen {

/// The sizes of the cases of a kernel.
struct VerifySizes {
  /// Values of K: multiples of 32.
  std::vector<int64_t> depths;
  /// Sizes of a head: multiples of 8 from 16 to 256.
  std::vector<int64_t> headDims;
  /// Tokens of a product; a kernel for M tokens takes the next multiple of M.
  std::vector<int64_t> tokens;
};

} // namespace qwen

#endif // QWEN_VERIFY_VERIFYSIZES_H
