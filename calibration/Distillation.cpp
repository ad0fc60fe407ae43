//===- Distillation.cpp - Scales that learn from the model in f32 ---------===//

#include "calibration/Distillation.h"

#include "engine/CpuCount.h"
#include "qwen/Gradients/Gradients.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Version.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qwen;

/// The greatest change of a step, in parts of a scale.
static constexpr float kRate = 1e-3f;
/// After so many steps the loss is measured and the state is saved.
static constexpr int64_t kMeasuredSteps = 8;
/// How many times as long a token takes in a step as in a run forward: products
/// run forward, two thirds of them again, and back to their inputs and weights.
static constexpr int64_t kStepCost = 4;

//===----------------------------------------------------------------------===//
// The teacher
//===----------------------------------------------------------------------===//

Distillation::Distillation(const QuantizeInput &input,
                           const CalibrationText &text, int64_t steps,
                           const CalibrationOptions &options)
    : input(input), text(text), options(options), steps(steps),
      windows(holdOut(text, std::max<int64_t>(0, steps - text.windows()))),
      chain(divide(programsOf(input.module).front())),
      pool(usableThreads(static_cast<int>(options.threads))) {
  for (const Sublayer &sublayer : chain.sublayers)
    if (mlir::Operation *op = findOpWithoutGradient(sublayer))
      throw Error(part::subject("--distill") + " needs a backward pass of " +
                  part::needed(op->getName().getStringRef().str()) +
                  ", which there is not: compile the model without it");
  if (text.windows() < kLeastDistillWindows)
    throw Error("the calibration text has " + part::found(text.windows()) +
                " windows of " + std::to_string(text.window) + " tokens when " +
                part::subject("--distill") + " needs at least " +
                part::needed(kLeastDistillWindows) + ", of which " +
                std::to_string(kLeastDistillWindows / kHeldOutWindows) +
                " are held out; a longer text has more");
}

Distillation::~Distillation() = default;

void Distillation::keepTeacher(std::span<const float> rows) {
  std::vector<float> all(rows.begin(), rows.end());
  if (windows.ids.size() > text.ids.size())
    llvm::append_range(
        all, Teacher::rowsOf(input.module, input.weights, chain,
                             std::span(windows.ids).subspan(text.ids.size()),
                             text.window, pool));
  teacher.emplace(input.module, input.weights, chain.sublayers.back(),
                  text.window, std::move(all), pool);
}

//===----------------------------------------------------------------------===//
// The state
//===----------------------------------------------------------------------===//

void Distillation::collectMatrices() {
  std::vector<float> units;
  for (const auto &[name, format] : input.formats) {
    const WeightSourcePtr source = input.source(name);
    // No product reads the embedding of a model with another head.
    if (source->kept(format, 0, 1) == 0)
      continue;
    matrixOf[name] = matrices.size();
    Matrix &matrix = matrices.emplace_back(Matrix{
        name, std::make_shared<LearnedMatrix>(source, format, options.threads),
        numbers.size()});
    llvm::append_range(numbers, matrix.source->ownNumbers());
    llvm::append_range(units, matrix.source->units());
    input.replace(name, matrix.source);
  }
  collectNorms();
  for (const Norm &norm : norms)
    for (float value : norm.values())
      units.push_back(std::abs(value));
  best = numbers;
  gradient.resize(numbers.size());
  adam.emplace(std::move(units));
  shown.resize(numbers.size());
  for (Matrix &matrix : matrices)
    matrix.source->follow(std::span(shown).subspan(
        matrix.first, static_cast<size_t>(matrix.source->numbers())));
}

void Distillation::collectNorms() {
  llvm::StringSet<> names;
  for (const Sublayer &sublayer : chain.sublayers)
    for (mlir::Operation *op : opsOf(sublayer)) {
      auto norm = llvm::dyn_cast<RmsNormOp>(op);
      if (!norm || !names.insert(norm.getWeight()).second)
        continue;
      const std::string name = norm.getWeight().str();
      const WeightSourcePtr source = input.source(name);
      const Norm &own = norms.emplace_back(
          Norm{name, std::make_shared<Owned>(*source, Place::Memory),
               numbers.size()});
      source->read(0, source->shape().outputs(), own.source->floats());
      llvm::append_range(numbers, own.values());
      input.replaceValues(name, own.source);
    }
}

