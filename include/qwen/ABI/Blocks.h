//===- Blocks.h - Block formats and packed layouts --------------*- C++ -*-===//
//
// The bytes of quantized tensors: what one block holds, and how a packed
// matrix is arranged in the weight image. docs/numerics.md says what the
// numbers mean; docs/artifact.md draws the bytes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_BLOCKS_H
#define QWEN_ABI_BLOCKS_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace qwen {

/// Activations are quantized in blocks of this many values along K; the last
/// block of a row may be shorter.
inline constexpr int64_t kActivationBlock = 128;

/// Sums of quantized activations are kept for groups of this many values, and
/// K is a multiple of it in every product.
inline constexpr int64_t kGroup = 32;

/// Positions in one page of the KV cache.
inline constexpr int64_t kPageTokens = 64;

/// Output columns in one panel of a packed matrix. Rows of outputs in the
/// arena are padded to a multiple of it, so that kernels have no column tail.
inline constexpr int64_t kPanelRows = 16;

constexpr int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t alignTo(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

/// Number formats of weights in the image.
enum class WeightFormat : uint8_t { F32, Q4_0 };

/// Returns "f32" or "q4_0".
std::string_view weightFormatName(WeightFormat format);
std::optional<WeightFormat> parseWeightFormat(std::string_view name);

/// Number formats of the KV cache.
enum class KvFormat : uint8_t { F32, F16 };

/// Returns "f32" or "f16".
std::string_view kvFormatName(KvFormat format);
std::optional<KvFormat> parseKvFormat(std::string_view name);
constexpr int64_t kvElementBytes(KvFormat format) {
  return format == KvFormat::F32 ? 4 : 2;
}

/// ggml's Q4_0 block: 32 values of one row.
struct BlockQ4_0 {
  /// f16 bits of the scale.
  uint16_t d;
  /// Byte j holds value j in its low nibble and value j + 16 in its high one,
  /// each plus 8.
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// How a matrix [n][k] of one format lies in the weight image.
///
/// Rows are taken in panels of kPanelRows; the last panel is filled with zero
/// rows (scale +0). Panels follow each other without gaps.
///
/// * f32: panel = float [k][16], so that outputs lie in lanes.
/// * q4_0: panel = [k / 32] groups of 288 bytes: 16 f16 scales, then 4 chunks
///   of 64 bytes. Chunk c holds 4 bytes of each of the 16 rows in turn; byte j
///   of row r is byte 4 * c + j of that row's BlockQ4_0: value 4c + j of the
///   group in the low nibble, 4c + j + 16 in the high one, each plus 8.
///   (The x16 sibling of ggml's interleaved Q4_0, with unsigned nibbles.)
int64_t panelBytes(WeightFormat format, int64_t k);

/// Bytes of a whole packed matrix.
inline int64_t packedBytes(WeightFormat format, int64_t n, int64_t k) {
  return ceilDiv(n, kPanelRows) * panelBytes(format, k);
}

} // namespace qwen

#endif // QWEN_ABI_BLOCKS_H
