//===- Quantizers.cpp - What chooses the integers of weights --------------===//

#include "qwen/Quantizers/Quantizers.h"

#include "Sources.h"

using namespace qwen;

WeightSourcePtr qwen::quantize(Quantizer quantizer,
                               const WeightSourcePtr &source,
                               WeightFormat format, const InputFactor *factor,
                               const QuantizerOptions &options) {
  if (!isQuantized(format) || source->keptFormat() == format)
    return source;
  switch (quantizer) {
  case Quantizer::Rounding:
    return source;
  case Quantizer::Search:
    return makeSearched(source, format);
  }
  __builtin_unreachable();
}
