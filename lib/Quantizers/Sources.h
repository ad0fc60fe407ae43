//===- Sources.h - Sources that quantizers make -----------------*- C++ -*-===//

#ifndef QWEN_LIB_QUANTIZERS_SOURCES_H
#define QWEN_LIB_QUANTIZERS_SOURCES_H

#include "qwen/Weights/WeightSource.h"

namespace qwen {

/// The integers of `source` in `format`, which is quantized: those that it
/// keeps, and for other outputs those whose scales have the least squared
/// error.
WeightSourcePtr makeSearched(WeightSourcePtr source, WeightFormat format);

} // namespace qwen

#endif // QWEN_LIB_QUANTIZERS_SOURCES_H
