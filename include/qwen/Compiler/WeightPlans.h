//===- WeightPlans.h - Plans of formats by name -----------------*- C++ -*-===//
//
// WeightPlans.def expanded into enumerators and data.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_COMPILER_WEIGHTPLANS_H
#define QWEN_COMPILER_WEIGHTPLANS_H

#include "qwen/ABI/WeightFormats.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Quantizers/Quantizers.h"
#include "qwen/Support/Named.h"
#include "qwen/Support/Pattern.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"

#include <optional>
#include <string_view>
#include <vector>

namespace qwen {

/// A plan of WeightPlans.def.
enum class WeightPlan : uint8_t {
#define QWEN_WEIGHT_PLAN(Plan, ...) Plan,
#include "qwen/Compiler/WeightPlans.def"
};
inline constexpr WeightPlan kWeightPlans[] = {
#define QWEN_WEIGHT_PLAN(Plan, ...) WeightPlan::Plan,
#include "qwen/Compiler/WeightPlans.def"
};

/// The number that is odd for a plan if it is no multiple of a block of 256
/// values: the hidden size of the model, or the inputs of the matrix.
enum class PlanWidth : uint8_t { Hidden, Inputs };

/// Which matrices a rule of a plan is for.
enum class PlanLayers : uint8_t {
#define QWEN_PLAN_LAYERS(Layers, ...) Layers,
#include "qwen/Compiler/WeightPlans.def"
};

struct WeightPlanInfo {
  /// The word of --weights.
  std::string_view name;
  PlanWidth width;
  /// When to choose the plan.
  std::string_view use;
};
inline constexpr WeightPlanInfo kWeightPlanInfos[] = {
#define QWEN_WEIGHT_PLAN(Plan, Name, Width, Use) {Name, PlanWidth::Width, Use},
#include "qwen/Compiler/WeightPlans.def"
};

constexpr const WeightPlanInfo &infoOf(WeightPlan plan) {
  return kWeightPlanInfos[static_cast<size_t>(plan)];
}

/// The plan with this name, if there is one.
constexpr std::optional<WeightPlan> parseWeightPlan(std::string_view name) {
  return findNamed(kWeightPlans, name,
                   [](WeightPlan plan) { return infoOf(plan).name; });
}

/// The rules of a plan for the matrices of a module.
class PlanRules {
public:
  /// What the plan says of a matrix.
  struct Choice {
    WeightFormat format;
    Quantizer quantizer;
  };

  /// `module` is at stage "graph".
  PlanRules(WeightPlan plan, mlir::ModuleOp module);

  Choice of(WeightOp matrix) const;

private:
  struct Rule {
    Pattern matrices;
    PlanLayers layers;
    Choice choice, oddChoice;
  };

  std::vector<Rule> rules;
  /// The names of matrices that make logits. A tied embedding is one.
  llvm::StringSet<> heads;
  PlanWidth width;
  int64_t hiddenSize = 0, layerCount = 0;
  /// The most query heads that share a KV head.
  int64_t sharedHeads = 0;
};

} // namespace qwen

#endif // QWEN_COMPILER_WEIGHTPLANS_H
