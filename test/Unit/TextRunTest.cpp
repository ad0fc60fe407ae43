//===- TextRunTest.cpp - A text through a model, part by part -------------===//

#include "calibration/TextRun.h"

#include "Stories.h"

#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

TEST(TextRun, RowsHaveTheBitsOfTheModel) {
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model = importCheckpoint(kStories, context);
  const SublayerChain chain = divide(programsOf(*model.module).front());
  // Attention and MLP of each layer, and the norm before the head.
  ASSERT_EQ(chain.sublayers.size(), 2u * kStoriesLayers + 1);
  EXPECT_EQ(chain.sublayers[3].name, "layers.1.mlp.residual");
  EXPECT_EQ(
      chain.sublayers[0].inputs[0].weights,
      (std::vector<std::string>{"model.layers.0.self_attn.q_proj.weight",
                                "model.layers.0.self_attn.k_proj.weight",
                                "model.layers.0.self_attn.v_proj.weight"}));
  EXPECT_EQ(chain.sublayers.back().inputs[0].weights,
            std::vector<std::string>{"model.embed_tokens.weight"});

  // Three windows.
  constexpr int64_t kWindow = 7;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 3 * kWindow; ++i)
    ids.push_back(91 * i % 4000 + 5);
  ThreadPool pool(2);
  TextRun run(*model.module, model.checkpoint->weights(), ids, kWindow, pool);
  run.embed(chain.embedding);

  const ReferenceModel reference = readStories();
  std::vector<ReferenceSequence> sequences(ids.size() / kWindow,
                                           ReferenceSequence(reference));
  std::vector<Values> rows;
  for (int32_t id : ids)
    rows.push_back(reference.embedding.output(id));
  std::vector<Values> received[2];
  const auto runSublayer = [&](const Sublayer &sublayer) {
    for (std::vector<Values> &values : received)
      values.clear();
    run.run(sublayer, [&](const ReadRows &read) {
      std::span<const float> given = read.rows;
      const size_t k = given.size() / ids.size();
      for (; !given.empty(); given = given.subspan(k))
        received[read.input].emplace_back(
            given.begin(), given.begin() + static_cast<int64_t>(k));
    });
  };
  for (size_t layer = 0; layer < kStoriesLayers; ++layer) {
    std::vector<LayerInputs> inputs(ids.size());
    for (size_t i = 0; i < ids.size(); ++i)
      rows[i] = sequences[i / kWindow].runLayer(
          layer, rows[i], static_cast<int32_t>(i % kWindow), &inputs[i]);
    runSublayer(chain.sublayers[2 * layer]);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(received[0][i], inputs[i].qkv) << layer << ", " << i;
      ASSERT_EQ(received[1][i], inputs[i].o) << layer << ", " << i;
    }
    runSublayer(chain.sublayers[2 * layer + 1]);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(received[0][i], inputs[i].gateUp) << layer << ", " << i;
      ASSERT_EQ(received[1][i], inputs[i].down) << layer << ", " << i;
      const auto row = run.rows().subspan(i * kStoriesHidden, kStoriesHidden);
      ASSERT_EQ(Values(row.begin(), row.end()), rows[i]) << layer << ", " << i;
    }
  }
  runSublayer(chain.sublayers.back());
  for (size_t i = 0; i < ids.size(); ++i) {
    Values last(kStoriesHidden);
    numerics::rmsNormF32(rows[i].data(), reference.finalNorm.data(),
                         kStoriesHidden, reference.eps, last.data());
    ASSERT_EQ(received[0][i], last) << i;
  }
}

/// The normed row of the last of `ids`, by the reference.
static Values lastRow(const ReferenceModel &reference,
                      std::span<const int32_t> ids) {
  ReferenceSequence sequence(reference);
  Values row, normed(kStoriesHidden);
  for (int32_t position = 0; int32_t id : ids) {
    row = reference.embedding.output(id);
    for (size_t layer = 0; layer < kStoriesLayers; ++layer)
      row = sequence.runLayer(layer, row, position);
    ++position;
  }
  numerics::rmsNormF32(row.data(), reference.finalNorm.data(), kStoriesHidden,
                       reference.eps, normed.data());
  return normed;
}

