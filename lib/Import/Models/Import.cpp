//===- Import.cpp - From a checkpoint to the graph ------------------------===//

#include "qwen/Import/Models/Import.h"

#include "ModuleBuilder.h"
#include "UnusedTensors.h"

#include "qwen/Support/InputError.h"

using namespace mlir;
using namespace qwen;

static void build(llvm::ArrayRef<ModelProgram> programs,
                  ModuleBuilder &module) try {
  for (const ModelProgram &program : programs)
    if (module.checkpoint().configOf(program.scope))
      program.build(module, program);
} catch (...) {
  throwInputError();
}

ImportedModel qwen::importCheckpoint(const std::filesystem::path &path,
                                     MLIRContext &context,
                                     llvm::ArrayRef<ModelProgram> programs,
                                     const ImportOptions &options) {
  context.loadDialect<QwenDialect, func::FuncDialect>();
  std::vector<StoredTensors> files;
  std::vector<ScopedModel> scopes;
  for (const ModelProgram &program : programs)
    if (options.draftHead || program.name != kDraftHeadName)
      scopes.emplace_back(program.scope, program.config, program.divide);
  std::unique_ptr<Checkpoint> checkpoint = openCheckpoint(
      path,
      [&](ModelConfig &model, WeightSources &weights) {
        for (const AdapterOption &adapter : options.adapters)
          files.push_back(mergeAdapter(adapter, model, weights));
      },
      scopes);
  std::set<std::string> removed;
  if (!options.pruning.layers.empty())
    removed = checkpoint->removeLayers(options.pruning);
  if (options.scaling)
    checkpoint->scaleRope(*options.scaling);
  if (!options.draftTokens.empty())
    checkpoint->trimHead(options.draftTokens);
  checkpoint->orderColumns();
  ModuleBuilder module(*checkpoint, context);
  build(programs, module);
  UnusedTensors unused(*checkpoint, options.ignoredTensors);
  for (const auto &[name, tensor] : checkpoint->tensors().tensors())
    if (!module.uses(name) && !removed.contains(name))
      unused.add(name, tensor);
  return {module.finish(), std::move(files), std::move(checkpoint),
          unused.finish()};
}
