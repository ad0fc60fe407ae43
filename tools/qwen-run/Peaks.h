//===- Peaks.h - Measured limits of this machine ----------------*- C++ -*-===//

#ifndef QWEN_RUN_PEAKS_H
#define QWEN_RUN_PEAKS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace qwen::run {

/// Limits of `threads` threads together, measured: 10^9 a second.
struct Peaks {
  /// Bytes read of a mapped range, the best of some passes.
  double readGB;
  /// f32 fma with operands in registers.
  double floatGMac;
  /// Multiplications of int8 by the best dot instruction that is known here,
  /// with operands in registers.
  double integerGMac;
  std::string integerInstruction;
};

/// Measures with `threads` threads, which read `size` bytes at `data`. Takes
/// about half a second.
Peaks measurePeaks(int32_t threads, const uint8_t *data, size_t size);

} // namespace qwen::run

#endif // QWEN_RUN_PEAKS_H
