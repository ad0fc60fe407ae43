//===- BudgetPlan.h - Formats within a budget -------------------*- C++ -*-===//
//
// The formats of matrices with the least loss in a number of bytes, or with the
// fewest bytes at a loss (docs/decisions/0044-budgets.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_BUDGETPLAN_H
#define QWEN_CALIBRATION_BUDGETPLAN_H

#include "calibration/Sensitivities.h"
#include "qwen/Compiler/PlanFormats.h"

#include <optional>
#include <string>

namespace qwen {

/// The formats that a budget chooses from, by their bits. All are quantized,
/// and gptq loses less in them than in others of as many bits.
inline constexpr WeightFormat kBudgetFormats[] = {
    WeightFormat::Q4_G128, WeightFormat::NL4_XS, WeightFormat::NL4,
    WeightFormat::Q5_0,    WeightFormat::Q6_K,   WeightFormat::Q8_0};

/// What a budget limits.
enum class BudgetKind : uint8_t {
  /// Bytes of the file.
  FileBytes,
  /// Bits of the file for each weight of the model.
  BitsPerWeight,
  /// The KL divergence of a token to the model in f32, in nats.
  Divergence,
  /// The least tokens a second that memory allows.
  TokensPerSecond
};

struct Budget {
  /// As the command line has it, for messages.
  std::string text;
  BudgetKind kind;
  /// Positive.
  double value;
  /// Bytes that memory gives a second, for TokensPerSecond.
  double bytesPerSecond = 0;
};

/// The formats that a budget chose.
struct BudgetPlan {
  MatrixFormats formats;
  PlanSize size;
  /// The losses that sensitivities promise: a KL divergence if there are
  /// gradients.
  double loss = 0;
  /// The best format of all matrices within the budget, if one is, and its
  /// loss.
  std::optional<WeightFormat> uniform;
  double uniformLoss = 0;
  /// Whether the plan is that format.
  bool isUniform = false;
};

/// Throws Error, with the least that is possible, if the bytes of a budget are
/// too few, or if there is nothing to choose: before losses are measured.
void requireBudget(const PlanInput &input, const Budget &budget);

/// Chooses formats by the losses of kBudgetFormats. The matrices
/// of a product have one format. Throws Error, with the least that is possible,
/// if the budget is too small.
BudgetPlan planBudget(const PlanInput &input, const Sensitivities &losses,
                      const Budget &budget);

} // namespace qwen

#endif // QWEN_CALIBRATION_BUDGETPLAN_H
