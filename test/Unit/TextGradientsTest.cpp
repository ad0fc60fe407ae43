//===- TextGradientsTest.cpp - Gradients of a model over a text -----------===//

#include "calibration/TextGradients.h"
#include "calibration/StepGradients.h"

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
/// Gradients [tokens][outputs] by the weight of their product: all experts
/// have outputs, and the experts that a token did not choose have zeros.
using Slopes = std::map<std::string, std::vector<float>>;

/// The tokens of the test's text.
std::vector<int64_t> targets;

/// The experts of each of a model's weights.
std::map<std::string, size_t>
expertsOf(std::span<const Sublayer *const> sublayers) {
  std::map<std::string, size_t> experts;
  for (const Sublayer *sublayer : sublayers)
    for (const ProductInput &input : sublayer->inputs)
      for (const std::string &weight : input.weights)
        experts[weight] = static_cast<size_t>(input.experts);
  return experts;
}

/// The gradients by all products of a model, whose text `run` has.
Slopes slopesOf(const ImportedModel &model, const SublayerChain &chain,
                TextRun &run, unsigned threads) {
  std::vector<const Sublayer *> sublayers;
  for (const Sublayer &sublayer : chain.sublayers) {
    EXPECT_EQ(findOpWithoutGradient(sublayer), nullptr);
    sublayers.push_back(&sublayer);
  }
  TextGradients gradients(*model.module, model.checkpoint->weights(), sublayers,
                          run, threads, Place::Memory,
                          [](size_t number, std::span<const float>) {
                            return static_cast<int32_t>(targets[number]);
                          });
  gradients.runForward(chain.embedding, sublayers.size() - 1, [](size_t) {});
  const std::map<std::string, size_t> experts = expertsOf(sublayers);
  Slopes slopes;
  for (size_t i = sublayers.size(); i > 0; --i)
    gradients.runBackward(i - 1, [&](size_t first, const ProductGradient &own) {
      const auto outputs = static_cast<size_t>(own.outputs);
      const size_t width = experts.at(own.weight.str()) * outputs;
      std::vector<float> &all = slopes[own.weight.str()];
      all.resize(targets.size() * width);
      for (size_t row = 0; row < own.count(); ++row)
        std::ranges::copy(own.slopes.subspan(row * outputs, outputs),
                          all.begin() +
                              static_cast<int64_t>(
                                  (first + own.token(row)) * width +
                                  static_cast<size_t>(own.expert) * outputs));
    });
  return slopes;
}

/// A model, perhaps turned by a rotation, and how many products of its golden
/// then have the same values.
struct GoldenGradients {
  const char *name;
  bool isTurned;
  size_t products;
};

class TextGradientsOf : public testing::TestWithParam<GoldenGradients> {};
} // namespace

// Against jax.grad.
TEST_P(TextGradientsOf, AreThoseOfTheDefinition) {
  const auto &[name, isTurned, products] = GetParam();
  const Safetensors golden(
      std::string(QWEN_SOURCE_DIR "/test/Inputs/gradients/") + name +
      ".safetensors");
  std::vector<int32_t> ids;
  for (int64_t id : golden.get<int64_t>("ids"))
    ids.push_back(static_cast<int32_t>(id));
  targets = golden.get<int64_t>("targets");
  constexpr int64_t kWindow = 12;
  ASSERT_EQ(ids.size(), 2u * kWindow);
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model = importCheckpoint(kCheckpoints + name, context);
  if (isTurned) {
    mlir::PassManager passes(&context);
    passes.addPass(createRotate());
    ASSERT_TRUE(succeeded(passes.run(*model.module)));
  }
  const SublayerChain chain = divide(programsOf(*model.module).front());
  ThreadPool pool(1);
  TextRun run(*model.module, model.checkpoint->weights(), ids, kWindow, pool);
  const Slopes slopes = slopesOf(model, chain, run, 1);
  EXPECT_TRUE(slopes == slopesOf(model, chain, run, 3));
  size_t compared = 0;
  for (const auto &[weight, entry] : golden.tensors().items()) {
    // Results in the turned space have other values.
    const llvm::StringRef product = weight;
    if (!product.starts_with("model.") ||
        (isTurned &&
         (product.contains("v_proj") || product.contains("o_proj") ||
          product.contains("out_proj") || product.contains("down_proj"))))
      continue;
    ++compared;
    const auto want = golden.get<float>(weight);
    const std::vector<float> &found = slopes.at(weight);
    ASSERT_EQ(found.size(), want.size()) << weight;
    double error = 0, square = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(double{found[i]} - want[i], 2);
      square += std::pow(double{want[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / square), 1e-4) << weight;
  }
  EXPECT_EQ(compared, products);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TextGradientsOf,
    testing::Values(GoldenGradients{"qwen2-tied-f32", false, 7},
                    GoldenGradients{"qwen2-tied-f32", true, 4},
                    GoldenGradients{"qwen3-untied-f32", false, 7},
                    GoldenGradients{"qwen3-untied-f32", true, 4},
                    GoldenGradients{"qwen3-moe-bf16", false, 8},
                    GoldenGradients{"qwen3_5-bf16", false, 13},
                    GoldenGradients{"qwen3_5-moe-bf16", true, 13}));

// Three tokens choose two of the experts each.
TEST(StepGradients, WeighTheTokensOfEachExpert) {
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model =
      importCheckpoint(kCheckpoints + "qwen3-moe-f32", context);
  CalibrationStep step;
  step.sublayer = divide(programsOf(*model.module).front()).sublayers[1];
  const std::vector<ProductInput> &inputs = step.sublayer.inputs;
  const auto input = static_cast<size_t>(
      llvm::find_if(inputs, [](const ProductInput &each) { return each.ids; }) -
      inputs.begin());
  StepGradients gradients(step, 5, 1, Place::Memory);
  const auto add = [&](size_t first, int64_t expert,
                       const std::vector<int64_t> &tokens,
                       const std::vector<float> &slopes) {
    // Gate and up read the same rows.
    for (const std::string &weight : inputs[input].weights)
      gradients.add(first, {weight, slopes, 1, expert, tokens});
  };
  add(0, 2, {0, 1}, {1, 3});
  add(0, 3, {1}, {5});
  add(0, 6, {0}, {2});
  // A later run of the text.
  add(2, 2, {2}, {2});
  ASSERT_TRUE(gradients.finish());
  const auto weigh = [&](size_t expert, const std::vector<int64_t> &tokens) {
    return gradients.weights({input, expert, {}, tokens});
  };
  // The squares of expert 2 are 1, 9 and 4 (twice).
  const std::vector<float> weights = weigh(2, {0, 1, 4});
  EXPECT_FLOAT_EQ(weights[0], 0.5f + 0.5f * 3 / 14);
  EXPECT_FLOAT_EQ(weights[1], 0.5f + 0.5f * 27 / 14);
  EXPECT_FLOAT_EQ(weights[2], 0.5f + 0.5f * 12 / 14);
  EXPECT_EQ(weigh(6, {0}), std::vector<float>{1});
  // The gradients' run chose others for token 1.
  EXPECT_EQ(weigh(6, {1}), std::vector<float>{1});
  EXPECT_EQ(gradients.outputs(inputs[input].weights[0], 2), nullptr);
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
