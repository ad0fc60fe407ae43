//===- Sensitivities.cpp - What a model loses in each format --------------===//

#include "calibration/Sensitivities.h"

#include "calibration/MeasuredClasses.h"
#include "calibration/StepGradients.h"
#include "calibration/Steps.h"
#include "calibration/TextGradients.h"
#include "calibration/TextRun.h"
#include "engine/CpuCount.h"
#include "qwen/Quantizers/MatrixSample.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

using namespace qwen;

/// The experts of a layer that stand for all: those with most tokens.
static constexpr size_t kSampledExperts = 4;

/// Values of a product's input that share a scale, and the greatest of their
/// integers (docs/numerics.md).
static constexpr int64_t kInputBlock = 128;
static constexpr double kInputSteps = 127;

/// Whole windows of about kSensitivityTokens tokens, spread over `text`.
static std::vector<int32_t> windowsOf(const CalibrationText &text) {
  const int64_t all = text.windows(),
                count = std::clamp<int64_t>(kSensitivityTokens / text.window, 1,
                                            all);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const auto first = text.ids.begin() + i * all / count * text.window;
    ids.insert(ids.end(), first, first + text.window);
  }
  return ids;
}

namespace {
/// The squares of gradients by each output of a step's products, or of each
/// expert's.
class OutputSquares {
public:
  void add(const ProductGradient &gradient, unsigned threads) {
    const auto outputs = static_cast<size_t>(gradient.outputs);
    std::vector<double> &sums =
        squares[{gradient.weight.str(), static_cast<size_t>(gradient.expert)}];
    sums.resize(outputs);
    constexpr size_t kSome = 256;
    parallelFor((outputs + kSome - 1) / kSome, threads,
                [&](size_t i, unsigned) {
                  const size_t end = std::min(outputs, (i + 1) * kSome);
                  for (size_t row = 0; row < gradient.count(); ++row)
                    for (size_t j = i * kSome; j < end; ++j) {
                      const double value = gradient.slopes[row * outputs + j];
                      sums[j] += value * value;
                    }
                });
  }
  /// Half the mean squares of the `outputs` outputs of `weight`, for the
  /// `tokens` tokens that chose the expert.
  std::vector<double> halfMeans(const std::string &weight, size_t expert,
                                int64_t outputs, int64_t tokens) const {
    std::vector<double> means(static_cast<size_t>(outputs));
    if (const auto found = squares.find({weight, expert});
        found != squares.end() && tokens != 0)
      std::ranges::transform(found->second, means.begin(), [&](double sum) {
        return sum / (2 * static_cast<double>(tokens));
      });
    return means;
  }

private:
  std::map<std::pair<std::string, size_t>, std::vector<double>> squares;
};

/// What the rows of an input say.
struct InputFacts {
  InputMoments moments;
  /// The sum of the mean squared errors of each column in int8.
  std::vector<double> rounding;

  InputFacts(int64_t k, Place place)
      : moments(k, place), rounding(static_cast<size_t>(k)) {}

  void add(std::span<const float> rows, unsigned threads,
           const float *weights) {
    const int64_t k = moments.k(), count = std::ssize(rows) / k;
    moments.add(rows.data(), count, k, threads, weights);
    for (int64_t row = 0; row < count; ++row)
      for (int64_t first = 0; first < k; first += kInputBlock) {
        const auto block =
            rows.subspan(static_cast<size_t>(row * k + first),
                         static_cast<size_t>(std::min(kInputBlock, k - first)));
        float most = 0;
        for (float x : block)
          most = std::max(most, std::abs(x));
        // Errors are even in a step.
        const double step = most / kInputSteps;
        for (size_t i = 0; i < block.size(); ++i)
          rounding[static_cast<size_t>(first) + i] += step * step / 12;
      }
  }
};

/// A matrix, or an expert's, and where its losses go.
struct Sampled {
  const std::string *name;
  std::vector<double> *losses;
  MatrixSample sample;
  /// How much its outputs count.
  std::vector<double> outputs = {};
  /// What all of its outputs cost, as if they were errors.
  double whole = 0;
  /// Whether it is the embedding, whose errors by format are needed again.
  bool isLookedUp = false;
  std::vector<std::vector<float>> errors = {};
};

/// One run of measureSensitivities().
class SensitivityRun {
public:
  SensitivityRun(const QuantizeInput &input, const CalibrationText &text,
                 std::span<const WeightFormat> formats,
                 const CalibrationOptions &options)
      : input(input), ids(windowsOf(text)), formats(formats), options(options),
        steps(input), place(choosePlace()),
        pool(usableThreads(static_cast<int>(options.threads))),
        stream(input.module, input.weights, ids, text.window, pool, place) {
    // The squares of gradients by outputs are enough.
    for (CalibrationStep &step : steps.steps)
      for (StepInput &read : step.inputs)
        for (StepFactor &factor : read.factors)
          for (StepMatrix &matrix : factor.matrices)
            matrix.hasOutputFactor = false;
    if (steps.withoutGradient)
      result.withoutGradient =
          steps.withoutGradient->getName().getStringRef().str() +
          " has no backward pass";
    else
      gradients.emplace(input.module, input.weights, steps.chain(), stream,
                        options.threads, place);
  }

