//===- CompileSteps.cpp - The steps of a compile --------------------------===//

#include "Importance.h"
#include "ModelState.h"

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Quantizers/FindGrid.h"
#include "qwen/Support/InputError.h"
#include "qwen/Transforms/Passes.h"

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// What functions of the caller see
//===----------------------------------------------------------------------===//

/// Replaces what gives the values of `weight`: f32, or integers of `format`.
static void replaceSource(WeightOp weight, WeightSources &sources,
                          std::optional<WeightFormat> format,
                          WeightSourcePtr source) {
  mlir::MLIRContext *context = weight.getContext();
  const auto type = llvm::cast<mlir::RankedTensorType>(weight.getType());
  weight.setTypeAttr(mlir::TypeAttr::get(mlir::RankedTensorType::get(
      type.getShape(), mlir::Float32Type::get(context))));
  weight.setSourceAttr(SourceAttr::get(
      context, weight.getSymNameAttr(),
      format ? FormatAttr::get(context, *format) : FormatAttr()));
  sources.set(weight.getSymName().str(), {std::move(source), {}});
}

/// The weight `name` of `module`.
static WeightOp weightOf(mlir::ModuleOp module, const std::string &name) {
  return module.lookupSymbol<WeightOp>(name);
}

WeightSourcePtr QuantizeInput::source(const std::string &name) const {
  return weightOf(module, name).open(weights);
}

void QuantizeInput::replaceValues(const std::string &name,
                                  WeightSourcePtr values) const {
  replaceSource(weightOf(module, name), weights, {}, std::move(values));
}

void QuantizeInput::replace(const std::string &name,
                            WeightSourcePtr integers) const {
  replaceSource(weightOf(module, name), weights, formats.find(name)->second,
                std::move(integers));
}

