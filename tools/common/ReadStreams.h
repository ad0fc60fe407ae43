//===- ReadStreams.h - Reading memory as fast as it goes --------*- C++ -*-===//

#ifndef QWEN_TOOLS_READSTREAMS_H
#define QWEN_TOOLS_READSTREAMS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace qwen {

/// Splits the memory into `streams` parts and reads a line of 64 bytes of each
/// part in turn. Prefetches `distance` bytes ahead, or not at all if it is 0.
/// Bytes that do not fill a line of every part are skipped. Returns a sum, so
/// that no compiler removes the reads.
template <size_t streams>
uint64_t readStreams(const uint8_t *base, size_t bytes, size_t distance) {
  using Words = uint64_t __attribute__((vector_size(16)));
  constexpr size_t kLine = 64;
  const size_t part = bytes / streams / kLine * kLine;
  std::array<Words, 4> sums = {};
  const auto pass = [&](auto prefetch) {
    for (size_t at = 0; at < part; at += kLine)
      for (size_t s = 0; s < streams; ++s) {
        const uint8_t *line = base + s * part + at;
        if constexpr (prefetch)
          __builtin_prefetch(line + distance);
        for (size_t i = 0; i < sums.size(); ++i) {
          Words words;
          memcpy(&words, line + i * sizeof(words), sizeof(words));
          sums[i] += words;
        }
      }
  };
  if (distance)
    pass(std::true_type());
  else
    pass(std::false_type());
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

} // namespace qwen

#endif // QWEN_TOOLS_READSTREAMS_H