  Sensitivities run();

private:
  Place choosePlace() const;
  void advance() {
    // Each sublayer but the head runs forward first.
    const size_t forward = gradients ? steps.chain().size() - 1 : 0;
    if (options.progress)
      options.progress(++done, forward + steps.steps.size());
  }
  /// Brings the gradient to the steps.
  void prepare();
  /// Whether the gradient reached the steps behind, and this one.
  bool isFinite(const Sublayer &sublayer, bool sumsAre = true);
  /// Returns nothing if a gradient is not finite.
  std::optional<StepGradients> runBackward(const CalibrationStep &step,
                                           size_t number,
                                           OutputSquares &squares);
  /// Keeps what an error of the rows before a step costs.
  void keepRowCost(size_t number);
  void runStep(size_t number);
  void measure(const StepInput &read, const std::vector<InputFacts> &facts,
               const OutputSquares *squares);
  /// Adds the losses of matrices of one input, times `scale`; without
  /// gradients as parts of the outputs.
  void measureSamples(std::vector<Sampled> &samples, const InputFacts &facts,
                      double damping, double scale, bool hasGradients);
  /// What the outputs of a matrix without gradients cost, as those of others
  /// do: 1 if no matrix has gradients.
  double outputCost(const std::string &matrix) const;
  void measureLookups();

  const QuantizeInput &input;
  const std::vector<int32_t> ids;
  const std::span<const WeightFormat> formats;
  const CalibrationOptions &options;
  CalibrationSteps steps;
  const Place place;
  ThreadPool pool;
  TextRun stream;
  std::optional<TextGradients> gradients;
  /// By the name of a matrix with gradients, what all of its outputs cost.
  std::map<std::string, double> outputCosts;
  /// Half the mean squares of the gradient by each column of the residual
  /// stream, before the first sublayer that has a gradient, and what all of the
  /// rows there cost.
  std::vector<double> columnCosts;
  double rowCost = 0;
  std::optional<Sampled> lookup;
  Sensitivities result;
  uint64_t done = 0;
};
} // namespace

Place SensitivityRun::choosePlace() const {
  const uint64_t rows =
      ids.size() * sizeof(float) *
      static_cast<uint64_t>(modelFact(input.module, "hidden_size"));
  uint64_t moments = 0;
  for (const CalibrationStep &step : steps.steps)
    moments = std::max(moments, step.bytes());
  return moments + rows * (steps.chain().size() + 2) > options.memory
             ? Place::TemporaryFile
             : Place::Memory;
}

Sensitivities SensitivityRun::run() {
  prepare();
  const size_t count = steps.steps.size();
  for (size_t i = 0; i < count; ++i) {
    runStep(gradients ? count - 1 - i : i);
    advance();
  }
  measureLookups();
  if (!result.notFinite.empty() && outputCosts.empty())
    result.withoutGradient = "the gradient of " +
                             std::exchange(result.notFinite, "") +
                             " is not finite";
  return std::move(result);
}

void SensitivityRun::prepare() {
  if (!gradients)
    return stream.embed(steps.embedding);
  const size_t count = steps.steps.size(), all = count + steps.rest.size();
  gradients->runForward(steps.embedding, all - 1, [&](size_t) { advance(); });
  for (size_t number = all; number > count; --number) {
    gradients->runBackward(number - 1, [](size_t, const ProductGradient &) {});
    if (!isFinite(steps.rest[number - 1 - count]))
      return;
    keepRowCost(number - 1);
  }
}

