//===- TextGradientsTest.cpp - Gradients of a model over a text -----------===//

#include "calibration/TextGradients.h"

#include "Safetensors.h"

#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

using namespace qwen;

static const std::string kCheckpoints =
    QWEN_SOURCE_DIR "/test/Inputs/checkpoints/";

namespace {
/// Gradients [tokens][outputs] by the weight of their product.
using Slopes = std::map<std::string, std::vector<float>>;

/// The tokens of the test's text.
std::vector<int64_t> targets;

/// The gradients by all products of a model.
Slopes slopesOf(const ImportedModel &model, std::span<const int32_t> ids,
                int64_t window, unsigned threads) {
  const SublayerChain chain = divide(programsOf(*model.module).front());
  std::vector<const Sublayer *> sublayers;
  for (const Sublayer &sublayer : chain.sublayers) {
    EXPECT_EQ(findOpWithoutGradient(sublayer), nullptr);
    sublayers.push_back(&sublayer);
  }
  ThreadPool pool(1);
  TextRun run(*model.module, model.checkpoint->weights(), ids, window, pool);
  TextGradients gradients(*model.module, model.checkpoint->weights(), sublayers,
                          run, threads, Place::Memory,
                          [](size_t number, std::span<const float>) {
                            return static_cast<int32_t>(targets[number]);
                          });
  gradients.runForward(chain.embedding, sublayers.size() - 1, [](size_t) {});
  Slopes slopes;
  for (size_t i = sublayers.size(); i > 0; --i)
    gradients.runBackward(i - 1, [&](size_t, size_t, llvm::StringRef weight,
                                     std::span<const float> gradient) {
      std::vector<float> &all = slopes[weight.str()];
      all.insert(all.end(), gradient.begin(), gradient.end());
    });
  return slopes;
}

class TextGradientsOf : public testing::TestWithParam<const char *> {};
} // namespace

// Against jax.grad, of the model and of the same model turned.
TEST_P(TextGradientsOf, AreThoseOfTheDefinition) {
  const std::string folder = kCheckpoints + GetParam();
  const Safetensors golden(
      std::string(QWEN_SOURCE_DIR "/test/Inputs/gradients/") + GetParam() +
      ".safetensors");
  std::vector<int32_t> ids;
  for (int64_t id : golden.get<int64_t>("ids"))
    ids.push_back(static_cast<int32_t>(id));
  targets = golden.get<int64_t>("targets");
  constexpr int64_t kWindow = 12;
  ASSERT_EQ(ids.size(), 2u * kWindow);
  for (bool isTurned : {false, true}) {
    mlir::MLIRContext context;
    loadDialects(context);
    const ImportedModel model = importCheckpoint(folder, context);
    if (isTurned) {
      mlir::PassManager passes(&context);
      passes.addPass(createRotate());
      ASSERT_TRUE(succeeded(passes.run(*model.module)));
    }
    const Slopes slopes = slopesOf(model, ids, kWindow, 1);
    if (isTurned)
      EXPECT_EQ(slopes, slopesOf(model, ids, kWindow, 3));
    size_t compared = 0;
    for (const auto &[name, entry] : golden.tensors().items()) {
      // Results in the turned space have other values.
      const llvm::StringRef weight = name;
      if (!weight.starts_with("model.") ||
          (isTurned &&
           (weight.contains("v_proj") || weight.contains("o_proj") ||
            weight.contains("down_proj"))))
        continue;
      ++compared;
      const auto want = golden.get<float>(name);
      const std::vector<float> &found = slopes.at(name);
      ASSERT_EQ(found.size(), want.size()) << name;
      double error = 0, square = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        error += std::pow(double{found[i]} - want[i], 2);
        square += std::pow(double{want[i]}, 2);
      }
      EXPECT_LT(std::sqrt(error / square), 1e-4) << name << isTurned;
    }
    EXPECT_EQ(compared, isTurned ? 4u : 7u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TextGradientsOf,
                         testing::Values("qwen2-tied-f32", "qwen3-untied-f32"));

TEST(TextGradients, NameOpsWithoutBackwardPasses) {
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model =
      importCheckpoint(kCheckpoints + "qwen3_5-text-f32", context);
  const SublayerChain chain = divide(programsOf(*model.module).front());
  mlir::Operation *found = findOpWithoutGradient(chain.sublayers.front());
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->getName().getStringRef(), "qwen.short_convolution");
}

TEST(TextGradients, DrawTheSameTokens) {
  const std::vector<float> logits = {0.5f, 0, -1, 2};
  std::vector<int> counts(4);
  for (size_t i = 0; i < 1000; ++i)
    ++counts[static_cast<size_t>(drawNext(i, logits))];
  // The softmax is .16, .10, .04 and .70.
  EXPECT_NEAR(counts[3], 700, 45);
  EXPECT_NEAR(counts[2], 35, 18);
  EXPECT_EQ(drawNext(7, logits), drawNext(7, logits));
}
