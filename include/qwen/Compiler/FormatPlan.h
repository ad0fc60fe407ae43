//===- FormatPlan.h - A format and a quantizer for each matrix --*- C++ -*-===//
//
// What rules, a plan file and a search by bytes have in common: their result.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_COMPILER_FORMATPLAN_H
#define QWEN_COMPILER_FORMATPLAN_H

#include "qwen/ABI/KvFormats.h"
#include "qwen/Compiler/WeightPlans.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Quantizers/Quantizers.h"
#include "qwen/Transforms/KvLayers.h"
#include "qwen/Transforms/MatrixFormats.h"

#include "mlir/IR/BuiltinOps.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace qwen {

/// The formats of the checkpoint's matrices, or the nearest.
struct KeepFormats {
  bool operator==(const KeepFormats &) const = default;
};
/// Matrices of integers keep them, others have a format.
struct KeepIntegers {
  WeightFormat others;
  bool operator==(const KeepIntegers &) const = default;
};
/// The format of each matrix that no rule names.
using WeightChoice =
    std::variant<KeepFormats, WeightFormat, WeightPlan, KeepIntegers>;

/// Stands for the format of the checkpoint, or the nearest.
inline constexpr std::string_view kKeepFormat = "keep";

/// The quantizers of matrices, by their names.
using MatrixQuantizers = std::map<std::string, Quantizer, std::less<>>;

struct FormatPlan {
  /// The format of each matrix of plannedMatrices().
  MatrixFormats formats;
  /// The quantizers of matrices in formats of integers. A matrix that keeps the
  /// integers of the checkpoint has none.
  MatrixQuantizers quantizers;
  /// The format of the keys and values of each layer that `kvLayers` lacks.
  KvFormat kv = KvFormat::F16;
  KvLayers kvLayers;

  /// The format of one of plannedMatrices().
  WeightFormat formatOf(WeightOp matrix) const;
  /// Its quantizer, if it has one.
  std::optional<Quantizer> quantizerOf(WeightOp matrix) const;
};

/// The matrices of `module` that a plan has: all but exact ones
/// (`qwen.weight`), whose format follows from their values.
std::vector<WeightOp> plannedMatrices(mlir::ModuleOp module);

/// The formats of the matrices of `module`: the format of the last rule
/// 'REGEX=FORMAT' (RE2, which matches anywhere in the name) for it, or
/// `choice`. Throws Error for a text that is no rule, and for a rule that
/// matches no matrix.
MatrixFormats formatsByRules(mlir::ModuleOp module, const WeightChoice &choice,
                             const std::vector<std::string> &rules);

/// The plan in `file` (docs/compile-options.md), for the matrices of `module`.
/// Throws Error if it is damaged, of a model with other sizes than `model`, has
/// no format of a matrix, or names one that the model lacks.
FormatPlan readPlan(const std::filesystem::path &file, const ModelConfig &model,
                    mlir::ModuleOp module);

/// The text of a file that readPlan reads.
std::string planText(const FormatPlan &plan, const ModelConfig &model);

} // namespace qwen

#endif // QWEN_COMPILER_FORMATPLAN_H
