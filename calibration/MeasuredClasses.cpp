//===- MeasuredClasses.cpp - What classes of matrices lose ----------------===//

#include "calibration/MeasuredClasses.h"

#include "calibration/HeldOutWindows.h"
#include "calibration/Teacher.h"
#include "engine/CpuCount.h"

#include <algorithm>
#include <numeric>

using namespace qwen;

/// What is behind the number of the layer, or nothing.
static llvm::StringRef behindLayer(llvm::StringRef matrix) {
  return matrix.split(".layers.").second.split('.').second;
}

std::string qwen::partOfLayer(const std::string &matrix) {
  const llvm::StringRef part = behindLayer(matrix);
  return part.empty() ? matrix : part.str();
}

std::string qwen::matrixClass(const std::string &matrix) {
  llvm::StringRef name = matrix;
  name.consume_back(".weight");
  const llvm::StringRef inLayer = behindLayer(name);
  if (inLayer.empty())
    return name.rsplit('.').second.empty() ? name.str()
                                           : name.rsplit('.').second.str();
  return inLayer.rsplit('.').first.str();
}

namespace {
/// One run of correctLosses().
class Trial {
public:
  Trial(const QuantizeInput &given, const CalibrationText &text,
        const MatrixFormats &plan, const CalibrationOptions &options)
      : input(given), options(options),
        chain(divide(programsOf(input.module).front())),
        pool(usableThreads(static_cast<int>(options.threads))) {
    input.formats = plan;
    const DividedText windows = holdOut(text);
    learned = {windows.idsOf(windows.learned), text.window, text.hash};
    heldOut = windows.idsOf(windows.heldOut);
    numbers.resize(windows.heldOut.size());
    std::iota(numbers.begin(), numbers.end(), int64_t{0});
  }

  int64_t tokens() const { return std::ssize(heldOut); }
  /// Asks what the floats answer, and lets the text choose integers.
  void prepare();
  /// The divergence where the matrices of `names` have integers.
  double measure(const std::vector<std::string> &names, bool quantizesInputs);
  std::vector<std::string> allNames() const {
    std::vector<std::string> names;
    names.reserve(integers.size());
    for (const auto &entry : integers)
      names.push_back(entry.first);
    return names;
  }

private:
  QuantizeInput input;
  const CalibrationOptions &options;
  const SublayerChain chain;
  ThreadPool pool;
  CalibrationText learned = {};
  std::vector<int32_t> heldOut;
  /// Of the windows that are held out.
  std::vector<int64_t> numbers;
  std::optional<Teacher> teacher;
  std::map<std::string, WeightSourcePtr> floats, integers;
};
} // namespace

void Trial::prepare() {
  teacher.emplace(input.module, input.weights, chain.sublayers.back(),
                  learned.window,
                  Teacher::rowsOf(input.module, input.weights, chain, heldOut,
                                  learned.window, pool),
                  pool);
  for (const auto &[name, format] : input.formats)
    floats[name] = input.source(name);
  calibrate(input, learned, options);
  for (const auto &[name, format] : input.formats) {
    const WeightSourcePtr chosen = input.source(name);
    // No product reads an embedding that is not the head.
    integers[name] = chosen == floats[name]
                         ? quantize(Quantizer::Search, chosen, format)
                         : chosen;
    input.replaceValues(name, floats[name]);
  }
}

double Trial::measure(const std::vector<std::string> &names,
                      bool quantizesInputs) {
  for (const std::string &name : names)
    input.replace(name, integers[name]);
  Student student(input.module, input.weights, chain, learned.window,
                  options.threads, quantizesInputs);
  student.runForward(heldOut, /*keepsRows=*/false);
  const double loss = teacher->divergence(student, numbers, options.threads);
  for (const std::string &name : names)
    input.replaceValues(name, floats[name]);
  return loss;
}

namespace {
struct ClassLoss {
  std::vector<std::string> names;
  double expected = 0, measured = 0;
};
} // namespace

PlanTrial qwen::correctLosses(const QuantizeInput &input,
                              const CalibrationText &text,
                              const MatrixFormats &plan,
                              std::span<const WeightFormat> formats,
                              Sensitivities &losses,
                              const CalibrationOptions &options) {
  Trial trial(input, text, plan, options);
  if (trial.tokens() == 0)
    return {};
  trial.prepare();
  std::map<std::string, ClassLoss> classes;
  for (const std::string &name : trial.allNames()) {
    const auto found = losses.losses.find(name);
    // The text does not run draft heads.
    if (found == losses.losses.end())
      continue;
    ClassLoss &own = classes[matrixClass(name)];
    own.names.push_back(name);
    own.expected += found->second[static_cast<size_t>(
        llvm::find(formats, plan.find(name)->second) - formats.begin())];
  }
  PlanTrial result = {
      .tokens = trial.tokens(), .expected = losses.activations, .factors = {}};
  double sum = 0;
  for (auto &[name, own] : classes) {
    own.measured = trial.measure(own.names, false);
    sum += own.measured;
    result.expected += own.expected;
  }
  // Classes lose more together, or less, than each by itself.
  const double weights = trial.measure(trial.allNames(), false);
  result.measured = trial.measure(trial.allNames(), true);
  for (const auto &[name, own] : classes) {
    const double factor = own.expected > 0 && sum > 0
                              ? own.measured / own.expected * weights / sum
                              : 1;
    result.factors[name] = factor;
    for (const std::string &matrix : own.names)
      for (double &loss : losses.losses[matrix])
        loss *= factor;
  }
  losses.activations = std::max(0.0, result.measured - weights);
  return result;
}
