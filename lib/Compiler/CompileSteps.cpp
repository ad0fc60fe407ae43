//===- CompileSteps.cpp - The steps of a compile --------------------------===//

#include "CompileSteps.h"

#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Quantizers/FindGrid.h"
#include "qwen/Support/InputError.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

#include <algorithm>

using namespace qwen;

/// A diagnostic of a pass: "'qwen.linear' op has ..." is about that op, and
/// "--tensor-weights ..." about an option.
static ErrorText textOf(llvm::StringRef message) {
  if (message.empty())
    return "a pass failed";
  const bool isOption = message.starts_with("--");
  const llvm::StringRef quoted = isOption ? "" : "'";
  const auto [subject, rest] = message.split(isOption ? " " : "' op ");
  if (rest.empty() || !subject.starts_with(quoted))
    return message.str();
  return quoted.str() + part::subject(subject.substr(quoted.size()).str()) +
         message.substr(subject.size()).str();
}

/// Runs the passes. Throws their first error as Error.
static void runManager(mlir::ModuleOp module, mlir::PassManager &manager) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(
      module.getContext(), [&](mlir::Diagnostic &diagnostic) {
        if (message.empty() &&
            diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          message = diagnostic.str();
      });
  if (mlir::failed(manager.run(module)))
    throw Error(textOf(message));
}

void qwen::runPasses(mlir::ModuleOp module, CpuFeatureSet features,
                     PipelineOptions options, Stage last) {
  module->setAttr(kTargetFeaturesAttr,
                  FeaturesAttr::get(module.getContext(), features));
  options.last = std::min(last, Stage::Packed);
  mlir::PassManager manager(module.getContext());
  buildPipeline(manager, options);
  if (last == Stage::Calls) {
    manager.addPass(createLower());
    manager.addPass(createVerifyStage({Stage::Calls}));
  }
  runManager(module, manager);
}

