//===- Quantizers.h - What chooses the integers of weights ------*- C++ -*-===//
//
// Quantizers.def expanded into enumerators and facts, and the entry of this
// library (docs/decisions/0018-quantizers.md). It knows no MLIR and no model.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_QUANTIZERS_QUANTIZERS_H
#define QWEN_QUANTIZERS_QUANTIZERS_H

#include "qwen/Quantizers/InputFactor.h"
#include "qwen/Support/Named.h"
#include "qwen/Support/Parallel.h"
#include "qwen/Weights/Owned.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// A row of Quantizers.def.
enum class Quantizer : uint8_t {
#define QWEN_QUANTIZER(Id, ...) Id,
#include "qwen/Quantizers/Quantizers.def"
};
inline constexpr Quantizer kQuantizers[] = {
#define QWEN_QUANTIZER(Id, ...) Quantizer::Id,
#include "qwen/Quantizers/Quantizers.def"
};

/// The second moments of a product's inputs that a quantizer needs: none, one
/// for each input, or one for each pair of inputs.
enum class NeedsMoments : uint8_t { None, Diagonal, Full };

struct QuantizerInfo {
  std::string_view name;
  NeedsMoments moments;
  int64_t rotatedBits;
  std::string_view help;
};
inline constexpr QuantizerInfo kQuantizerInfos[] = {
#define QWEN_QUANTIZER(Id, Name, Moments, RotatedBits, Help)                   \
  {Name, NeedsMoments::Moments, RotatedBits, Help},
#include "qwen/Quantizers/Quantizers.def"
};

constexpr const QuantizerInfo &infoOf(Quantizer quantizer) {
  return kQuantizerInfos[static_cast<size_t>(quantizer)];
}
/// Whether it needs moments, and so a calibration text.
constexpr bool needsText(Quantizer quantizer) {
  return infoOf(quantizer).moments != NeedsMoments::None;
}
/// The quantizer of that name, or none.
constexpr std::optional<Quantizer> parseQuantizer(std::string_view name) {
  return findNamed(kQuantizers, name,
                   [](Quantizer quantizer) { return infoOf(quantizer).name; });
}

/// What a text says to a quantizer of a matrix.
struct QuantizerFactors {
  /// Of its inputs; null for a quantizer that needs no moments.
  const InputFactor *inputs = nullptr;
  /// Of the gradients by its outputs, in one block of all of them; null where
  /// all outputs count the same and for themselves.
  const InputFactor *outputs = nullptr;
  /// How much errors of each column count to the search, as the mean square of
  /// its input. If the outputs belong to several matrices, the numbers of one
  /// matrix follow the numbers of another. Null: errors count by the magnitude
  /// of their weight.
  std::shared_ptr<const std::vector<float>> columns = nullptr;
};

/// Nothing here changes a bit of the result.
struct QuantizerOptions {
  unsigned threads = machineThreads();
  /// Where the integers lie, if they are computed at once.
  Place place = Place::Memory;
};

/// A source of the integers of `source` in `format`. It is `source` itself
/// where there is nothing to choose: by Rounding, in a format of floats, and
/// for integers that `format` keeps. Search computes them when they are asked
/// for. The factor of the inputs has the blocks of `format`. Throws Error, as
/// does reading integers of Search, where a value is not finite or no f16 holds
/// a scale.
WeightSourcePtr quantize(Quantizer quantizer, const WeightSourcePtr &source,
                         WeightFormat format,
                         const QuantizerFactors &factors = {},
                         const QuantizerOptions &options = {});

} // namespace qwen

#endif // QWEN_QUANTIZERS_QUANTIZERS_H
