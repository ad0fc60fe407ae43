//===- Blocks.cpp - Checks of the places of codes -------------------------===//

#include "qwen/ABI/Blocks.h"

using namespace qwen;

/// Whether each code of `Bits` bits comes back from the chunks of a group: one
/// whose bits are ones among zeros, and one of zeros among ones. So no two bits
/// share a place.
template <int64_t Bits> static constexpr bool comesBack() {
  for (const uint8_t ones : {0, (1 << Bits) - 1})
    for (int64_t other = 0; other < kGroup; ++other) {
      uint8_t codes[kGroup] = {};
      for (int64_t i = 0; i < kGroup; ++i)
        codes[i] =
            static_cast<uint8_t>(i == other ? ones : ones ^ ((1 << Bits) - 1));
      const auto chunks = chunksOf<Bits>(codes);
      for (int64_t i = 0; i < kGroup; ++i) {
        const auto byteOf = [&](int64_t chunk) {
          return chunks[static_cast<size_t>(chunk)][i % kStepValues];
        };
        if (codeIn<Bits>(i, byteOf) != codes[i])
          return false;
      }
    }
  return true;
}
static_assert(comesBack<1>());
static_assert(comesBack<2>());
static_assert(comesBack<3>());
static_assert(comesBack<4>());
static_assert(comesBack<5>());
static_assert(comesBack<6>());
static_assert(comesBack<7>());
static_assert(comesBack<8>());
