//===- Codes.cpp - Codes of a dense stream of bits ------------------------===//

#include "Codes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace qwen;

/// Eight codes have `Bits` whole bytes.
template <int Bits>
static void unpack(const uint8_t *from, int64_t count, uint8_t *codes) {
  for (int64_t i = 0; i < count; i += 8, from += Bits) {
    const int64_t left = std::min<int64_t>(count - i, 8);
    uint64_t word = 0;
    std::memcpy(&word, from, static_cast<size_t>((left * Bits + 7) / 8));
    for (int64_t j = 0; j < left; ++j)
      codes[i + j] =
          static_cast<uint8_t>(word >> (j * Bits) & ((1U << Bits) - 1));
  }
}

/// By the number of bits.
static constexpr decltype(&unpack<2>) kUnpack[] = {
    nullptr,   nullptr,   unpack<2>, unpack<3>, unpack<4>,
    unpack<5>, unpack<6>, nullptr,   unpack<8>};

bool qwen::canUnpack(int64_t bits) {
  return bits >= 0 && bits < std::ssize(kUnpack) && kUnpack[bits];
}

void qwen::unpackCodes(const uint8_t *from, int64_t bits, int64_t count,
                       uint8_t *codes) {
  kUnpack[bits](from, count, codes);
}
