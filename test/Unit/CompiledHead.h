//===- CompiledHead.h - Hybrids with their draft heads ----------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_COMPILEDHEAD_H
#define QWEN_TEST_UNIT_COMPILEDHEAD_H

#include "HeadAnswers.h"
#include "calibration/LoadedPrograms.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace qwen::test {

struct HeadCase {
  const char *model;
  WeightFormat weights;
  bool rotated;
};

/// A hybrid that is compiled with its head, which has the logits of `tokens`,
/// or of all if there are none.
class CompiledHead {
public:
  /// The most tokens and rows of a call.
  static constexpr int64_t kMost = 160;

  explicit CompiledHead(const HeadCase &of, std::vector<int32_t> tokens = {})
      : path(std::string(QWEN_SOURCE_DIR "/test/Inputs/checkpoints/") +
             of.model) {
    constexpr int64_t kStepBack = 7;
    loadDialects(context);
    const ImportedModel model =
        importCheckpoint(path, context, kModelPrograms,
                         {.draftHead = true, .draftTokens = std::move(tokens)});
    mlir::ModuleOp module = *model.module;
    mlir::Builder builder(&context);
    for (mlir::func::FuncOp program : programsOf(module)) {
      program->setAttr(kStepBackAttr, builder.getI64IntegerAttr(kStepBack));
      for (const char *count : {kAllName, kWantedName})
        setLimit(program, count, kMost);
    }
    if (of.rotated) {
      mlir::PassManager manager(&context);
      manager.addPass(createRotate());
      EXPECT_TRUE(mlir::succeeded(manager.run(module)));
    }
    loaded.emplace(compileProgram(module, {.weights = of.weights}), 2 * kMost);
    manifest = loaded->manifest;
    entries = loaded->entries;
    manifest.model.tokenizerVocab = manifest.model.vocabSize;
    packImage(module, model.checkpoint->weights(), image);
    weights.emplace(mapImage(image));
  }

  Engine engine(const EngineOptions &options = {}) {
    return Engine(manifest, weights->data(), entries, pool, options);
  }

  const std::string path;
  Manifest manifest;
  /// By the programs of the manifest.
  std::vector<ForwardFn *> entries;

private:
  mlir::MLIRContext context;
  ThreadPool pool{2};
  MemoryFile image;
  std::optional<LoadedPrograms> loaded;
  std::optional<Mapping> weights;
};

class MtpDrafts : public HeadAnswers {
protected:
  static Request requestOf(int number) {
    Request request;
    for (int i = 0; i < 1 + 29 * number; ++i)
      request.prompt.ids.push_back((number + 37 * i * i + 11 * i) % 300);
    request.maxTokens = 50 + number;
    request.sampling.temperature = static_cast<float>(number % 3) * 0.4F;
    request.sampling.repetitionPenalty = number % 2 ? 1.2F : 1.0F;
    request.sampling.seed = static_cast<uint64_t>(number);
    request.logprobs = 0;
    return request;
  }

  /// Answers requests [first, first + count).
  std::vector<Answer> answer(int first, int count, const EngineOptions &options,
                             const BatcherOptions &rules) {
    return answer(model, first, count, options, rules);
  }
  std::vector<Answer> answer(CompiledHead &of, int first, int count,
                             const EngineOptions &options,
                             const BatcherOptions &rules) {
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i)
      requests.push_back(requestOf(first + i));
    return answerAll(of, std::move(requests), options, rules);
  }
  std::vector<Answer> answerAll(CompiledHead &of, std::vector<Request> requests,
                                const EngineOptions &options,
                                const BatcherOptions &rules) {
    Engine engine = of.engine(options);
    return HeadAnswers::answerAll(engine, std::move(requests), rules);
  }

  /// Compiled once for all tests.
  static CompiledHead &sharedHead() {
    static CompiledHead head({"qwen3_5-bf16", WeightFormat::Q8_0, false});
    return head;
  }

  CompiledHead &model = sharedHead();
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_COMPILEDHEAD_H