bool SensitivityRun::isFinite(const Sublayer &sublayer, bool sumsAre) {
  if (result.notFinite.empty() && (!sumsAre || !gradients->isFinite()))
    result.notFinite = sublayer.name;
  return result.notFinite.empty();
}

void SensitivityRun::keepRowCost(size_t number) {
  const auto tokens = static_cast<double>(ids.size());
  columnCosts.assign(static_cast<size_t>(stream.rowWidth()), 0);
  const size_t width = columnCosts.size();
  const std::span<const float> slopes = gradients->gradient(),
                               rows = gradients->rows(number);
  for (size_t i = 0; i < slopes.size(); ++i)
    columnCosts[i % width] += double{slopes[i]} * slopes[i] / (2 * tokens);
  rowCost = 0;
  for (size_t i = 0; i < rows.size(); ++i)
    rowCost += columnCosts[i % width] * rows[i] * rows[i] / tokens;
}

std::optional<StepGradients>
SensitivityRun::runBackward(const CalibrationStep &step, size_t number,
                            OutputSquares &squares) {
  if (!result.notFinite.empty())
    return std::nullopt;
  std::optional<StepGradients> slopes(std::in_place, step, ids.size(),
                                      options.threads, place);
  gradients->runBackward(number,
                         [&](size_t first, const ProductGradient &gradient) {
                           slopes->add(first, gradient);
                           squares.add(gradient, options.threads);
                         });
  if (!isFinite(step.sublayer, slopes->finish()))
    return std::nullopt;
  keepRowCost(number);
  return slopes;
}

void SensitivityRun::runStep(size_t number) {
  const CalibrationStep &step = steps.steps[number];
  OutputSquares squares;
  const std::optional<StepGradients> slopes =
      gradients ? runBackward(step, number, squares) : std::nullopt;
  if (gradients)
    std::ranges::copy(gradients->rows(number), stream.rows().begin());
  std::vector<std::vector<InputFacts>> facts(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); ++i)
    for (int64_t expert = 0; expert < step.inputs[i].experts; ++expert)
      facts[i].emplace_back(step.inputs[i].k, place);
  stream.run(step.sublayer, [&](const ReadRows &read) {
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i].number == read.input) {
        std::vector<float> weights;
        if (slopes)
          weights = slopes->weights(read);
        facts[i][read.expert].add(read.rows, options.threads,
                                  slopes ? weights.data() : nullptr);
      }
  });
  for (size_t i = 0; i < step.inputs.size(); ++i)
    measure(step.inputs[i], facts[i], slopes ? &squares : nullptr);
}

/// The outputs of an expert, or of all.
static WeightSourcePtr partOf(WeightSourcePtr source, const StepInput &read,
                              size_t expert) {
  if (read.experts == 1)
    return source;
  const int64_t outputs = source->shape().outputs() / read.experts;
  return makeOutputs(
      std::move(source),
      outputsFrom(static_cast<int64_t>(expert) * outputs, outputs));
}

void SensitivityRun::measure(const StepInput &read,
                             const std::vector<InputFacts> &facts,
                             const OutputSquares *squares) {
  std::vector<size_t> experts(facts.size());
  std::iota(experts.begin(), experts.end(), size_t{0});
  std::ranges::sort(experts, {}, [&](size_t expert) {
    return std::pair(-facts[expert].moments.tokens(), expert);
  });
  const auto choices = [&] {
    return std::transform_reduce(
        experts.begin(), experts.end(), 0.0, std::plus<>(),
        [&](size_t expert) { return double(facts[expert].moments.tokens()); });
  };
  const double all = choices();
  experts.resize(std::min(experts.size(), kSampledExperts));
  // The losses of experts are a sum over their tokens, parts of outputs a mean.
  const double scale =
      squares ? all / choices() : 1 / static_cast<double>(experts.size());
  for (const StepFactor &shared : read.factors)
    for (size_t expert : experts) {
      std::vector<Sampled> samples;
      for (const StepMatrix &matrix : shared.matrices) {
        Sampled &made = samples.emplace_back(
            &matrix.name, &result.losses[matrix.name],
            MatrixSample(partOf(input.source(matrix.name), read, expert)));
        made.losses->resize(formats.size());
        made.errors.resize(formats.size());
        made.isLookedUp = matrix.name == steps.embedding.getWeight();
        made.outputs =
            squares
                ? squares->halfMeans(matrix.name, expert, made.sample.outputs(),
                                     facts[expert].moments.tokens())
                : std::vector<double>(
                      static_cast<size_t>(made.sample.outputs()), 1.0);
      }
      measureSamples(samples, facts[expert], shared.damping, scale,
                     squares != nullptr);
    }
}