QuantizeInput qwen::quantizeInput(ModelState &state) {
  QuantizeInput input = {
      state.module(), state.model.checkpoint->weights(), {}, {}, state.rotated,
      state.tokenizer};
  for (WeightOp matrix : plannedMatrices(state.module())) {
    const std::optional<Quantizer> quantizer = state.plan.quantizerOf(matrix);
    const WeightFormat format = state.plan.formatOf(matrix);
    if (!quantizer || matrix.getSource().getIntegers() == format)
      continue;
    input.formats.emplace(matrix.getSymName(), format);
    input.quantizers.emplace(matrix.getSymName(), *quantizer);
  }
  return input;
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

/// Whether ops keep fixed state of sequences.
static bool hasFixedState(mlir::ModuleOp module) {
  return module
      .walk([](ForwardOp op) {
        const std::optional<CacheUse> use = op.getCacheUse();
        return use && use->kind == CacheKind::Fixed
                   ? mlir::WalkResult::interrupt()
                   : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

/// Sets the limits of a call. A program whose tokens are no text keeps its own.
/// Throws Error if a call would have more rows than tokens.
static void setLimits(mlir::ModuleOp module, const CompileOptions &options) {
  const int64_t tokens = options.maxTokens.value_or(kDefaultMaxTokens);
  const int64_t rows =
      options.maxRows.value_or(std::min(kDefaultMaxRows, tokens));
  if (rows > tokens)
    throw Error(part::subject("--max-rows") + " " + part::found(rows) +
                " is more than the " + part::needed(tokens) +
                " tokens of a call, which --max-tokens sets");
  mlir::Builder builder(module.getContext());
  const int64_t stepBack =
      options.stepBack.value_or(hasFixedState(module) ? kDraftStepBack : 0);
  for (mlir::func::FuncOp program : programsOf(module)) {
    if (!tokensOfCall(program)) {
      setLimit(program, kAllName, tokens);
      setLimit(program, kWantedName, rows);
    }
    if (stepBack)
      program->setAttr(kStepBackAttr, builder.getI64IntegerAttr(stepBack));
  }
}

ImportedModel qwen::importModel(const std::filesystem::path &path,
                                mlir::MLIRContext &context,
                                const CompileOptions &options,
                                const Pruning &pruning,
                                const std::vector<int32_t> &draftTokens) {
  ImportedModel model =
      importCheckpoint(path, context, kModelPrograms,
                       {options.ignoredTensors, options.adapters, pruning,
                        options.ropeScaling, options.draftHead, draftTokens});
  setLimits(*model.module, options);
  return model;
}

static void removeLayers(ModelState &state, const CompileOptions &options,
                         const CompileHooks &hooks) {
  if (!hooks.chooseLayers)
    return;
  const Pruning pruning = hooks.chooseLayers(quantizeInput(state));
  state.model = importModel(state.model.checkpoint->path(),
                            *state.module().getContext(), options, pruning);
}

static void chooseDraftTokens(ModelState &state, const CompileOptions &options,
                              const CompileHooks &hooks) {
  if (!hooks.chooseDraftTokens)
    return;
  const std::vector<int32_t> tokens =
      hooks.chooseDraftTokens(quantizeInput(state));
  state.model =
      importModel(state.model.checkpoint->path(), *state.module().getContext(),
                  options, state.config().pruning, tokens);
}

//===----------------------------------------------------------------------===//
// Formats
//===----------------------------------------------------------------------===//

/// Whether a matrix of the checkpoint has integers, or had some before an
/// adapter changed it.
static bool hasIntegers(mlir::ModuleOp module) {
  return llvm::any_of(module.getOps<WeightOp>(), [](WeightOp weight) {
    return weight.getSource().getIntegers().has_value() ||
           isQuantized(weight.getKeptFormat());
  });
}

namespace {
/// A matrix of floats, and the integers that they were made of.
struct FoundGrid {
  WeightOp matrix;
  WeightSourcePtr source;
  std::unique_ptr<Owned> integers;
};
} // namespace

/// The integers of `matrix`, if it has floats on a grid.
static FoundGrid findGridOf(WeightOp matrix, const ModelState &state) {
  const WeightSourcePtr source = matrix.open(state.model.checkpoint->weights());
  return {matrix, source, findGrid(*source)};
}

/// Lets matrices of floats keep the integers that they were made of.
static void keepGrids(std::vector<FoundGrid> grids, ModelState &state) {
  std::map<std::string_view, int64_t> found;
  for (FoundGrid &grid : grids) {
    const WeightFormat format = grid.integers->keptFormat();
    ++found[weightFormatName(format)];
    replaceSource(grid.matrix, state.model.checkpoint->weights(), format,
                  std::move(grid.integers));
  }
  for (const auto &[format, count] : found)
    state.notes.push_back(std::to_string(count) +
                          " matrices of floats lie on grids of " +
                          std::string(format) +
                          ": their integers are kept, and the model is not "
                          "rotated (--no-grids: as other floats)");
}

/// Looks for grids, unless nothing but matrices of few values has any.
static void findGrids(ModelState &state) {
  std::vector<FoundGrid> grids;
  bool hasOthers = hasIntegers(state.module());
  for (WeightOp matrix : plannedMatrices(state.module())) {
    if (matrix.getSource().getIntegers())
      continue;
    FoundGrid grid = findGridOf(matrix, state);
    if (!grid.integers)
      continue;
    hasOthers = hasOthers || !hasFewValues(*grid.source);
    grids.push_back(std::move(grid));
  }
  if (hasOthers)
    keepGrids(std::move(grids), state);
}

/// The format of keys and values beside weights of a choice: as exact as they
/// are (docs/decisions/0035-integer-kv.md).
static KvFormat defaultKv(const WeightChoice &choice) {
  if (choice == WeightChoice(WeightFormat::F32))
    return KvFormat::F32;
  return choice == WeightChoice(WeightFormat::BF16) ? KvFormat::F16
                                                    : KvFormat::Q8;
}

/// Formats by the options.
static void planByRules(ModelState &state, const CompileOptions &options) {
  // Rotated matrices keep no integers.
  const bool namesFormat =
      options.weights &&
      !std::holds_alternative<KeepIntegers>(*options.weights);
  if (options.grids && !namesFormat && options.tensorWeights.empty() &&
      options.rotate != Rotate::On)
    findGrids(state);
  const bool keeps = hasIntegers(state.module());
  const WeightChoice choice = options.weights.value_or(
      keeps ? WeightChoice(KeepFormats()) : WeightChoice(kDefaultPlan));
  if (options.rotate == Rotate::On && keeps &&
      choice == WeightChoice(KeepFormats()))
    throw Error(part::subject("--rotate") +
                " on needs --weights FORMAT: matrices that are rotated keep no "
                "integers");
  FormatPlan &plan = state.plan;
  plan.formats = formatsByRules(state.module(), choice, options.tensorWeights);
  plan.kv = defaultKv(choice);
  const auto *named = std::get_if<WeightPlan>(&choice);
  const std::optional<PlanRules> rules =
      named ? std::optional<PlanRules>(std::in_place, *named, state.module())
            : std::nullopt;
  for (WeightOp matrix : plannedMatrices(state.module())) {
    const WeightFormat format = plan.formatOf(matrix);
    if (!isQuantized(format) || (options.rotate != Rotate::On &&
                                 matrix.getSource().getIntegers() == format))
      continue;
    // The plan's quantizer is for its format.
    const bool isPlanned = rules && rules->of(matrix).format == format;
    plan.quantizers.emplace(
        matrix.getSymName(),
        options.quantizer.value_or(isPlanned ? rules->of(matrix).quantizer
                                             : Quantizer::Rounding));
  }
}

/// Formats by the file of the options. The matrices that keep integers must
/// have them, or lie on a grid of them.
static void planByFile(ModelState &state, const CompileOptions &options) {
  FormatPlan &plan = state.plan;
  plan = readPlan(options.plan, state.config(), state.module());
  std::vector<FoundGrid> grids;
  for (WeightOp matrix : plannedMatrices(state.module())) {
    const std::string name = matrix.getSymName().str();
    const WeightFormat format = plan.formatOf(matrix);
    if (!isQuantized(format) || plan.quantizerOf(matrix))
      continue;
    const ErrorText what = part::file(options.plan.string()) +
                           " keeps the integers of " + part::subject(name);
    if (options.rotate == Rotate::On)
      throw Error(what + ", which a model with --rotate on cannot");
    const std::optional<WeightFormat> own = matrix.getSource().getIntegers();
    if (own == format)
      continue;
    FoundGrid grid = own ? FoundGrid{} : findGridOf(matrix, state);
    if (!grid.integers || grid.integers->keptFormat() != format)
      throw InputError(what + " in " +
                       part::found(std::string(weightFormatName(format))) +
                       ", but the checkpoint has none in this format");
    grids.push_back(std::move(grid));
  }
  keepGrids(std::move(grids), state);
}

/// Whether `--rotate auto` rotates a model with this matrix.
static bool gainsByRotation(WeightOp matrix, const FormatPlan &plan) {
  const std::optional<Quantizer> quantizer = plan.quantizerOf(matrix);
  const int64_t k =
      llvm::cast<mlir::ShapedType>(matrix.getType()).getDimSize(1);
  return quantizer && panelBytes(plan.formatOf(matrix), k) * 8 >=
                          kPanelOutputs * k * infoOf(*quantizer).rotatedBits;
}

static void chooseFormats(ModelState &state, const CompileOptions &options,
                          const CompileHooks &) {
  if (options.plan.empty())
    planByRules(state, options);
  else
    planByFile(state, options);
  if (options.kv) {
    state.plan.kv = *options.kv;
    state.plan.kvLayers.clear();
  }
  if (!options.imatrix.empty() && options.rotate == Rotate::On)
    throw Error(part::subject("--rotate") +
                " on excludes --imatrix, which is of inputs that are not "
                "rotated");
  // The stream is turned for all matrices or for none.
  state.rotated =
      options.rotate == Rotate::Auto && options.imatrix.empty()
          ? llvm::all_of(plannedMatrices(state.module()),
                         [&](WeightOp matrix) {
                           return gainsByRotation(matrix, state.plan);
                         })
          : options.rotate == Rotate::On;
  state.record.rotated = state.rotated;
}

//===----------------------------------------------------------------------===//
// Channels, rotation
//===----------------------------------------------------------------------===//

static void scaleChannels(ModelState &state, const CompileOptions &,
                          const CompileHooks &hooks) {
  if (!hooks.scaleChannels)
    return;
  const Quantization by = hooks.scaleChannels(quantizeInput(state));
  state.record.awq = true;
  state.record.tokens = by.tokens;
  state.record.text = by.text;
}

static void rotate(ModelState &state, const CompileOptions &,
                   const CompileHooks &) {
  if (!state.rotated)
    return;
  mlir::PassManager manager(state.module().getContext());
  manager.addPass(createRotate());
  runManager(state.module(), manager);
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// The matrices of `input` whose quantizers need moments.
static QuantizeInput partByText(const QuantizeInput &input) {
  QuantizeInput part = input;
  std::erase_if(part.quantizers,
                [](const auto &entry) { return !needsText(entry.second); });
  std::erase_if(part.formats, [&](const auto &entry) {
    return !part.quantizers.contains(entry.first);
  });
  return part;
}

/// Lets the caller choose integers by its text.
static void quantizeByText(const QuantizeInput &input, ModelState &state,
                           const CompileOptions &options,
                           const CompileHooks &hooks) {
  const bool isPlanned = !options.plan.empty();
  const QuantizeInput matrices = partByText(input);
  if (matrices.formats.empty() && !isPlanned && options.quantizer &&
      needsText(*options.quantizer))
    throw Error("the quantizer " +
                part::subject(std::string(infoOf(*options.quantizer).name)) +
                " has nothing to choose: all matrices are floats or keep their "
                "integers");
  // The text may be for channels or layers.
  if (matrices.formats.empty() && isPlanned && hooks.quantize &&
      !hooks.scaleChannels && !hooks.chooseLayers)
    throw Error(part::file(options.plan.string()) +
                " has no matrix whose integers a calibration text chooses");
  if (matrices.formats.empty())
    return;
  const Quantizer first = matrices.quantizers.begin()->second;
  if (!hooks.quantize)
    throw Error("the quantizer " +
                part::subject(std::string(infoOf(first).name)) +
                " needs a calibration text");
  const Quantization chosen = hooks.quantize(matrices);
  state.record.tokens = chosen.tokens;
  state.record.text = chosen.text;
  state.record.distilled = chosen.distilled;
}

/// The names of the quantizers, in the order of their table.
static std::string namesOf(const MatrixQuantizers &quantizers) {
  std::string names;
  for (Quantizer quantizer : kQuantizers)
    if (llvm::any_of(quantizers, [&](const auto &entry) {
          return entry.second == quantizer;
        }))
      names +=
          (names.empty() ? "" : ", ") + std::string(infoOf(quantizer).name);
  return names;
}

static void chooseIntegers(ModelState &state, const CompileOptions &options,
                           const CompileHooks &hooks) {
  const QuantizeInput input = quantizeInput(state);
  quantizeByText(input, state, options, hooks);
  const mlir::SymbolTable symbols(state.module());
  std::optional<Importance> importance;
  if (!options.imatrix.empty())
    importance.emplace(options.imatrix, state.config());
  for (const auto &[name, format] : input.formats) {
    const Quantizer quantizer = input.quantizers.find(name)->second;
    if (quantizer == Quantizer::Rounding ||
        symbols.lookup<WeightOp>(name).getSource().getIntegers() == format)
      continue;
    // No product reads an embedding that is not the head.
    const Quantizer own = needsText(quantizer) ? Quantizer::Search : quantizer;
    const WeightSourcePtr source = input.source(name);
    QuantizerFactors factors;
    if (importance)
      factors.columns = importance->of(name, source->shape());
    input.replace(name, qwen::quantize(own, source, format, factors));
  }
  if (importance) {
    importance->requireRows();
    if (const std::string line = importance->missing(); !line.empty())
      state.notes.push_back(line);
  }
  if (!input.formats.empty())
    state.record.quantizer = namesOf(input.quantizers);
}

//===----------------------------------------------------------------------===//
// The order of the steps
//===----------------------------------------------------------------------===//

using Step = void (*)(ModelState &, const CompileOptions &,
                      const CompileHooks &);

/// By StepId.
static constexpr Step kSteps[kStepCount] = {removeLayers,  chooseDraftTokens,
                                            chooseFormats, scaleChannels,
                                            rotate,        chooseIntegers};

void qwen::runStep(StepId step, ModelState &state,
                   const CompileOptions &options, const CompileHooks &hooks) {
  kSteps[static_cast<size_t>(step)](state, options, hooks);
}
