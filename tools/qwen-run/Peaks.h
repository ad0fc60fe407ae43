//===- Peaks.h - Measured limits of this machine ----------------*- C++ -*-===//

#ifndef QWEN_RUN_PEAKS_H
#define QWEN_RUN_PEAKS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace qwen::run {

/// Measured limits of all threads together, in 10^9 a second.
struct Peaks {
  /// Bytes read from a mapped range in the fastest of several passes.
  double readGB;
  /// f32 multiplications by fma with operands in registers.
  double floatGMac;
  /// int8 multiplications by the CPU's best supported dot instruction, with
  /// operands in registers.
  double integerGMac;
  std::string integerInstruction;
};

/// Measures the limits of `threads` threads in about half a second. They read
/// the `size` bytes at `data`.
Peaks measurePeaks(int32_t threads, const uint8_t *data, size_t size);

} // namespace qwen::run

#endif // QWEN_RUN_PEAKS_H
