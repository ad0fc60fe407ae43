//===- Quantizers.cpp - What chooses the integers of weights --------------===//

#include "qwen/Quantizers/Quantizers.h"

#include "QuantizedSources.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

void qwen::requireFinite(const WeightSource &source, int64_t first,
                         std::span<const float> values) {
  const auto found = std::ranges::find_if(
      values, [](float value) { return !std::isfinite(value); });
  if (found != values.end())
    throw refusal(source, numerics::EncodeStatus::NotFinite,
                  first + (found - values.begin()) / source.shape().k());
}

WeightSourcePtr qwen::quantize(Quantizer quantizer,
                               const WeightSourcePtr &source,
                               WeightFormat format,
                               const QuantizerFactors &factors,
                               const QuantizerOptions &options) {
  if (!isQuantized(format) ||
      (source->hasIntegers() && source->keptFormat() == format))
    return source;
  if (needsText(quantizer) && factors.inputs == nullptr)
    throw Error("quantizer " + std::string(infoOf(quantizer).name) +
                " needs moments of the inputs of " + source->name() +
                ", which calibration gives");
  switch (quantizer) {
  case Quantizer::Rounding:
    return source;
  case Quantizer::Search:
    return makeSearched(source, format, factors.columns);
  case Quantizer::Gptq:
    return makeGptq(*source, format, factors, 0, options);
  case Quantizer::GptqDescent:
    return makeGptq(*source, format, factors, kSweeps, options);
  }
  __builtin_unreachable();
}
