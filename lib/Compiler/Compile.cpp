//===- Compile.cpp - From a checkpoint to the modules of all targets ------===//

#include "Compile.h"

#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Support/InputError.h"

#include "mlir/IR/Diagnostics.h"

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

/// A diagnostic of a pass: "'qwen.linear' op has ..." is about that op.
static ErrorText textOf(llvm::StringRef message) {
  if (message.empty())
    return "a pass failed";
  const auto [subject, rest] = message.split("' op ");
  if (rest.empty() || !subject.starts_with("'"))
    return message.str();
  return "'" + part::subject(subject.drop_front().str()) +
         message.substr(subject.size()).str();
}

void qwen::runManager(mlir::ModuleOp module, mlir::PassManager &manager) {
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

//===----------------------------------------------------------------------===//
// The compile
//===----------------------------------------------------------------------===//

Compile::Compile(const std::filesystem::path &path, CompileOptions given,
                 CompileHooks functions)
    : options(std::move(given)), hooks(std::move(functions)),
      targets(resolveTargets(options.target)) {
  loadDialects(context);
  model.model = importModel(path, context, options, options.pruning);
  const int64_t most = model.config().maxPosition;
  contextLength = options.context.value_or(most);
  if (contextLength > most)
    throw Error(part::subject("--context") + " " + part::found(contextLength) +
                " is beyond the " + part::needed(most) +
                " positions that the model was made for "
                "(max_position_embeddings, context_length, or seq_length of a "
                "Qwen 1)");
}

void Compile::runSteps(StepId last) {
  for (; nextStep <= static_cast<size_t>(last); ++nextStep)
    runStep(static_cast<StepId>(nextStep), model, options, hooks);
}

PipelineOptions Compile::pipelineOptions() const {
  return {.formats = model.plan.formats,
          .kv = model.plan.kv,
          .kvLayers = model.plan.kvLayers};
}

std::vector<TargetCode> Compile::run(Stage stage) {
  return run(stage, model.plan.formats);
}

std::vector<TargetCode> Compile::run(Stage stage,
                                     const MatrixFormats &formats) {
  std::vector<TargetCode> codes;
  PipelineOptions pipeline = pipelineOptions();
  pipeline.formats = formats;
  for (const Target &target : targets) {
    mlir::OwningOpRef<mlir::ModuleOp> module = model.module().clone();
    runPasses(*module, target.features, pipeline, stage);
    codes.push_back({target, std::move(module)});
  }
  if (stage == Stage::Calls) {
    for (const std::string &warning : orderTargets(codes))
      warn(warning);
    checkShared(codes);
  }
  return codes;
}

mlir::OwningOpRef<mlir::ModuleOp> Compile::packed(const WeightChoice &choice) {
  mlir::OwningOpRef<mlir::ModuleOp> module = model.module().clone();
  PipelineOptions pipeline = pipelineOptions();
  pipeline.formats =
      formatsByRules(model.module(), choice, options.tensorWeights);
  runPasses(*module, targets.front().features, pipeline, Stage::Packed);
  return module;
}

//===----------------------------------------------------------------------===//
// The tokenizer
//===----------------------------------------------------------------------===//

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

void Compile::importTokenizer() try {
  const Checkpoint &checkpoint = *model.model.checkpoint;
  auto from = checkpoint.readTokenizer();
  if (!from && !options.chatTemplate.empty())
    throw Error(part::subject("--chat-template") +
                " needs a tokenizer, which " +
                part::file(checkpoint.path().string()) + " lacks");
  if (!from)
    return;
  TokenizerImport tokenizer = buildTokenizer(std::move(*from));
  for (const std::string &warning : tokenizer.warnings)
    warn(warning);
  if (!options.chatTemplate.empty())
    replaceTemplate(options.chatTemplate, tokenizer);
  checkTemplate(tokenizer);
  if (tokenizer.vocabSize > checkpoint.config().vocabSize)
    throw Error("the tokenizer has " + part::found(tokenizer.vocabSize) +
                " tokens when the embedding has " +
                part::needed(checkpoint.config().vocabSize) + " rows");
  model.tokenizer = std::move(tokenizer);
} catch (...) {
  throwInputError();
}
