//===- Calibration.cpp - Integers that a text chooses ---------------------===//

#include "calibration/Calibration.h"

#include "calibration/SavedCalibration.h"
#include "calibration/StepGradients.h"
#include "calibration/Steps.h"
#include "calibration/TextGradients.h"

#include "calibration/TextRun.h"
#include "engine/CpuCount.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Version.h"
#include "qwen/Weights/Sources.h"
#include "text/Tokenizer.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The text
//===----------------------------------------------------------------------===//

namespace {
/// A window and its place in its text: 0 is the beginning, 1 the end.
struct Window {
  double place;
  size_t text;
  std::span<const int32_t> ids;
};
} // namespace

CalibrationText
qwen::readCalibrationText(const TokenizerImport &tokenizer,
                          std::span<const std::string_view> texts,
                          int64_t positions, const std::string &name) {
  const Tokenizer encoder = Tokenizer::fromBlob(tokenizer.blob);
  CalibrationText result = {{}, std::min(kCalibrationWindow, positions), {}};
  const auto size = static_cast<size_t>(result.window);
  std::vector<std::vector<int32_t>> encoded;
  std::vector<Window> windows;
  llvm::SHA256 hash;
  int64_t found = 0;
  for (std::string_view text : texts) {
    hash.update(llvm::StringRef(text.data(), text.size()));
    const std::span<const int32_t> ids =
        encoded.emplace_back(encoder.encode(text));
    found += std::ssize(ids);
    const size_t count = ids.size() / size;
    for (size_t i = 0; i < count; ++i)
      windows.push_back({(double(i) + 0.5) / double(count), encoded.size(),
                         ids.subspan(i * size, size)});
  }
  std::ranges::sort(windows, {}, [](const Window &window) {
    return std::pair(window.place, window.text);
  });
  for (const Window &window : windows)
    for (std::vector<int32_t> *list : {&result.ids, &result.rest})
      if (std::ssize(*list) + result.window <= kCalibrationTokens) {
        llvm::append_range(*list, window.ids);
        break;
      }
  if (std::ssize(result.ids) < kLeastCalibrationTokens)
    throw Error(part::file(name) + " has " + part::found(found) +
                " tokens when a calibration needs at least " +
                part::needed(kLeastCalibrationTokens) + ", better " +
                std::to_string(kCalibrationTokens));
  result.hash = llvm::toHex(hash.final(), /*LowerCase=*/true);
  return result;
}

//===----------------------------------------------------------------------===//
// What the integers depend on
//===----------------------------------------------------------------------===//

