//===- ImagesTest.cpp - Weights in two images -----------------------------===//
//
// A model whose weights lie in its own image and in one beside it gives the
// logits of one image, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "calibration/LoadedPrograms.h"
#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

using namespace qwen;

namespace {
constexpr int64_t kImagesTokens = 6;
constexpr char kSecond[] = "second";
using Rows = std::vector<std::vector<float>>;

/// Puts the weights of every other module of the checkpoint into the image
/// kSecond. The experts of a layer stay together.
void divideWeights(mlir::ModuleOp module) {
  auto builder = mlir::OpBuilder::atBlockBegin(module.getBody());
  ImageOp::create(builder, module.getLoc(), kSecond, mlir::IntegerAttr());
  const auto image = mlir::FlatSymbolRefAttr::get(module.getContext(), kSecond);
  std::map<std::string, bool> isSecond;
  for (WeightOp weight : module.getOps<WeightOp>()) {
    const auto [path, rest] = weight.getSymName().split(".experts.");
    const std::string of =
        rest.empty() ? path.rsplit('.').first.str() : path.str() + ".experts";
    if (isSecond.try_emplace(of, isSecond.size() % 2 == 1).first->second)
      weight.setImageAttr(image);
  }
}

struct Images {
  std::string checkpoint;
  WeightFormat weights;
  bool rotated = false;

  /// The logits of kImagesTokens tokens. Checks the images if the weights are
  /// `divided`.
  Rows run(bool divided) const {
    mlir::MLIRContext context;
    loadDialects(context);
    const ImportedModel model = importCheckpoint(
        QWEN_SOURCE_DIR "/test/Inputs/checkpoints/" + checkpoint, context);
    mlir::ModuleOp module = *model.module;
    for (const llvm::StringRef count : {kAllName, kWantedName})
      setLimit(programsOf(module).front(), count, kImagesTokens);
    if (rotated) {
      mlir::PassManager manager(&context);
      manager.addPass(createRotate());
      EXPECT_TRUE(mlir::succeeded(manager.run(module)));
    }
    if (divided)
      divideWeights(module);
    const LoadedPrograms loaded(compileProgram(module, {.weights = weights}),
                                kImagesTokens);
    MemoryFile file, second;
    packImage(module, model.checkpoint->weights(), file);
    const Mapping mapping = mapImage(file);
    std::vector<WeightImage> images = {{mapping.data(), mapping.size()}};
    Mapping beside;
    EXPECT_EQ(loaded.manifest.images.size(), divided ? 1u : 0u);
    if (divided) {
      packImage(module, model.checkpoint->weights(), second,
                mlir::FlatSymbolRefAttr::get(&context, kSecond));
      beside = mapImage(second);
      images.emplace_back(beside.data(), beside.size());
      EXPECT_EQ(loaded.manifest.images[0].name, kSecond);
      EXPECT_EQ(loaded.manifest.images[0].bytes, second.contents().size());
    }
    ThreadPool pool(2);
    Engine engine(loaded.manifest, images, loaded.entries, pool);
    const SequenceId sequence = engine.state().open();
    std::vector<Token> batch;
    for (int32_t position = 0; position < kImagesTokens; ++position)
      batch.push_back({17 * position + 9, sequence, position, true});
    Rows rows;
    engine.forward(batch, [&](size_t, std::span<float> row) {
      rows.emplace_back(row.begin(), row.end());
    });
    return rows;
  }
};
} // namespace

// Vectors, fused products whose weights lie apart, and biases.
TEST(Images, TwoHaveTheBitsOfOne) {
  const Images model = {"qwen2-tied-f32", WeightFormat::F32};
  EXPECT_EQ(model.run(true), model.run(false));
}

// Weights of rotations, of linear attention and of experts.
TEST(Images, EveryOpFindsItsImage) {
  const Images model = {"qwen3_5-moe-bf16", WeightFormat::Q8_0,
                        /*rotated=*/true};
  EXPECT_EQ(model.run(true), model.run(false));
}
