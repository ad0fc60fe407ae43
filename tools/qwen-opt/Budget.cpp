//===- Budget.cpp - The command line of a budget --------------------------===//

#include "Budget.h"

#include "MemorySpeed.h"
#include "ProgressBar.h"
#include "calibration/ImportanceLosses.h"
#include "calibration/MeasuredClasses.h"
#include "engine/CpuCount.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <charconv>
#include <cmath>
#include <map>

using namespace qwen;

namespace {
/// How the text of a budget is written.
struct BudgetForm {
  std::string_view prefix, suffix;
  BudgetKind kind;
  double factor;
};
} // namespace

static constexpr BudgetForm kForms[] = {
    {"", "bpw", BudgetKind::BitsPerWeight, 1},
    {"", "MB", BudgetKind::FileBytes, 1e6},
    {"", "GB", BudgetKind::FileBytes, 1e9},
    {"kl=", "", BudgetKind::Divergence, 1},
    {"", "tok/s", BudgetKind::TokensPerSecond, 1}};

static Budget parseBudget(const std::string &text) {
  for (const BudgetForm &form : kForms) {
    llvm::StringRef number = text;
    if (!number.consume_front(form.prefix) || !number.consume_back(form.suffix))
      continue;
    double value = 0;
    const auto [rest, error] =
        std::from_chars(number.begin(), number.end(), value);
    if (error == std::errc() && rest == number.end() && std::isfinite(value) &&
        value > 0)
      return {text, form.kind, value * form.factor};
  }
  throw InvalidValue("--budget",
                     quote(text) + " is none of 4.6bpw, 300MB, 1.2GB, kl=0.01 "
                                   "and 60tok/s with a number above 0");
}

void qwen::addBudget(const Command &command, BudgetFlags &flags) {
  const Option budget =
      command
          .addText(
              "--budget",
              [&flags](const std::string &text) {
                flags.budget = parseBudget(text);
              },
              "Choose the format of each matrix so that the model loses least "
              "within a budget: 4.6bpw, bits of the file for each weight; "
              "300MB or 1.2GB, of 10^6 and 10^9 bytes; kl=0.01, the smallest "
              "file of that KL divergence; 60tok/s, by the speed of memory; "
              "needs --calibrate or --imatrix; default is none")
          .excludes(command.option("--weights"))
          .excludes(command.option("--tensor-weights"))
          .excludes(command.option("--plan"));
  command
      .addNumber("--gbps", flags.gigabytes,
                 "Memory bandwidth in GB/s (10^9 bytes) for a budget of tok/s; "
                 "default is that of this machine, measured",
                 0.001, 1e6)
      .needs(budget);
}

void qwen::checkBudget(const Command &command, const BudgetFlags &flags,
                       const CompileOptions &options) {
  if (!flags.budget)
    return;
  const bool calibrates = command.option("--calibrate").isGiven();
  if (!calibrates && options.imatrix.empty())
    throw UsageError(command, "--budget needs --calibrate or --imatrix");
  if (!calibrates && flags.budget->kind == BudgetKind::Divergence)
    throw UsageError(command, "--budget " + flags.budget->text +
                                  " needs --calibrate: an importance matrix "
                                  "knows no gradients");
  if (calibrates && !needsText(options.quantizer.value()))
    throw UsageError(command, "--budget needs --quantizer gptq or gptq+cd");
  if (flags.gigabytes && flags.budget->kind != BudgetKind::TokensPerSecond)
    throw UsageError(command, "--gbps has no effect on a budget of " +
                                  flags.budget->text);
}

/// "3 matrices in q4_0, 4 in q8_0".
static std::string countsOf(const MatrixFormats &formats) {
  std::map<WeightFormat, size_t> counts;
  for (const auto &[name, format] : formats)
    ++counts[format];
  std::string text;
  for (WeightFormat format : kBudgetFormats)
    if (const size_t count = counts[format])
      text += (text.empty() ? "" : ", ") + std::to_string(count) +
              (text.empty() ? " matrices in " : " in ") +
              std::string(weightFormatName(format));
  return text;
}