/// A hash of the graph, the values of all weights, the tokens, and what is
/// chosen by whom.
static uint64_t hashOf(const QuantizeInput &input, const CalibrationText &text,
                       const CalibrationOptions &options) {
  std::string facts = projectVersion();
  llvm::raw_string_ostream out(facts);
  out << *input.module << text.window;
  for (const auto &[name, format] : input.formats)
    out << name << weightFormatName(format)
        << infoOf(input.quantizers.find(name)->second).name;
  mlir::ModuleOp module = input.module;
  const llvm::SmallVector<WeightOp> weights(module.getOps<WeightOp>());
  std::vector<uint64_t> hashes(weights.size());
  parallelFor(weights.size(), options.threads, [&](size_t i, unsigned) {
    // What a source computes when it is read does not stay.
    WeightOp weight = weights[i];
    const WeightSourcePtr source = weight.open(input.weights);
    const WeightShape &shape = source->shape();
    constexpr int64_t kValues = int64_t{1} << 18;
    const int64_t most = std::max<int64_t>(1, kValues / shape.k());
    std::vector<float> values(static_cast<size_t>(most * shape.k()));
    for (int64_t first = 0; first < shape.outputs(); first += most) {
      const int64_t count = std::min(most, shape.outputs() - first);
      source->read(first, count, values.data());
      hashes[i] = XXH3_64bits_withSeed(
          values.data(), static_cast<size_t>(count * shape.k()) * sizeof(float),
          hashes[i]);
    }
  });
  const auto bytes = [](const auto &list) {
    return llvm::StringRef(reinterpret_cast<const char *>(list.data()),
                           list.size() * sizeof(*list.data()));
  };
  out << bytes(hashes) << bytes(text.ids);
  return XXH3_64bits(facts.data(), facts.size());
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static std::string mebibytes(uint64_t bytes) {
  return std::to_string(llvm::divideCeil(bytes, uint64_t{1} << 20)) + " MiB";
}

/// Throws Error if the disk of `folder` lacks room for `what`.
static void requireDisk(const std::filesystem::path &folder, uint64_t bytes,
                        const std::string &what) {
  const uint64_t free = std::filesystem::space(folder).available;
  if (free < bytes)
    throw Error(part::file(folder.string()) + " has " +
                part::found(mebibytes(free)) + " free when " + what +
                " of a calibration need " + part::needed(mebibytes(bytes)));
}

/// Bytes of the integers of all matrices.
static uint64_t integerBytes(const QuantizeInput &input) {
  uint64_t sum = 0;
  for (const auto &[name, format] : input.formats) {
    const WeightShape shape = input.source(name)->shape();
    sum +=
        static_cast<uint64_t>(packedBytes(format, shape.outputs(), shape.k()));
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// The calibration
//===----------------------------------------------------------------------===//

namespace {
/// One run of calibrate().
class Calibration {
public:
  Calibration(const QuantizeInput &input, const CalibrationText &text,
              const CalibrationOptions &options)
      : input(input), tokens(text.ids.size()), options(options), steps(input),
        place(choosePlace()),
        pool(usableThreads(static_cast<int>(options.threads))),
        stream(input.module, input.weights, text.ids, text.window, pool,
               place) {
    if (!options.folder.empty())
      saved.emplace(options.folder, hashOf(input, text, options));
    for (const CalibrationStep &step : steps.steps)
      total += step.work(tokens);
    if (!steps.withoutGradient)
      gradients.emplace(input.module, input.weights, steps.chain(), stream,
                        options.threads, placeOfRows());
  }

  void run() {
    const size_t finished = resume();
    for (size_t i = finished; i < steps.steps.size(); ++i) {
      runStep(i);
      // Nothing reads the rows after the last step.
      if (saved)
        saved->saveRows(i + 1, savedRows());
    }
    if (rareExperts != 0)
      note("calibration: " + std::to_string(rareExperts) +
           " experts were chosen by fewer than " +
           std::to_string(kLeastExpertTokens) +
           " tokens and are quantized by search; a longer text may choose "
           "them");
  }

private:
  void note(const std::string &line) const {
    if (options.note)
      options.note(line);
  }
  void advance(uint64_t work) {
    done += work;
    if (options.progress)
      options.progress(done, total);
  }

  /// Bytes of the residual stream.
  uint64_t rowBytes() const {
    return tokens * sizeof(float) *
           static_cast<uint64_t>(modelFact(input.module, "hidden_size"));
  }
  /// Bytes of the rows that gradients need.
  uint64_t keptBytes() const {
    return steps.withoutGradient
               ? 0
               : TextGradients::bytesFor(steps.chain().size(), rowBytes());
  }
  uint64_t momentBytes() const;
  /// Says what gradients weigh.
  std::string gradientNote() const;
  /// Says how much memory the run takes, and decides where it lies.
  Place choosePlace() const;
  Place placeOfRows() const {
    return keptBytes() + rowBytes() + momentBytes() > options.memory
               ? Place::TemporaryFile
               : Place::Memory;
  }
  /// The number in the model of the step that comes `i`th: with gradients, the
  /// last is the first.
  size_t numberOf(size_t i) const {
    return gradients ? steps.steps.size() - 1 - i : i;
  }
  /// What the next step starts from.
  std::span<float> savedRows() {
    return gradients ? gradients->gradient() : stream.rows();
  }
  /// Takes over what a killed run has finished, and makes the rows from which
  /// the others start. Returns the number of finished steps.
  size_t resume();
  size_t runForward(size_t finished);
  /// Whether all matrices of a step were saved; they replace the sources.
  bool loadStep(const CalibrationStep &step) const;
  /// Runs the backward pass of a step. Returns nothing if a gradient is not
  /// finite.
  std::optional<StepGradients> runBackward(size_t number);
  void runStep(size_t i);
  void quantizeMatrices(const StepInput &read,
                        std::span<const InputMoments> moments,
                        const StepGradients *slopes);
  void replace(const StepMatrix &matrix, WeightSourcePtr integers);

  const QuantizeInput &input;
  const size_t tokens;
  const CalibrationOptions &options;
  const CalibrationSteps steps;
  const Place place;
  std::optional<SavedCalibration> saved;
  ThreadPool pool;
  TextRun stream;
  /// Null of a model with an op that has no backward pass.
  std::optional<TextGradients> gradients;
  uint64_t done = 0, total = 0;
  size_t rareExperts = 0;
};
} // namespace

uint64_t Calibration::momentBytes() const {
  uint64_t moments = 0;
  for (const CalibrationStep &step : steps.steps)
    moments = std::max(moments, step.bytes());
  return moments;
}

std::string Calibration::gradientNote() const {
  if (mlir::Operation *op = steps.withoutGradient)
    return "calibration: no gradients, because " +
           op->getName().getStringRef().str() +
           " has no backward pass: all tokens and outputs count the same";
  size_t all = 0, weighed = 0;
  for (const CalibrationStep &step : steps.steps)
    for (const StepInput &read : step.inputs)
      for (const StepFactor &factor : read.factors) {
        all += factor.matrices.size();
        weighed += static_cast<size_t>(
            llvm::count_if(factor.matrices, [](const StepMatrix &matrix) {
              return matrix.hasOutputFactor;
            }));
      }
  return "calibration: gradients weigh the tokens of all matrices, and the "
         "outputs of " +
         std::to_string(weighed) + " of " + std::to_string(all);
}

Place Calibration::choosePlace() const {
  const uint64_t rows = rowBytes(), moments = momentBytes(), kept = keptBytes();
  const bool inFile = rows + moments > options.memory;
  const bool keepsInFile = placeOfRows() == Place::TemporaryFile;
  if (keepsInFile)
    requireDisk(std::filesystem::temp_directory_path(),
                kept + (inFile ? rows + moments : 0), "moments and rows");
  if (!options.folder.empty())
    requireDisk(std::filesystem::absolute(options.folder).parent_path(),
                2 * rows + integerBytes(input), "the saved sublayers");
  note("calibration: " + std::to_string(tokens) + " tokens; up to " +
       mebibytes(rows + moments + kept) + ", " + mebibytes(moments) +
       " of them moments and factors" +
       (keepsInFile ? (inFile ? ", in a temporary file in "
                              : ", the rows of all layers in a temporary "
                                "file in ") +
                          std::filesystem::temp_directory_path().string()
                    : ""));
  note(gradientNote());
  return inFile ? Place::TemporaryFile : Place::Memory;
}

bool Calibration::loadStep(const CalibrationStep &step) const {
  for (const StepInput &read : step.inputs)
    for (const StepFactor &factor : read.factors)
      for (const StepMatrix &matrix : factor.matrices) {
        WeightSourcePtr integers = saved->loadWeight(
            matrix.number, *input.source(matrix.name), matrix.format, place);
        if (!integers)
          return false;
        input.replace(matrix.name, std::move(integers));
      }
  return true;
}

size_t Calibration::resume() {
  const size_t finished = saved ? saved->loadRows(savedRows()) : 0;
  if (finished > 0)
    note("calibration: " + std::to_string(finished) + " of " +
         std::to_string(steps.steps.size()) +
         " steps were finished before, in " + options.folder.string());
  // Reads the floats of weights whose integers are loaded next.
  size_t end = 0;
  if (gradients)
    end = runForward(finished);
  else if (finished == 0)
    stream.embed(steps.embedding);
  for (size_t i = 0; i < finished; ++i) {
    const size_t number = numberOf(i);
    const CalibrationStep &step = steps.steps[number];
    if (!loadStep(step))
      throw Error(part::file(options.folder.string()) +
                  " is damaged: the integers of " +
                  part::subject(step.sublayer.name) +
                  " are missing; remove the folder to start again");
    advance(step.work(tokens) -
            (number < end ? tokens * step.forwardWork() : 0));
  }
  return finished;
}

/// Keeps the rows that the steps behind the first `finished` ones read, and
/// brings the gradient to the first step of all. Returns the first sublayer
/// that did not run.
size_t Calibration::runForward(size_t finished) {
  const size_t count = steps.steps.size(), all = count + steps.rest.size();
  const size_t end =
      finished == 0 || options.lastRows ? all - 1 : count - finished;
  gradients->runForward(steps.embedding, end, [&](size_t number) {
    if (number < count)
      advance(tokens * steps.steps[number].forwardWork());
  });
  if (options.lastRows)
    options.lastRows(gradients->rows(all - 1));
  if (finished > 0)
    return end;
  if (end < count)
    advance(tokens * steps.steps[end].forwardWork());
  for (size_t number = all; number > count; --number)
    gradients->runBackward(number - 1, [](size_t, const ProductGradient &) {});
  return end;
}

static bool isRare(const StepInput &read, const InputMoments &own) {
  return read.experts != 1 && own.tokens() < kLeastExpertTokens;
}

std::optional<StepGradients> Calibration::runBackward(size_t number) {
  const CalibrationStep &step = steps.steps[number];
  std::optional<StepGradients> slopes;
  // A sublayer behind may have left such a gradient.
  const bool goesOn = number + 1 == steps.steps.size() + steps.rest.size() ||
                      gradients->isFinite();
  if (goesOn) {
    slopes.emplace(step, tokens, options.threads, place);
    gradients->runBackward(number,
                           [&](size_t first, const ProductGradient &gradient) {
                             slopes->add(first, gradient);
                           });
    if (!slopes->finish() || !gradients->isFinite())
      slopes.reset();
  }
  if (!slopes)
    note("calibration: the gradient of " + step.sublayer.name +
         " is not finite, so that all of its tokens and outputs count the "
         "same");
  advance(tokens * step.backwardWork());
  return slopes;
}

void Calibration::runStep(size_t ordinal) {
  const size_t order = numberOf(ordinal);
  const CalibrationStep &step = steps.steps[order];
  const std::optional<StepGradients> slopes =
      gradients ? runBackward(order) : std::nullopt;
  if (gradients)
    std::ranges::copy(gradients->rows(order), stream.rows().begin());
  std::vector<std::vector<InputMoments>> moments(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); ++i)
    for (int64_t expert = 0; expert < step.inputs[i].experts; ++expert)
      moments[i].emplace_back(step.inputs[i].k, place);
  stream.run(step.sublayer, [&](const ReadRows &read) {
    const auto count = std::ssize(read.tokens);
    if (read.input == 0)
      advance(static_cast<uint64_t>(count) * step.tokenWork);
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i].number == read.input) {
        std::vector<float> weights;
        if (slopes)
          weights = slopes->weights(read);
        moments[i][read.expert].add(read.rows.data(), count, step.inputs[i].k,
                                    options.threads,
                                    slopes ? weights.data() : nullptr);
        advance(static_cast<uint64_t>(count) * step.inputs[i].momentWork());
      }
  });
  for (size_t i = 0; i < step.inputs.size(); ++i)
    quantizeMatrices(step.inputs[i], moments[i], slopes ? &*slopes : nullptr);
  // An expert's last product reads the last input.
  if (!moments.empty())
    rareExperts += llvm::count_if(moments.back(), [&](const InputMoments &own) {
      return isRare(step.inputs.back(), own);
    });
}

