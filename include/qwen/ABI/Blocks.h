//===- Blocks.h - Block formats and packed layouts --------------*- C++ -*-===//
//
// The bytes of quantized tensors: what one block holds, and how a packed
// matrix is arranged in the weight image. docs/numerics.md says what the
// numbers mean; docs/artifact.md draws the bytes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_BLOCKS_H
#define QWEN_ABI_BLOCKS_H

#include "qwen/ABI/WeightFormats.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace qwen {

/// Activations are quantized in blocks of this many values along K; the last
/// block of a token may be shorter.
inline constexpr int64_t kActivationBlock = 128;

/// Sums of quantized activations are kept for groups of this many values, and
/// K is a multiple of it in every product.
inline constexpr int64_t kGroup = 32;
/// Groups of a whole block of activations.
inline constexpr int64_t kBlockGroups = kActivationBlock / kGroup;

/// Positions in one page of the KV cache.
inline constexpr int64_t kPageTokens = 64;

/// Outputs in one panel of a packed matrix. Products are padded to a multiple
/// of it in the arena, so that kernels have no tail.
inline constexpr int64_t kPanelOutputs = 16;

constexpr int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t alignTo(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

/// Number formats of the KV cache.
enum class KvFormat : uint8_t { F32, F16 };

/// Returns "f32" or "f16".
std::string_view kvFormatName(KvFormat format);
std::optional<KvFormat> parseKvFormat(std::string_view name);
constexpr int64_t kvElementBytes(KvFormat format) {
  return format == KvFormat::F32 ? 4 : 2;
}

/// How a matrix [n][k] of one format lies in the weight image.
///
/// Outputs are taken in panels of kPanelOutputs; the last panel is filled with
/// outputs of zeros (scale +0). Panels follow each other without gaps.
///
/// * f32, bf16: panel = float [k][16] or their upper halves, so that outputs
///   lie in lanes.
/// * Quantized formats: panel = [ceil(k / weightBlock)] blocks: 16 f16 scales,
///   then the block's groups of 32 values. A group is chunks of 64 bytes, 4
///   bytes of each of the 16 outputs in turn:
///   * 8 bits: 8 chunks; byte j of output r in chunk c is the code of value
///     4c + j.
///   * 4 bits: 4 chunks; byte j of output r in chunk c has the code of value
///     4c + j in the low nibble and that of 4c + j + 16 in the high one.
///   (q4_0 is the x16 sibling of ggml's interleaved Q4_0, with unsigned
///   nibbles.)
int64_t panelBytes(WeightFormat format, int64_t k);

/// Bytes of the scales of one block of a panel, which precede its codes.
constexpr int64_t panelHeaderBytes(WeightFormat format) {
  return kPanelOutputs * kScaleBytes[size_t(infoOf(format).scales)];
}

/// Bytes of one group of a panel, without scales.
constexpr int64_t panelGroupBytes(WeightFormat format) {
  return kGroup * kPanelOutputs * codingOf(format).bits / 8;
}

/// Bytes of a whole block of a panel of a quantized format.
constexpr int64_t panelBlockBytes(WeightFormat format) {
  return panelHeaderBytes(format) +
         weightBlock(format) / kGroup * panelGroupBytes(format);
}

/// Bytes of a whole packed matrix.
inline int64_t packedBytes(WeightFormat format, int64_t n, int64_t k) {
  return ceilDiv(n, kPanelOutputs) * panelBytes(format, k);
}

} // namespace qwen

#endif // QWEN_ABI_BLOCKS_H