void qwen::loadDialects(mlir::MLIRContext &context) {
  mlir::DialectRegistry registry;
  registry.insert<QwenDialect>();
  registerCodeGenDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

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

Compile::Compile(const std::filesystem::path &path, CompileOptions given,
                 CompileHooks added)
    : options(std::move(given)), hooks(std::move(added)),
      targets(resolveTargets(options.target)) {
  loadDialects(context);
  model = importCheckpoint(path, context, kModelPrograms,
                           {options.ignoredTensors, options.adapters,
                            options.pruning, options.ropeScaling});
  // Rotated matrices keep no integers.
  if (options.grids && !options.weights && options.tensorWeights.empty() &&
      options.rotate != Rotate::On)
    keepGrids();

  weights =
      options.weights.value_or(hasIntegers() ? WeightChoice(KeepFormats())
                                             : WeightChoice(kDefaultWeights));
  const int64_t most = checkpoint().config().maxPosition;
  contextLength = options.context.value_or(most);
  if (contextLength > most)
    throw Error(part::subject("--context") + " " + part::found(contextLength) +
                " is beyond the " + part::needed(most) +
                " positions that the model was made for "
                "(max_position_embeddings, context_length, or seq_length of a "
                "Qwen 1)");
  setLimits();
  quantization.rotated = isRotated();
}

/// Lets matrices of floats keep the integers that they were made of, unless
/// nothing but matrices of few values has any.
void Compile::keepGrids() {
  std::vector<std::pair<WeightOp, std::unique_ptr<Owned>>> grids;
  bool hasOthers = hasIntegers();
  WeightSources &sources = model.checkpoint->weights();
  for (WeightOp weight : model.module->getOps<WeightOp>()) {
    const auto type = llvm::cast<mlir::RankedTensorType>(weight.getType());
    if (type.getRank() != 2 || weight.getExact() ||
        weight.getSource().getIntegers())
      continue;
    const WeightSourcePtr source = weight.getSource().open(type, sources);
    std::unique_ptr<Owned> grid = findGrid(*source);
    if (!grid)
      continue;
    hasOthers = hasOthers || !hasFewValues(*source);
    grids.emplace_back(weight, std::move(grid));
  }
  if (!hasOthers)
    return;
  std::map<std::string_view, int64_t> found;
  for (auto &[weight, grid] : grids) {
    const WeightFormat format = grid->keptFormat();
    ++found[weightFormatName(format)];
    replaceSource(weight, sources, format, std::move(grid));
  }
  for (const auto &[format, count] : found)
    gridNotes.push_back(std::to_string(count) +
                        " matrices of floats lie on grids of " +
                        std::string(format) +
                        ": their integers are kept, and the model is not "
                        "rotated (--no-grids: as other floats)");
}

/// Whether `--rotate auto` rotates a model with this matrix.
static bool gainsByRotation(WeightOp matrix, const QuantizerInfo &quantizer) {
  const WeightFormat format = matrix.getFormat()->getValue();
  const int64_t k =
      llvm::cast<mlir::ShapedType>(matrix.getType()).getDimSize(1);
  return isQuantized(format) && matrix.getSource().getIntegers() != format &&
         panelBytes(format, k) * 8 >= kPanelOutputs * k * quantizer.rotatedBits;
}

bool Compile::isRotated() {
  if (options.rotate != Rotate::Auto)
    return options.rotate == Rotate::On;
  // The stream is turned for all matrices or for none.
  mlir::OwningOpRef<mlir::ModuleOp> module = quantizedModule();
  return llvm::all_of(module->getOps<WeightOp>(), [&](WeightOp weight) {
    return llvm::cast<mlir::ShapedType>(weight.getType()).getRank() != 2 ||
           weight.getExact() ||
           gainsByRotation(weight, infoOf(options.quantizer));
  });
}

/// The model with the formats of its weights.
mlir::OwningOpRef<mlir::ModuleOp> Compile::quantizedModule() {
  mlir::OwningOpRef<mlir::ModuleOp> module = model.module->clone();
  runPasses(*module, targets.front().features, pipelineOptions(weights),
            Stage::Quantized);
  return module;
}

/// Whether a matrix of the checkpoint has integers, or had some before an
/// adapter changed it.
bool Compile::hasIntegers() {
  return llvm::any_of(model.module->getOps<WeightOp>(), [](WeightOp weight) {
    return weight.getSource().getIntegers().has_value() ||
           isQuantized(weight.getKeptFormat());
  });
}

void Compile::rotate() {
  if (!quantization.rotated)
    return;
  if (weights == WeightChoice(KeepFormats()) && hasIntegers())
    throw Error(part::subject("--rotate") +
                " on needs --weights FORMAT: matrices that are rotated keep no "
                "integers");
  mlir::PassManager manager(&context);
  manager.addPass(createRotate());
  runManager(*model.module, manager);
}

/// Sets the limits of a call. Throws Error if a call would have more rows than
/// tokens.
void Compile::setLimits() {
  const int64_t tokens = options.maxTokens.value_or(kDefaultMaxTokens);
  const int64_t rows =
      options.maxRows.value_or(std::min(kDefaultMaxRows, tokens));
  if (rows > tokens)
    throw Error(part::subject("--max-rows") + " " + part::found(rows) +
                " is more than the " + part::needed(tokens) +
                " tokens of a call, which --max-tokens sets");
  mlir::Builder builder(&context);
  for (mlir::func::FuncOp program : programsOf(*model.module)) {
    program->setAttr(kMaxTokensAttr, builder.getI64IntegerAttr(tokens));
    program->setAttr(kMaxRowsAttr, builder.getI64IntegerAttr(rows));
    if (options.stepBack)
      program->setAttr(kStepBackAttr,
                       builder.getI64IntegerAttr(options.stepBack));
  }
}

PipelineOptions Compile::pipelineOptions(const WeightChoice &choice) const {
  PipelineOptions result{.kv = kvFormat()};
  if (const auto *format = std::get_if<WeightFormat>(&choice))
    result.weights = *format;
  else
    result.tensorWeights.push_back("=" + kKeepFormat.str());
  llvm::append_range(result.tensorWeights, options.tensorWeights);
  return result;
}

std::vector<TargetCode> Compile::run(Stage stage) {
  std::vector<TargetCode> codes;
  for (Target &target : targets) {
    mlir::OwningOpRef<mlir::ModuleOp> module = model.module->clone();
    runPasses(*module, target.features, pipelineOptions(weights), stage);
    codes.push_back({std::move(target), std::move(module)});
  }
  if (stage == Stage::Calls) {
    for (const std::string &warning : orderTargets(codes))
      warn(warning);
    checkShared(codes);
  }
  return codes;
}

mlir::OwningOpRef<mlir::ModuleOp> Compile::packed(const WeightChoice &choice) {
  mlir::OwningOpRef<mlir::ModuleOp> module = model.module->clone();
  runPasses(*module, targets.front().features, pipelineOptions(choice),
            Stage::Packed);
  return module;
}

QuantizeInput
Compile::quantizeInput(const std::optional<TokenizerImport> &tokenizer) {
  mlir::OwningOpRef<mlir::ModuleOp> module = quantizedModule();
  QuantizeInput input = {
      *model.module,     model.checkpoint->weights(), {},
      options.quantizer, quantization.rotated,        tokenizer};
  for (WeightOp weight : module->getOps<WeightOp>()) {
    const WeightFormat format = weight.getFormat()->getValue();
    if (isQuantized(format) && weight.getSource().getIntegers() != format)
      input.formats.emplace(weight.getSymName(), format);
  }
  return input;
}

void Compile::scaleChannels(const std::optional<TokenizerImport> &tokenizer) {
  if (!hooks.scaleChannels)
    return;
  const Quantization by = hooks.scaleChannels(quantizeInput(tokenizer));
  quantization.awq = true;
  quantization.tokens = by.tokens;
  quantization.text = by.text;
}

Quantization
Compile::quantize(const std::optional<TokenizerImport> &tokenizer) {
  const QuantizerInfo &info = infoOf(options.quantizer);
  if (info.needsMoments && !hooks.quantize)
    throw Error("the quantizer " + part::subject(std::string(info.name)) +
                " needs a calibration text");
  Quantization &result = quantization;
  if (options.quantizer == Quantizer::Rounding)
    return result;
  const QuantizeInput input = quantizeInput(tokenizer);
  if (input.formats.empty() && info.needsMoments)
    throw Error("the quantizer " + part::subject(std::string(info.name)) +
                " has nothing to choose: all matrices are floats or keep their "
                "integers");
  if (input.formats.empty())
    return result;
  if (info.needsMoments) {
    const Quantization chosen = hooks.quantize(input);
    result.tokens = chosen.tokens;
    result.text = chosen.text;
  }
  // No product reads an embedding that is not the head.
  const Quantizer others =
      info.needsMoments ? Quantizer::Search : options.quantizer;
  const mlir::SymbolTable symbols(*model.module);
  for (const auto &[name, format] : input.formats)
    if (symbols.lookup<WeightOp>(name).getSource().getIntegers() != format)
      input.replace(name, qwen::quantize(others, input.source(name), format));
  result.quantizer = info.name;
  return result;
}

/// The weight `name` of `module`.
static WeightOp weightOf(mlir::ModuleOp module, const std::string &name) {
  return mlir::SymbolTable(module).lookup<WeightOp>(name);
}

WeightSourcePtr QuantizeInput::source(const std::string &name) const {
  WeightOp weight = weightOf(module, name);
  return weight.getSource().open(
      llvm::cast<mlir::RankedTensorType>(weight.getType()), weights);
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

/// Replaces the chat template by the text of `file`.
static void replaceTemplate(const std::filesystem::path &file,
                            TokenizerImport &tokenizer) {
  const std::optional<std::string> text = readSmallFile(file);
  if (!text || text->empty())
    throw Error(part::file(file.string()) +
                (text ? " is empty" : " does not exist") + ": " +
                part::needed("a chat template") + " is needed");
  tokenizer.chatTemplate = *text;
  tokenizer.chatTemplateFile = file;
}

void Compile::checkTemplate(const TokenizerImport &tokenizer) const {
  if (!hooks.checkTemplate || tokenizer.chatTemplate.empty())
    return;
  try {
    hooks.checkTemplate(tokenizer.chatTemplate);
  } catch (const Error &error) {
    const std::string file = tokenizer.chatTemplateFile.string();
    if (!options.chatTemplate.empty())
      throw Error(part::file(file) + ": " + error.what());
    warn(file + ": " + error.what() +
         "; qwen-run chat will refuse the model, generate will not");
  }
}

std::optional<TokenizerImport> Compile::importTokenizer() const try {
  auto from = checkpoint().readTokenizer();
  if (!from && !options.chatTemplate.empty())
    throw Error(part::subject("--chat-template") +
                " needs a tokenizer, which " +
                part::file(checkpoint().path().string()) + " lacks");
  if (!from)
    return std::nullopt;
  TokenizerImport tokenizer = buildTokenizer(std::move(*from));
  for (const std::string &warning : tokenizer.warnings)
    warn(warning);
  if (!options.chatTemplate.empty())
    replaceTemplate(options.chatTemplate, tokenizer);
  checkTemplate(tokenizer);
  if (tokenizer.vocabSize > checkpoint().config().vocabSize)
    throw Error("the tokenizer has " + part::found(tokenizer.vocabSize) +
                " tokens when the embedding has " +
                part::needed(checkpoint().config().vocabSize) + " rows");
  return tokenizer;
} catch (...) {
  throwInputError();
}