void Calibration::replace(const StepMatrix &matrix, WeightSourcePtr integers) {
  if (saved)
    saved->saveWeight(matrix.number, *integers, matrix.format);
  input.replace(matrix.name, std::move(integers));
}

void Calibration::quantizeMatrices(const StepInput &read,
                                   std::span<const InputMoments> moments,
                                   const StepGradients *slopes) {
  for (const auto &[block, damping, matrices] : read.factors) {
    std::vector<std::vector<WeightSourcePtr>> parts(matrices.size());
    for (const auto &[expert, own] : llvm::enumerate(moments)) {
      std::optional<InputFactor> factor;
      if (!isRare(read, own))
        factor.emplace(own, damping, block, options.threads, place);
      advance(read.factorWork());
      for (const auto &[matrix, made] : llvm::zip_equal(matrices, parts)) {
        WeightSourcePtr source = input.source(matrix.name);
        const int64_t outputs = matrix.outputs / read.experts;
        if (read.experts != 1)
          source = makeOutputs(
              source,
              outputsFrom(static_cast<int64_t>(expert) * outputs, outputs));
        const Quantizer chosen = input.quantizers.find(matrix.name)->second;
        const InputMoments *outer =
            slopes && factor ? slopes->outputs(matrix.name, expert) : nullptr;
        std::optional<InputFactor> outputFactor;
        // In one block, so that outputs stay in order.
        if (outer)
          outputFactor.emplace(*outer, kOutputDamping, outer->k(),
                               options.threads, place);
        made.push_back(quantize(factor ? chosen : Quantizer::Search, source,
                                matrix.format,
                                {.inputs = factor ? &*factor : nullptr,
                                 .outputs = outer ? &*outputFactor : nullptr},
                                {options.threads, place}));
        advance((read.matrixWork(matrix) + read.outputWork(matrix)) /
                static_cast<uint64_t>(read.experts));
      }
    }
    for (const auto &[matrix, made] : llvm::zip_equal(matrices, parts))
      replace(matrix, read.experts == 1 ? made.front() : makeStacked(made));
  }
}

void qwen::calibrate(const QuantizeInput &input, const CalibrationText &text,
                     const CalibrationOptions &options) {
  Calibration(input, text, options).run();
}