double SensitivityRun::outputCost(const std::string &matrix) const {
  if (outputCosts.empty())
    return 1;
  // Of the same part of other layers, or else of all matrices.
  std::pair<double, size_t> same, all;
  for (const auto &[name, cost] : outputCosts) {
    all = {all.first + cost, all.second + 1};
    if (partOfLayer(name) == partOfLayer(matrix))
      same = {same.first + cost, same.second + 1};
  }
  const auto &[sum, count] = same.second > 0 ? same : all;
  return sum / static_cast<double>(count);
}

void SensitivityRun::measureSamples(std::vector<Sampled> &samples,
                                    const InputFacts &facts, double damping,
                                    double scale, bool hasGradients) {
  std::map<int64_t, std::vector<size_t>> byBlock;
  for (size_t i = 0; i < formats.size(); ++i)
    byBlock[weightBlock(formats[i])].push_back(i);
  const auto tokens = static_cast<double>(ids.size());
  const auto factorOf = [&](const Sampled &matrix) {
    if (hasGradients)
      return scale / tokens;
    return matrix.whole > 0 ? scale * outputCost(*matrix.name) / matrix.whole
                            : 0;
  };
  for (const auto &[block, own] : byBlock) {
    const InputFactor factor(facts.moments, damping, block, options.threads,
                             place);
    const auto costOf = [&](const Sampled &matrix,
                            std::span<const float> errors) {
      return matrix.sample.cost(errors, matrix.outputs, facts.moments, factor,
                                damping);
    };
    if (block == byBlock.begin()->first)
      parallelFor(samples.size(), options.threads, [&](size_t i, unsigned) {
        samples[i].whole = costOf(samples[i], samples[i].sample.weights());
      });
    parallelFor(samples.size() * own.size(), options.threads,
                [&](size_t task, unsigned) {
                  Sampled &matrix = samples[task / own.size()];
                  const size_t format = own[task % own.size()];
                  std::vector<float> errors =
                      matrix.sample.errors(formats[format], &factor);
                  (*matrix.losses)[format] +=
                      factorOf(matrix) * costOf(matrix, errors);
                  if (matrix.isLookedUp)
                    matrix.errors[format] = std::move(errors);
                });
  }
  for (Sampled &matrix : samples) {
    if (hasGradients)
      outputCosts[*matrix.name] += factorOf(matrix) * matrix.whole;
    if (!outputCosts.empty())
      result.activations +=
          factorOf(matrix) * matrix.sample.cost(matrix.sample.weights(),
                                                matrix.outputs, facts.rounding);
    if (matrix.isLookedUp)
      lookup.emplace(std::move(matrix));
  }
}

void SensitivityRun::measureLookups() {
  const std::string name = steps.embedding.getWeight().str();
  if (!input.formats.contains(name))
    return;
  if (!lookup) {
    lookup.emplace(&name, &result.losses[name],
                   MatrixSample(input.source(name)));
    lookup->losses->resize(formats.size());
    lookup->errors.resize(formats.size());
    for (size_t i = 0; i < formats.size(); ++i)
      lookup->errors[i] = lookup->sample.errors(formats[i], nullptr);
  }
  const MatrixSample &sample = lookup->sample;
  std::vector<double> outputs(static_cast<size_t>(sample.outputs())),
      columns(static_cast<size_t>(stream.rowWidth()), 1.0);
  const auto tokens = static_cast<double>(ids.size());
  for (int32_t id : ids)
    outputs[static_cast<size_t>(id)] += 1 / tokens;
  const bool hasGradients = gradients && result.notFinite.empty();
  if (hasGradients)
    columns = columnCosts;
  double scale = 1;
  if (!hasGradients) {
    const double all = sample.cost(sample.weights(), outputs, columns);
    scale = all > 0 ? (outputCosts.empty() ? 1 : rowCost) / all : 0;
  }
  for (size_t i = 0; i < formats.size(); ++i)
    (*lookup->losses)[i] +=
        scale * sample.cost(lookup->errors[i], outputs, columns);
}

Sensitivities qwen::measureSensitivities(const QuantizeInput &input,
                                         const CalibrationText &text,
                                         std::span<const WeightFormat> formats,
                                         const CalibrationOptions &options) {
  return SensitivityRun(input, text, formats, options).run();
}
