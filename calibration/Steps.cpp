//===- Steps.cpp - What a calibration does for each sublayer --------------===//

#include "calibration/Steps.h"

#include "calibration/BackwardPass.h"
#include "qwen/Quantizers/InputFactor.h"

#include <algorithm>

using namespace qwen;

uint64_t CalibrationStep::backwardWork() const {
  if (!hasGradients)
    return 0;
  // What the ops computed is computed again.
  uint64_t sum = 2 * tokenWork;
  for (const StepInput &input : inputs)
    for (const StepFactor &factor : input.factors)
      for (const StepMatrix &matrix : factor.matrices)
        if (matrix.hasOutputFactor)
          sum += uint64_t(input.choices) * input.outputMomentWork(matrix);
  return sum;
}

uint64_t CalibrationStep::work(uint64_t tokens) const {
  uint64_t sum = tokens * (tokenWork + forwardWork() + backwardWork());
  for (const StepInput &input : inputs) {
    sum += tokens * uint64_t(input.choices) * input.momentWork();
    for (const StepFactor &factor : input.factors) {
      sum += uint64_t(input.experts) * input.factorWork();
      for (const StepMatrix &matrix : factor.matrices)
        sum += input.matrixWork(matrix) + input.outputWork(matrix);
    }
  }
  return sum;
}

uint64_t CalibrationStep::bytes() const {
  uint64_t moments = 0, factor = 0;
  for (const StepInput &input : inputs) {
    moments += uint64_t(input.experts) * InputMoments::bytesFor(input.k);
    factor = std::max(factor, 2 * InputFactor::bytesFor(input.k));
    for (const StepFactor &shared : input.factors)
      for (const StepMatrix &matrix : shared.matrices)
        if (matrix.hasOutputFactor) {
          const int64_t outputs = input.outputsOf(matrix);
          moments += uint64_t(input.experts) * InputMoments::bytesFor(outputs);
          factor = std::max(factor, InputFactor::bytesFor(input.k) +
                                        2 * InputFactor::bytesFor(outputs));
        }
  }
  return moments + factor;
}

/// The most outputs of a matrix with a factor of its own: it has their square
/// of floats.
static constexpr int64_t kMostFactorOutputs = 32768;

/// Adds `matrix` to the factor of the input that it needs.
static void addMatrix(StepInput &input, StepMatrix matrix, double damping) {
  const int64_t block = weightBlock(matrix.format);
  auto found = std::ranges::find_if(input.factors, [&](const StepFactor &f) {
    return f.block == block && f.damping == damping;
  });
  if (found == input.factors.end())
    found = input.factors.insert(found, {block, damping, {}});
  found->matrices.push_back(std::move(matrix));
}

CalibrationSteps::CalibrationSteps(const QuantizeInput &from) {
  const mlir::SymbolTable symbols(from.module);
  SublayerChain chain = divide(programsOf(from.module).front());
  embedding = chain.embedding;
  size_t needed = 0;
  for (const Sublayer &sublayer : chain.sublayers)
    if (!withoutGradient)
      withoutGradient = findOpWithoutGradient(sublayer);
  for (Sublayer &sublayer : chain.sublayers) {
    CalibrationStep &step = steps.emplace_back();
    step.hasGradients = !withoutGradient;
    for (auto [number, input] : llvm::enumerate(sublayer.inputs)) {
      StepInput made = {
          number, widthOf(input.rows), input.experts, input.choices(), {}};
      for (const std::string &name : input.weights) {
        const int64_t outputs = llvm::cast<mlir::ShapedType>(
                                    symbols.lookup<WeightOp>(name).getType())
                                    .getNumElements() /
                                made.k;
        step.tokenWork += static_cast<uint64_t>(outputs / made.experts *
                                                made.choices * made.k);
        const auto found = from.formats.find(name);
        if (found == from.formats.end())
          continue;
        const int64_t own = outputs / made.experts;
        addMatrix(
            made,
            {name, found->second,
             static_cast<size_t>(std::distance(from.formats.begin(), found)),
             outputs,
             // Not the head, nor what has too many outputs for their square.
             step.hasGradients && sublayer.result &&
                 own <= kMostFactorOutputs && own % kGroup == 0},
            name == embedding.getWeight() ? kTiedDamping : kDamping);
      }
      if (!made.factors.empty())
        step.inputs.push_back(std::move(made));
    }
    step.sublayer = std::move(sublayer);
    if (!step.inputs.empty())
      needed = steps.size();
  }
  for (CalibrationStep &step : llvm::drop_begin(steps, needed))
    rest.push_back(std::move(step.sublayer));
  steps.resize(needed);
}

std::vector<const Sublayer *> CalibrationSteps::chain() const {
  std::vector<const Sublayer *> all;
  all.reserve(steps.size() + rest.size());
  for (const CalibrationStep &step : steps)
    all.push_back(&step.sublayer);
  for (const Sublayer &sublayer : rest)
    all.push_back(&sublayer);
  return all;
}
