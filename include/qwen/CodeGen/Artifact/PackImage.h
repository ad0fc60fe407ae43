//===- PackImage.h - A weight image -----------------------------*- C++ -*-===//
//
// Packs the weights panel by panel from their sources, with all cores and
// little memory.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_ARTIFACT_PACKIMAGE_H
#define QWEN_CODEGEN_ARTIFACT_PACKIMAGE_H

#include "qwen/Weights/WeightSource.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// Writes `bytes` at `offset` of the image. Several threads may call it at the
/// same time. Throws Error.
using WriteFn =
    std::function<void(uint64_t offset, std::span<const uint8_t> bytes)>;

/// Receives the number of packed bytes. Only one thread calls it at a time.
using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;

/// The sizes and errors of the matrices of one form, before and after packing.
struct Conversion {
  /// WeightSource::form().
  std::string from;
  WeightFormat to;
  int64_t matrices = 0;
  uint64_t bytesBefore = 0;
  uint64_t bytesAfter = 0;
  /// Root mean square of the errors, as a share of the values' root mean
  /// square. 0 if all values are exact.
  double error = 0;
};

/// A job that is done among the weights.
using JobFn = std::function<void(size_t i)>;

/// Packs the parts of `module` (stage "calls") that are in `image`, the symbol
/// of a qwen.image or null for the model's, with `threads` threads. Among the
/// weights, evenly spread, they call `job` for each number below `jobs`: two
/// threads that wait for memory of the file gain nothing. Does not write the
/// padding between the parts, which must be zeros. The bytes depend only on
/// module and sources. Throws the error of a job, or Error, with the tensor, if
/// a weight is not finite or its scale is too large for f16. Returns the
/// conversions of the matrices, sorted by types.
std::vector<Conversion> packWeights(mlir::ModuleOp module,
                                    mlir::FlatSymbolRefAttr image,
                                    const WeightSources &sources,
                                    unsigned threads, const WriteFn &write,
                                    const ProgressFn &progress, size_t jobs,
                                    const JobFn &job);

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_PACKIMAGE_H
