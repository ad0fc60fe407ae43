//===- PlanFormats.h - A plan that the caller chooses -----------*- C++ -*-===//

#ifndef QWEN_COMPILER_PLANFORMATS_H
#define QWEN_COMPILER_PLANFORMATS_H

#include "qwen/Compiler/Compiler.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// What a model takes in some formats.
struct PlanSize {
  uint64_t fileBytes = 0;
  /// Bytes of weights and caches that a token reads, the first of its sequence.
  uint64_t tokenBytes = 0;
};

/// A model whose formats the caller chooses.
struct PlanInput {
  /// At stage "graph", rotated if it will be. `formats` has the matrices whose
  /// format can be chosen.
  const QuantizeInput &model;
  /// Numbers of all weights; the numbers of a tied embedding count once.
  int64_t parameters;
  /// The part of the bytes of a matrix that a token reads: 0 of an embedding
  /// that is no head, and the part of the active experts.
  std::function<double(std::string_view matrix)> tokenPart;
  /// How much errors of the columns of a matrix count by the importance matrix
  /// of the options (QuantizerFactors), or null if it has no row of the matrix.
  /// Empty without an importance matrix. Throws Error.
  std::function<std::shared_ptr<const std::vector<float>>(
      const std::string &matrix)>
      importance;
  /// The size with other formats of `model.formats`. Generates the code.
  /// Throws Error.
  std::function<PlanSize(const MatrixFormats &formats)> sizeOf;
};

using ChooseFormatsFn = std::function<MatrixFormats(const PlanInput &input)>;

/// The text of a plan file (CompileOptions::plan) with the formats that
/// `choose` returns, and the quantizer of `options`, by default gptq. Matrices
/// of integers keep them; others have the format `start` in `PlanInput`. Layers
/// are removed, channels scaled and weights rotated by `options` and `hooks`
/// first, as compileModel does. Another compile may run while `choose` runs.
/// Throws Error like compileModel.
std::string planFormats(const std::filesystem::path &checkpoint,
                        CompileOptions options, const CompileHooks &hooks,
                        WeightFormat start, const ChooseFormatsFn &choose);

} // namespace qwen

#endif // QWEN_COMPILER_PLANFORMATS_H
