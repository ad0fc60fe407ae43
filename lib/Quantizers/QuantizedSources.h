//===- QuantizedSources.h - Sources that quantizers make --------*- C++ -*-===//

#ifndef QWEN_LIB_QUANTIZERS_QUANTIZEDSOURCES_H
#define QWEN_LIB_QUANTIZERS_QUANTIZEDSOURCES_H

#include "qwen/Quantizers/Quantizers.h"

#include <span>

namespace qwen {

/// Throws the refusal of the first output from `first` on that has a value that
/// is not finite.
void requireFinite(const WeightSource &source, int64_t first,
                   std::span<const float> values);

/// The integers of `source` in a quantized `format`. An output keeps the
/// integers that `source` has; the search quantizes the others with the scales
/// of least squared error. `columns` as in QuantizerFactors.
WeightSourcePtr
makeSearched(WeightSourcePtr source, WeightFormat format,
             std::shared_ptr<const std::vector<float>> columns = nullptr);

/// Sweeps of coordinate descent: later ones change few integers.
inline constexpr int kSweeps = 2;

/// Integers of `source` whose outputs have about the least error for these
/// factors, after `sweeps` of coordinate descent. The factor of the inputs is
/// not null.
WeightSourcePtr makeGptq(const WeightSource &source, WeightFormat format,
                         const QuantizerFactors &factors, int sweeps,
                         const QuantizerOptions &options);

} // namespace qwen

#endif // QWEN_LIB_QUANTIZERS_QUANTIZEDSOURCES_H