TEST(TextRun, HeadReadsTurnedRowsOfARotatedModel) {
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model = importCheckpoint(kStories, context);
  mlir::PassManager manager(&context);
  manager.addPass(createRotate());
  ASSERT_TRUE(mlir::succeeded(manager.run(*model.module)));
  const SublayerChain chain = divide(programsOf(*model.module).front());
  const std::vector<int32_t> ids = {5, 700, 31, 2};
  ThreadPool pool(2);
  TextRun run(*model.module, model.checkpoint->weights(), ids, std::ssize(ids),
              pool);
  run.embed(chain.embedding);
  std::vector<float> rows;
  for (const Sublayer &sublayer : chain.sublayers)
    run.run(sublayer, [&](const ReadRows &read) {
      rows.assign(read.rows.begin(), read.rows.end());
    });
  ASSERT_EQ(rows.size(), ids.size() * kStoriesHidden);
  const Values last = lastRow(readStories(), ids);
  std::vector<double> turned(last.begin(), last.end());
  numerics::Rotation(kStoriesHidden).turn(turned.data());
  for (size_t i = 0; i < kStoriesHidden; ++i)
    ASSERT_NEAR(rows[rows.size() - kStoriesHidden + i], turned[i], 1e-4) << i;
}

/// Weights of a model in f32, as matrices.
static Matrix matrixOf(const WeightSources &weights, const std::string &name,
                       int64_t first, int64_t outputs) {
  const WeightSource &source = *weights.find(name)->source;
  const int64_t k = source.shape().k();
  Values values(static_cast<size_t>(outputs * k));
  source.read(first, outputs, values.data());
  return {WeightFormat::F32, outputs, k, values};
}

static Values swiGlu(const Values &gate, const Values &up) {
  Values y(gate.size());
  numerics::swiGluF32(gate.data(), up.data(), std::ssize(gate), y.data());
  return y;
}

TEST(TextRun, ExpertsGetTheRowsOfTheirTokens) {
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model = importCheckpoint(
      QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3-moe-f32", context);
  const WeightSources &weights = model.checkpoint->weights();
  const SublayerChain chain = divide(programsOf(*model.module).front());
  const Sublayer &attention = chain.sublayers[0],
                 &sublayer = chain.sublayers[1];
  constexpr int64_t kExperts = 8, kActive = 2;
  const std::string path = "model.layers.0.mlp.", experts = path + "experts.";
  ASSERT_EQ(sublayer.inputs.size(), 3u);
  const ProductInput &router = sublayer.inputs[0], &up = sublayer.inputs[1],
                     &down = sublayer.inputs[2];
  EXPECT_EQ(router.experts, 1);
  EXPECT_EQ(up.weights, (std::vector{experts + "gate_proj.weight",
                                     experts + "up_proj.weight"}));
  EXPECT_EQ(down.weights, std::vector{experts + "down_proj.weight"});
  EXPECT_TRUE(up.experts == kExperts && up.choices() == kActive);
  EXPECT_TRUE(down.experts == kExperts && down.choices() == kActive);

  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 48; ++i)
    ids.push_back(91 * i % 300 + 5);
  ThreadPool pool(2);
  TextRun run(*model.module, weights, ids, 24, pool);
  run.embed(chain.embedding);
  run.run(attention, [](const ReadRows &) {});
  std::vector<Values> normed;
  std::vector<Values> received[2][kExperts];
  std::vector<int64_t> tokens[3][kExperts];
  run.run(sublayer, [&](const ReadRows &read) {
    const auto k = widthOf(sublayer.inputs[read.input].rows);
    std::vector<Values> &to =
        read.input == 0 ? normed : received[read.input - 1][read.expert];
    std::span<const float> given = read.rows;
    for (; !given.empty(); given = given.subspan(static_cast<size_t>(k)))
      to.emplace_back(given.begin(), given.begin() + k);
    llvm::append_range(tokens[read.input][read.expert], read.tokens);
  });

  ASSERT_EQ(normed.size(), ids.size());
  std::vector<Values> expected[2][kExperts];
  const Matrix gate = matrixOf(weights, path + "gate.weight", 0, kExperts);
  constexpr int64_t kWidth = 64;
  std::vector<int64_t> choosers[kExperts];
  for (size_t token = 0; token < normed.size(); ++token) {
    const Values &x = normed[token];
    int32_t chosen[kActive];
    float p[kActive];
    ASSERT_EQ(numerics::chooseExperts(gate.times(x).data(), kExperts, kActive,
                                      chosen, p),
              0);
    for (int32_t expert : chosen) {
      const auto product = [&](const char *name) {
        return matrixOf(weights, experts + name, expert * kWidth, kWidth)
            .times(x);
      };
      choosers[expert].push_back(static_cast<int64_t>(token));
      expected[0][expert].push_back(x);
      expected[1][expert].push_back(
          swiGlu(product("gate_proj.weight"), product("up_proj.weight")));
    }
  }
  for (size_t input : {0, 1})
    for (size_t expert = 0; expert < kExperts; ++expert) {
      EXPECT_TRUE(received[input][expert] == expected[input][expert])
          << input << ", expert " << expert;
      EXPECT_EQ(tokens[input + 1][expert], choosers[expert]);
    }
}
