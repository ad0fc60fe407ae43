//===- Encode.h - Quantizing and packing weights ----------------*- C++ -*-===//
//
// The weight encoders of docs/numerics.md and the layouts of ABI/Blocks.h. A
// matrix is packed panel by panel, so that memory stays bounded.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_ENCODE_H
#define QWEN_NUMERICS_ENCODE_H

#include "qwen/ABI/Blocks.h"

#include <string_view>

namespace qwen::numerics {

/// Result of a weight encoder.
enum class EncodeStatus : uint8_t {
  Ok,
  /// A weight is NaN or infinite.
  NotFinite,
  /// The scale of a block is too large for f16 (largest magnitude of the
  /// block >= 8 * 65520, in q8_0 127 * 65520).
  ScaleOverflow,
  /// A weight's magnitude is too large for bf16 (0x1.ffp127 and more).
  ValueOverflow,
};

/// Describes the error, for a message that begins with the tensor's name: "has
/// a value that is not finite". Empty for Ok.
std::string_view encodeStatusMessage(EncodeStatus status);

/// Quantizes 32 values by the rule that gives gguf's bytes: m = the first
/// value of largest magnitude, d = m / -8, q = clip(trunc(x / d + 8.5), 0, 15)
/// with the reciprocal of the unrounded d. Where the result is not Ok, the
/// block is not written.
EncodeStatus encodeQ4_0(const float x[32], BlockQ4_0 &block);

/// x[i] = f32(q[i] - 8) * f32(d), which is exact.
void decodeQ4_0(const BlockQ4_0 &block, float x[32]);

/// Quantizes 32 values by the rule that gives gguf's bytes: d = largest
/// magnitude / 127, q = x / d rounded half away from zero, with the reciprocal
/// of the unrounded d. Where the result is not Ok, the block is not written.
EncodeStatus encodeQ8_0(const float x[32], BlockQ8_0 &block);

/// The rule of q4_0 over `count` values, at most 128: `q` are integers 0..15,
/// `d` is the scale as f16. Where the result is not Ok, nothing is written.
EncodeStatus encodeQ4(const float *x, int64_t count, uint16_t &d, uint8_t *q);

/// Packs kPanelOutputs rows of `k` values into one panel of panelBytes(format,
/// k) bytes. A null row is a row of zeros with scale +0. `k` is a multiple of
/// kGroup. Where the result is not Ok, the panel's bytes are unspecified.
EncodeStatus packPanel(WeightFormat format,
                       const float *const rows[kPanelOutputs], int64_t k,
                       uint8_t *panel);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_ENCODE_H