uint64_t Distillation::hashOfState() const {
  uint64_t hash = XXH3_64bits(projectVersion(), std::strlen(projectVersion()));
  const auto add = [&](const auto &list) {
    hash = XXH3_64bits_withSeed(list.data(), list.size() * sizeof(*list.data()),
                                hash);
  };
  add(numbers);
  add(windows.ids);
  add(teacher->allRows());
  return XXH3_64bits_withSeed(&steps, sizeof(steps), hash);
}

std::vector<float> Distillation::stateOf() {
  std::vector<float> state;
  for (std::span<const float> part :
       {std::span<const float>(numbers), std::span<const float>(adam->means()),
        std::span<const float>(best)})
    llvm::append_range(state, part);
  for (float value : {firstLoss, bestLoss, static_cast<float>(bestStep)})
    state.push_back(value);
  return state;
}

int64_t Distillation::resume() {
  std::vector<float> state = stateOf();
  const auto finished = static_cast<int64_t>(saved->loadState(state));
  if (finished == 0)
    return 0;
  const float *from = state.data();
  for (std::span<float> part :
       {std::span(numbers), adam->means(), std::span(best)}) {
    std::copy_n(from, part.size(), part.begin());
    from += part.size();
  }
  firstLoss = from[0];
  bestLoss = from[1];
  bestStep = static_cast<int64_t>(from[2]);
  adam->setSteps(finished);
  note(llvm::formatv("distillation: {0} of {1} steps were finished before, in "
                     "{2}",
                     finished, steps, options.folder.string()));
  return finished;
}

void Distillation::show(std::span<const float> given) {
  std::ranges::copy(given, shown.begin());
  for (const Norm &norm : norms)
    std::ranges::copy(given.subspan(norm.first, norm.values().size()),
                      norm.values().begin());
}

//===----------------------------------------------------------------------===//
// The loss
//===----------------------------------------------------------------------===//

float Distillation::measure() {
  std::vector<float> rounded = numbers;
  for (const Matrix &matrix : matrices)
    for (float &number : std::span(rounded).subspan(
             matrix.first, static_cast<size_t>(matrix.source->numbers())))
      number = f16ToF32(f32ToF16(number));
  show(rounded);
  const std::vector<int32_t> ids = windows.idsOf(windows.heldOut);
  student->runForward(ids, /*keepsRows=*/false);
  const double loss =
      teacher->divergence(*student, windows.heldOut, options.threads);
  advance(ids.size());
  return static_cast<float>(loss);
}

void Distillation::keepBest(int64_t step) {
  const float loss = measure();
  if (step == 0)
    firstLoss = loss;
  // Not if it is not finite.
  if (step == 0 || loss < bestLoss) {
    bestLoss = loss;
    bestStep = step;
    best = shown;
  }
}

//===----------------------------------------------------------------------===//
// The steps
//===----------------------------------------------------------------------===//

void Distillation::addGradient(std::span<const float> rows,
                               const ProductGradient &product) {
  const auto found = matrixOf.find(product.weight);
  if (found == matrixOf.end())
    return;
  const Matrix &matrix = matrices[found->second];
  const int64_t k = matrix.source->shape().k(), outputs = product.outputs,
                tokens = std::ssize(rows) / k;
  const ProductSide inputs =
      ProductSide::ofColumns({rows.data(), tokens, k, k}, options.threads);
  // So many outputs at a time: the gradients by their values stay in a cache.
  constexpr int64_t kSlice = 1024;
  std::vector<float> values;
  for (int64_t first = 0; first < outputs; first += kSlice) {
    const int64_t count = std::min(kSlice, outputs - first);
    values.assign(static_cast<size_t>(count * k), 0.0f);
    addProduct(ProductSide::ofColumns(
                   {product.slopes.data() + first, tokens, count, outputs},
                   options.threads),
               inputs, values.data(), k, options.threads);
    // Outputs of experts come one expert after another.
    const int64_t begin = product.expert * outputs + first;
    float *to =
        gradient.data() + matrix.first + begin * matrix.source->outputNumbers();
    parallelFor(static_cast<size_t>(count), options.threads,
                [&](size_t i, unsigned) {
                  const auto output = static_cast<int64_t>(i);
                  matrix.source->addGradient(
                      begin + output, values.data() + output * k,
                      to + output * matrix.source->outputNumbers());
                });
  }
}

