//===- Compiler.cpp - From a checkpoint to a compiled model ---------------===//

#include "qwen/Compiler/Compiler.h"

#include "Compile.h"
#include "Summary.h"

#include "qwen/CodeGen/Artifact/Code.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Named.h"

#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

static constexpr std::string_view kEmittedStageNames[] = {
    "graph", "quantized", "packed", "calls", "llvm", "asm"};

std::string_view qwen::emittedStageName(EmittedStage stage) {
  return kEmittedStageNames[static_cast<size_t>(stage)];
}

std::optional<EmittedStage> qwen::parseEmittedStage(std::string_view name) {
  return findNamed(kEmittedStages, name, emittedStageName);
}

/// The last stage of the passes.
static Stage stageOfPasses(EmittedStage stage) {
  return symbolizeStage(emittedStageName(stage)).value_or(Stage::Calls);
}

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

std::mutex &qwen::compileMutex() {
  static std::mutex mutex;
  return mutex;
}

void qwen::throwError() {
  try {
    throw;
  } catch (const Error &) {
    throw;
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::filesystem::filesystem_error &error) {
    throw Error(part::file(error.path1().string()) + ": " +
                part::found(error.code().message()));
  } catch (const std::exception &error) {
    throw Error(error.what());
  }
}

CompileSummary qwen::compileModel(const std::filesystem::path &checkpoint,
                                  WritableFile &output,
                                  const CompileOptions &options,
                                  const CompileHooks &hooks) try {
  std::unique_lock lock(compileMutex());
  Compile compile(checkpoint, options, hooks);
  compile.importTokenizer();
  // Hooks of the caller compile programs.
  lock.unlock();
  compile.runSteps();
  lock.lock();
  const ModelState &state = compile.state();
  const ArtifactInput input = {checkpointName(checkpoint), compile.positions(),
                               &compile.checkpoint(), &state.tokenizer,
                               state.record};
  const std::vector<TargetCode> codes = compile.run(Stage::Calls);
  const ArtifactSummary written = writeArtifact(
      output, codes, input,
      hooks.progress ? hooks.progress : [](uint64_t, uint64_t) {},
      [&](const std::string &file) {
        if (hooks.check)
          hooks.check(file, codes, input);
      });
  CompileSummary summary = summarize(state.model, codes, written);
  summary.quantization = state.record;
  summary.plan = planText(state.plan, state.config());
  llvm::append_range(summary.notes, state.notes);
  return summary;
} catch (...) {
  throwError();
}

std::string qwen::emit(const std::filesystem::path &checkpoint,
                       EmittedStage stage, const CompileOptions &options,
                       const CompileHooks &hooks) try {
  const std::lock_guard lock(compileMutex());
  Compile compile(checkpoint, options, {.warn = hooks.warn});
  compile.runSteps(StepId::Rotation);
  const std::vector<TargetCode> codes = compile.run(stageOfPasses(stage));
  if (stage == EmittedStage::LLVM || stage == EmittedStage::Assembly) {
    llvm::LLVMContext context;
    Code code(codes);
    const std::unique_ptr<llvm::Module> whole = code.generate(0, context);
    for (size_t i = 1; i < code.parts(); ++i)
      linkModule(*whole, code.generate(i, context));
    return stage == EmittedStage::LLVM ? printIR(*whole)
                                       : emitAssembly(*whole, code.target());
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const auto &[target, module] : codes) {
    if (codes.size() > 1)
      out << (&module == &codes.front().module ? "" : "// -----\n") << "// "
          << target.name << '\n';
    module.get()->print(out);
  }
  return text;
} catch (...) {
  throwError();
}

ProgramCode qwen::compileProgram(mlir::ModuleOp module,
                                 const ProgramOptions &options) try {
  const std::lock_guard lock(compileMutex());
  std::vector<Target> targets = resolveTargets(options.target);
  if (targets.size() != 1)
    throw Error("programs are compiled for one target at a time, not for " +
                std::to_string(targets.size()));
  runPasses(module, targets.front().features,
            {.weights = options.weights, .kv = options.kv}, Stage::Calls);
  return emitPrograms({std::move(targets.front()), module.clone()});
} catch (...) {
  throwError();
}
