//===- Encode.h - Encoding and packing weights ------------------*- C++ -*-===//
//
// The weight encoders of docs/numerics.md and the layouts of ABI/Blocks.h. A
// matrix is packed panel by panel, so that memory stays bounded.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_ENCODE_H
#define QWEN_NUMERICS_ENCODE_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/StoredTypes.h"

#include <string_view>

namespace qwen::numerics {

/// Result of a weight encoder.
enum class EncodeStatus : uint8_t {
  Ok,
  /// A weight is NaN or infinite.
  NotFinite,
  /// The scale of a block is too large for f16 (largest magnitude of the
  /// block >= 8 * 65520, in q8_0 127 * 65520; with a minimum, the range >= 15 *
  /// 65520).
  ScaleOverflow,
  /// The minimum of a block is too large for f16.
  MinimumOverflow,
  /// A weight's magnitude is too large for bf16 (0x1.ffp127 and more).
  ValueOverflow,
};

/// Describes the error, for a message that begins with the tensor's name: "has
/// a value that is not finite". Empty for Ok.
std::string_view encodeStatusMessage(EncodeStatus status);

/// The rules by which numbers become codes: a column of WeightFormats.def.
enum class Encoder : uint8_t {
  /// The number itself.
  Float32,
  /// Rounded to nearest, ties to even.
  BFloat16,
  /// gguf's rule for Q8_0: d = largest magnitude / 127, value = x / d rounded
  /// half away from zero, with the reciprocal of the unrounded d.
  Absolute8,
  /// gguf's rule for Q4_0: m = the first value of largest magnitude, d = m /
  /// -8, code = clip(trunc(x / d + 8.5), 0, 15) with the reciprocal of the
  /// unrounded d.
  Signed4,
  /// The rule of gguf's Q5_0: likewise, with d = m / -16 and codes to 31.
  Signed5,
  /// gguf's rule for Q4_1: d = (maximum - minimum) / 15, code = min(trunc((x -
  /// minimum) / d + 0.5), 15) with the reciprocal of the unrounded d.
  Range4,
  /// gguf's rule for Q5_1: likewise, with codes to 31.
  Range5,
  /// d = (maximum - minimum) / 15, where the range includes 0, and the zero
  /// point -minimum / d, which need not be an integer; code = x / d + zero
  /// point, rounded to nearest.
  Zero4,
  /// ggml's rule for IQ4_NL: of 16 scales around m / -127, m as in Signed4, the
  /// one with the least error, weighted by x^2; the code of the codebook's
  /// nearest value.
  Codebook4,
  /// Codebook4 with the values of E2M1, around m / -12.
  Float4,
  /// ggml's rule for Q6_K: each sub-block of 16 has, of 19 scales around
  /// m / -32, the one with the least error, weighted by x^2; these scales in 8
  /// bits.
  Search6,
  /// ggml's rule for IQ4_XS: for each sub-block of 32 the scale of Codebook4;
  /// these scales in 6 bits.
  Codebook4Sub,
  /// Codes from 0 and a minimum of at most 0 for each sub-block of 32; scales
  /// and minimums in 6 bits.
  Ranges4,
  Ranges5,
};

/// Weights of one output: the codes of at most 256 values and, where their
/// format has them, their scale d, minimum or zero point, and sub-blocks.
struct WeightBlock {
  /// f16 bits; a zero point is in place of the minimum.
  uint16_t scale, minimum;
  /// The stored bits of the sub-scales [0] and of the sub-minimums [1].
  uint8_t subIntegers[2][16];
  /// A code of less than 8 bits has a byte, others have 1, 2 or 4.
  uint8_t codes[256];
};

/// Encodes `count` values. Where the result is not Ok, `block` is unspecified.
template <Encoder Rule>
EncodeStatus encode(const float *x, int64_t count, WeightBlock &block);
template <>
EncodeStatus encode<Encoder::Float32>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::BFloat16>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Absolute8>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Signed4>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Signed5>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Range4>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Range5>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Zero4>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Codebook4>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Float4>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Codebook4Sub>(const float *, int64_t,
                                           WeightBlock &);
template <>
EncodeStatus encode<Encoder::Search6>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Ranges4>(const float *, int64_t, WeightBlock &);
template <>
EncodeStatus encode<Encoder::Ranges5>(const float *, int64_t, WeightBlock &);

/// Sums of squares of an encoder's errors and of the numbers that it encoded.
struct EncodeError {
  double errors = 0;
  double values = 0;

  EncodeError &operator+=(const EncodeError &other) {
    errors += other.errors;
    values += other.values;
    return *this;
  }
};

/// Packs the `k` weights of each of kPanelOutputs outputs into one panel of
/// panelBytes(format, k) bytes. A null output has scales and minimums +0. `k`
/// is a multiple of kGroup. Where the result is not Ok, the panel's bytes are
/// unspecified. Adds the errors of each output to `errors`, unless it is null.
EncodeStatus packPanel(WeightFormat format,
                       const float *const outputs[kPanelOutputs], int64_t k,
                       uint8_t *panel, EncodeError *errors = nullptr);

/// Whether `format` holds the integers and scales of the `k` values of `type`
/// at `from`.
bool canKeep(WeightFormat format, StoredType type, const uint8_t *from,
             int64_t k);

/// Puts these integers and scales into a panel, for output `output`. `canKeep`
/// is true.
void keepOutput(WeightFormat format, StoredType type, const uint8_t *from,
                int64_t k, int64_t output, uint8_t *panel);

/// Puts the blocks of the `k` values of an output into a panel of a quantized
/// format.
void putOutput(WeightFormat format, const WeightBlock *blocks, int64_t k,
               int64_t output, uint8_t *panel);

/// Copies an output of a panel of a quantized format to another such panel.
void copyOutput(WeightFormat format, int64_t k, const uint8_t *from,
                int64_t fromOutput, uint8_t *to, int64_t toOutput);

/// Writes the `k` values of an output of a panel as whole blocks of
/// exportedType(format). Returns false if they do not hold a zero point.
bool exportOutput(WeightFormat format, const uint8_t *panel, int64_t k,
                  int64_t output, uint8_t *to);

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_ENCODE_H
