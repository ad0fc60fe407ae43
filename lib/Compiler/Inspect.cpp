//===- Inspect.cpp - What a checkpoint would become -----------------------===//

#include "qwen/Compiler/Inspect.h"

#include "Compile.h"
#include "Summary.h"

#include "qwen/Dialect/QwenDialect.h"

#include <algorithm>
#include <map>

using namespace qwen;

/// The weights of the checkpoint, without what the compiler computes.
static std::vector<const WeightSources::Entry *>
entriesOf(const ImportedModel &model) {
  std::vector<const WeightSources::Entry *> entries;
  for (WeightOp weight : mlir::ModuleOp(model.module.get()).getOps<WeightOp>())
    if (const auto *entry =
            model.checkpoint->weights().find(weight.getSymName()))
      entries.push_back(entry);
  return entries;
}

static std::vector<StoredForm>
formsOf(const std::vector<const WeightSources::Entry *> &entries) {
  std::map<std::string, StoredForm, std::less<>> forms;
  for (const WeightSources::Entry *entry : entries) {
    const std::string name(entry->source->form());
    StoredForm &form = forms.try_emplace(name, name).first->second;
    form.tensors += 1;
    form.bytes += entry->source->bytesToRead();
  }
  std::vector<StoredForm> result;
  result.reserve(forms.size());
  for (auto &[name, form] : forms)
    result.push_back(std::move(form));
  return result;
}

int64_t qwen::parametersOf(const ImportedModel &model) {
  int64_t parameters = 0;
  for (const WeightSources::Entry *entry : entriesOf(model))
    parameters += entry->source->shape().values();
  return parameters;
}

FormatSize qwen::imageSize(mlir::ModuleOp module, std::string_view name,
                           const ModelConfig &model) {
  FormatSize size = {name, 0, 0};
  const std::optional<ExpertsShape> &experts = model.experts;
  for (PackedOp packed : module.getOps<PackedOp>()) {
    const auto bytes = static_cast<uint64_t>(packed.getByteSize());
    size.bytes = std::max(size.bytes, static_cast<uint64_t>(packed.getEnd()));
    const auto first =
        llvm::cast<mlir::FlatSymbolRefAttr>(packed.getSegments()[0]).getValue();
    if (packed.getExperts())
      size.tokenBytes += static_cast<uint64_t>(packed.getMatrixBytes()) *
                         static_cast<uint64_t>(experts->active);
    else if (model.tied || first != "model.embed_tokens.weight")
      size.tokenBytes += bytes;
  }
  return size;
}

CheckpointFacts qwen::inspectCheckpoint(const std::filesystem::path &checkpoint,
                                        const CompileOptions &options,
                                        const CompileHooks &hooks) try {
  const std::lock_guard lock(compileMutex());
  Compile compile(checkpoint, options,
                  {.warn = hooks.warn, .checkTemplate = hooks.checkTemplate});
  compile.importTokenizer();
  compile.runSteps(StepId::Formats);
  const ImportedModel &imported = compile.state().model;
  const ModelConfig &model = compile.checkpoint().config();
  CheckpointFacts facts = {};
  facts.formats.reserve(std::size(kWeightPlans) + std::size(kWeightFormats));
  facts.name = checkpointName(checkpoint);
  facts.model = model;
  facts.generation = compile.checkpoint().generation();
  facts.context = compile.positions();
  facts.tokenizer = compile.state().tokenizer;
  facts.parameters = parametersOf(imported);
  facts.forms = formsOf(entriesOf(imported));
  for (WeightPlan plan : kWeightPlans)
    facts.formats.push_back(
        imageSize(*compile.packed(plan), infoOf(plan).name, model));
  for (WeightFormat format : kWeightFormats)
    facts.formats.push_back(
        imageSize(*compile.packed(format), weightFormatName(format), model));
  compile.runSteps(StepId::Rotation);
  const std::vector<TargetCode> codes = compile.run(Stage::Calls);
  const FormatSize own = imageSize(*codes.front().module, "", model);
  ArtifactSummary written;
  written.weightBytes = own.bytes;
  facts.compiled = summarize(imported, codes, written);
  facts.compiled.plan = planText(compile.state().plan, model);
  llvm::append_range(facts.compiled.notes, compile.state().notes);
  facts.tokenBytes = own.tokenBytes;
  return facts;
} catch (...) {
  throwError();
}