static void print(const Budget &budget, const BudgetPlan &plan,
                  const PlanInput &input, const Sensitivities &losses) {
  const double bytes = static_cast<double>(plan.size.fileBytes);
  llvm::raw_ostream &out = llvm::errs();
  out << "budget: " << budget.text << ": "
      << llvm::formatv("{0:f2} MB, {1:f3} bits a weight, ", bytes / 1e6,
                       8 * bytes / static_cast<double>(input.parameters))
      << countsOf(plan.formats) << '\n';
  const bool isDivergence = losses.withoutGradient.empty();
  if (isDivergence)
    out << llvm::formatv("budget: the KL divergence should be about {0:f4}, "
                         "of which {1:f4} are inputs in 8 bits\n",
                         plan.loss, losses.activations);
  else
    out << "budget: no gradients, because " << losses.withoutGradient
        << ": errors count as parts of the outputs of a matrix\n";
  if (!losses.notFinite.empty())
    out << "budget: the gradient of " << losses.notFinite
        << " is not finite: what matrices up to there lose is estimated by "
           "those behind it\n";
  if (plan.isUniform)
    out << "budget: no mixture loses less than one format for all matrices\n";
  else if (plan.uniform)
    out << llvm::formatv(
        "budget: the best format for all matrices, {0}, {1}\n",
        weightFormatName(*plan.uniform),
        isDivergence
            ? llvm::formatv("should have {0:f4}", plan.uniformLoss).str()
            : llvm::formatv("would lose {0:f2} times as much",
                            plan.uniformLoss / plan.loss)
                  .str());
}

static void print(const PlanTrial &trial) {
  std::string factors;
  for (const auto &[name, factor] : trial.factors)
    factors += llvm::formatv("{0} {1} by {2:f2}", factors.empty() ? "" : ",",
                             name, factor);
  llvm::errs() << llvm::formatv(
                      "budget: a trial has a KL divergence of {0:f4} on {1} "
                      "tokens that chose no integers, where {2:f4} was "
                      "expected: losses are multiplied,",
                      trial.measured, trial.tokens, trial.expected)
               << factors << '\n';
}

/// Corrects `losses` by a trial of `plan`, and plans again.
static void tryPlan(const PlanInput &input, const Budget &budget,
                    const CalibrationText &text, uint64_t memory,
                    Sensitivities &losses, BudgetPlan &plan) {
  std::optional<ProgressBar> bar(std::in_place, "trying the plan");
  const PlanTrial trial = correctLosses(
      input.model, text, plan.formats, kBudgetFormats, losses,
      {.memory = memory, .progress = [&](uint64_t done, uint64_t total) {
         bar->update(done, total);
       }});
  bar.reset();
  if (trial.tokens == 0)
    return;
  print(trial);
  plan = planBudget(input, losses, budget);
}

static MatrixFormats planByImportance(const PlanInput &input,
                                      const Budget &budget) {
  const Sensitivities losses = importanceLosses(input, kBudgetFormats);
  const BudgetPlan plan = planBudget(input, losses, budget);
  print(budget, plan, input, losses);
  return plan.formats;
}

std::string qwen::planByBudget(const BudgetFlags &flags,
                               const CalibrateFlags &calibrate,
                               const std::string &checkpoint,
                               const CompileOptions &options,
                               const CompileHooks &hooks) {
  Budget budget = *flags.budget;
  if (budget.kind == BudgetKind::TokensPerSecond)
    budget.bytesPerSecond = flags.gigabytes ? *flags.gigabytes * 1e9
                                            : memorySpeed(defaultThreads());
  const auto text = calibrationText(calibrate, checkpoint, "--budget");
  // The compile that follows warns.
  CompileHooks silent = hooks;
  silent.warn = {};
  silent.checkTemplate = {};
  return planFormats(
      checkpoint, options, silent, kBudgetFormats[0],
      [&](const PlanInput &input) {
        requireBudget(input, budget);
        if (input.importance)
          return planByImportance(input, budget);
        std::optional<ProgressBar> bar(std::in_place, "measuring losses");
        const CalibrationText windows = text(input.model);
        Sensitivities losses = measureSensitivities(
            input.model, windows, kBudgetFormats,
            {.memory = calibrate.memory,
             .progress = [&](uint64_t done, uint64_t total) {
               bar->update(done, total);
             }});
        bar.reset();
        BudgetPlan plan = planBudget(input, losses, budget);
        if (losses.withoutGradient.empty())
          tryPlan(input, budget, windows, calibrate.memory, losses, plan);
        print(budget, plan, input, losses);
        return plan.formats;
      });
}
