//===- GgmlBlocks.h - ggml's blocks of weights ------------------*- C++ -*-===//
//
// What gguf files hold, made of the codes and scales of Numerics/Encode.h.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_GGMLBLOCKS_H
#define QWEN_TEST_UNIT_GGMLBLOCKS_H

#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"

#include <cstring>

namespace qwen {

/// 32 values of one row.
struct BlockQ4_0 {
  /// f16 bits of the scale.
  uint16_t d;
  /// Byte j holds value j in its low nibble and value j + 16 in its high one,
  /// each plus 8.
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// 32 values of one row.
struct BlockQ4_1 {
  /// f16 bits of the scale and of the minimum.
  uint16_t d, m;
  /// As in BlockQ4_0, of codes from 0.
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

/// 32 values of one row.
struct BlockQ5_0 {
  /// f16 bits of the scale.
  uint16_t d;
  /// Bit j of these 32 is the fifth bit of value j plus 16.
  uint8_t h[4];
  /// The others, as in BlockQ4_0.
  uint8_t q[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

/// 32 values of one row.
struct BlockQ5_1 {
  /// f16 bits of the scale and of the minimum.
  uint16_t d, m;
  /// As in BlockQ5_0, of codes from 0.
  uint8_t h[4], q[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

/// 32 values of one row.
struct BlockQ8_0 {
  /// f16 bits of the scale.
  uint16_t d;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

template <numerics::Encoder Rule, typename Block>
numerics::EncodeStatus encodeNibbles(const float x[32], Block &block) {
  numerics::WeightBlock codes = {};
  const auto status = numerics::encode<Rule>(x, 32, codes);
  block.d = codes.scale;
  if constexpr (requires { block.m; })
    block.m = codes.minimum;
  for (int j = 0; j < 16; ++j)
    block.q[j] =
        static_cast<uint8_t>((codes.codes[j] & 15) | codes.codes[j + 16] << 4);
  if constexpr (requires { block.h; }) {
    std::memset(block.h, 0, sizeof(block.h));
    for (int j = 0; j < 32; ++j)
      block.h[j / 8] |= static_cast<uint8_t>((codes.codes[j] >> 4) << j % 8);
  }
  return status;
}

inline numerics::EncodeStatus encodeQ4_0(const float x[32], BlockQ4_0 &block) {
  return encodeNibbles<numerics::Encoder::Signed4>(x, block);
}

inline numerics::EncodeStatus encodeQ4_1(const float x[32], BlockQ4_1 &block) {
  return encodeNibbles<numerics::Encoder::Range4>(x, block);
}

inline numerics::EncodeStatus encodeQ5_0(const float x[32], BlockQ5_0 &block) {
  return encodeNibbles<numerics::Encoder::Signed5>(x, block);
}

inline numerics::EncodeStatus encodeQ5_1(const float x[32], BlockQ5_1 &block) {
  return encodeNibbles<numerics::Encoder::Range5>(x, block);
}

/// IQ4_NL has the bytes of Q4_0, with codes of the codebook.
inline numerics::EncodeStatus encodeIQ4_NL(const float x[32],
                                           BlockQ4_0 &block) {
  return encodeNibbles<numerics::Encoder::Codebook4>(x, block);
}

inline numerics::EncodeStatus encodeQ8_0(const float x[32], BlockQ8_0 &block) {
  numerics::WeightBlock codes = {};
  const auto status =
      numerics::encode<numerics::Encoder::Absolute8>(x, 32, codes);
  block.d = codes.scale;
  std::memcpy(block.q, codes.codes, sizeof(block.q));
  return status;
}

/// x[i] = f32(q[i] - 8) * f32(d), which is exact.
inline void decodeQ4_0(const BlockQ4_0 &block, float x[32]) {
  const float d = f16ToF32(block.d);
  for (int j = 0; j < 16; ++j) {
    x[j] = static_cast<float>((block.q[j] & 15) - 8) * d;
    x[j + 16] = static_cast<float>((block.q[j] >> 4) - 8) * d;
  }
}

} // namespace qwen

#endif // QWEN_TEST_UNIT_GGMLBLOCKS_H