void Distillation::addEmbedding(std::span<const int32_t> ids,
                                std::span<const float> slopes) {
  EmbeddingOp op = chain.embedding;
  const auto found = matrixOf.find(op.getWeight());
  if (found == matrixOf.end())
    return;
  const Matrix &matrix = matrices[found->second];
  const int64_t k = matrix.source->shape().k();
  for (size_t i = 0; i < ids.size(); ++i)
    matrix.source->addGradient(ids[i],
                               slopes.data() + static_cast<int64_t>(i) * k,
                               gradient.data() + matrix.first +
                                   ids[i] * matrix.source->outputNumbers());
}

bool Distillation::takeStep(int64_t step) {
  show(numbers);
  std::ranges::fill(gradient, 0.0f);
  // Spread over the text where there are fewer steps than windows.
  const int64_t count = std::ssize(windows.learned);
  const int64_t window = windows.learned[static_cast<size_t>(
      steps < count ? step * count / steps : step % count)];
  const std::span<const int32_t> ids = windows.idsOf(window);
  student->runForward(ids, /*keepsRows=*/true);
  const float part = 1 / static_cast<float>(text.window);
  VectorGradients slopesOfNorms;
  const std::vector<float> slopes = student->runBackward(
      [&](int64_t first, int64_t width, std::span<const float> logits) {
        const auto size = static_cast<size_t>(width);
        const std::span<const float> wanted =
            teacher->logits(window, first, std::ssize(logits) / width);
        const size_t stride = teacher->stride();
        std::vector<float> slope(logits.size());
        parallelFor(logits.size() / size, options.threads,
                    [&](size_t i, unsigned) {
                      gradients::divergence(wanted.subspan(i * stride, size),
                                            logits.subspan(i * size, size),
                                            part, slope.data() + i * size);
                    });
        return slope;
      },
      [&](std::span<const float> rows, const ProductGradient &product) {
        addGradient(rows, product);
      },
      slopesOfNorms);
  for (const Norm &norm : norms)
    std::ranges::copy(slopesOfNorms[norm.name],
                      gradient.begin() + static_cast<ptrdiff_t>(norm.first));
  addEmbedding(ids, slopes);
  advance(static_cast<uint64_t>(kStepCost * text.window));
  if (!llvm::all_of(gradient, [](float value) { return std::isfinite(value); }))
    return false;
  adam->step(gradient, kRate * cosineRate(step, steps), numbers,
             options.threads);
  return true;
}

void Distillation::learn(int64_t first) {
  for (int64_t step = first; step < steps; ++step) {
    if (!takeStep(step)) {
      note(llvm::formatv("distillation: the gradient of step {0} is not "
                         "finite: it ends with the scales of step {1}",
                         step + 1, bestStep));
      return;
    }
    const int64_t finished = step + 1;
    if (finished % kMeasuredSteps != 0 && finished != steps)
      continue;
    keepBest(finished);
    if (saved)
      saved->saveState(static_cast<size_t>(finished), stateOf());
  }
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

void Distillation::note(const std::string &line) const {
  if (options.note)
    options.note(line);
}

uint64_t Distillation::totalWork() const {
  const int64_t measured = (steps + kMeasuredSteps - 1) / kMeasuredSteps + 1;
  return static_cast<uint64_t>(
      text.window *
      (kStepCost * steps + measured * std::ssize(windows.heldOut)));
}

void Distillation::advance(uint64_t tokens) {
  done += tokens;
  if (options.progress)
    options.progress(done, totalWork());
}

DistillResult Distillation::run() {
  using Clock = std::chrono::steady_clock;
  const auto secondsFrom = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  collectMatrices();
  student.emplace(input.module, input.weights, chain, text.window,
                  options.threads);
  if (!options.folder.empty())
    saved.emplace(options.folder, hashOfState());
  const int64_t finished = saved ? resume() : 0;
  if (finished == 0) {
    const Clock::time_point before = Clock::now();
    keepBest(0);
    note(llvm::formatv(
        "distillation: {0} steps of {1} tokens take about {2:f0} seconds; KL "
        "of {3} tokens that are held out is {4:f4}",
        steps, text.window,
        secondsFrom(before) * static_cast<double>(totalWork() - done) /
            static_cast<double>(done),
        std::ssize(windows.heldOut) * text.window, firstLoss));
  }
  learn(finished);
  show(best);
  for (const Matrix &matrix : matrices)
    input.replace(matrix.name, matrix.source->withNumbers(Place::Memory));
  return {{bestStep, bestStep * text.window},
          llvm::formatv("distillation: step {0} of {1}, KL of held-out tokens "
                        "{2:f4} in place of {3:f4}, {4:f0} seconds",
                        bestStep, steps, bestLoss, firstLoss,
                        secondsFrom(start))};
}
