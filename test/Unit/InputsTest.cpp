//===- InputsTest.cpp - Rows that tokens give to forward ------------------===//
//
// A `forward` that adds a product of rows of the input "pictures" to the
// embedding. Tokens give the rows, in batches of several calls.
//
//===----------------------------------------------------------------------===//

#include "NumericsRandom.h"
#include "ReferenceModel.h"
#include "TempDir.h"

#include "calibration/LoadedPrograms.h"
#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Weights/Owned.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <map>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kInputWidth = 64, kIds = 48, kTokensOfRun = 11;

constexpr const char *kPictured = R"mlir(
  qwen.weight @embedding : tensor<48x64xf32> from #qwen.source<"embedding">
  qwen.weight @project : tensor<64x64xf32> from #qwen.source<"project">
  qwen.weight @norm : tensor<64xf32> from #qwen.source<"norm">
  qwen.weight @head : tensor<48x64xf32> from #qwen.source<"head">
  func.func @forward(%ids: tensor<?xi32>, %pictures: tensor<?x64xf32> {qwen.name = "pictures"}) -> tensor<?x48xf32, #qwen.count<wanted>>
      attributes {qwen.model = {architecture = "Pictured", vocab_size = 48 : i64, hidden_size = 64 : i64, layers = 1 : i64, heads = 2 : i64,
                                kv_heads = 2 : i64, head_dim = 32 : i64, intermediate_size = 96 : i64, rope_theta = 1.0e+04 : f64,
                                rms_norm_eps = 1.0e-06 : f64, tied = false, max_context = 64 : i64},
                  qwen.limits = {all = 4 : i64, wanted = 4 : i64}} {
    %e = qwen.embedding %ids, @embedding : tensor<?xi32> -> tensor<?x64xf32>
    %p = qwen.linear %pictures, [@project] : tensor<?x64xf32> -> tensor<?x64xf32>
    %x = qwen.add %e, %p : tensor<?x64xf32>
    %w = qwen.wanted_tokens %x : tensor<?x64xf32>
    %n = qwen.rms_norm %w, @norm eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
    %y = qwen.lm_head %n, @head : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x48xf32, #qwen.count<wanted>>
    return %y : tensor<?x48xf32, #qwen.count<wanted>>
  }
)mlir";

class InputsTest : public testing::Test {
protected:
  InputsTest() {
    loadDialects(context);
    add("embedding", {{kIds, kInputWidth}});
    add("project", {{kInputWidth, kInputWidth}});
    add("norm", {{kInputWidth}});
    add("head", {{kIds, kInputWidth}});
    module = mlir::parseSourceString<mlir::ModuleOp>(kPictured, &context);
    loaded = std::make_unique<LoadedPrograms>(
        compileProgram(*module, {.weights = WeightFormat::F32}), 64);
    MemoryFile file;
    packImage(*module, sources, file);
    weights.emplace(mapImage(file));
    engine = std::make_unique<Engine>(loaded->manifest, weights->data(),
                                      loaded->entries, pool);
    sequence = engine->state().open();
  }

  void add(const std::string &name, const WeightShape &shape) {
    auto source = std::make_shared<Owned>(name, shape, Place::Memory);
    values[name] = random.values(shape.values());
    source->set(0, shape.outputs(), values[name].data());
    sources.set(name, {source, {}});
  }
  /// The logits of a token with the row `picture`.
  Values logitsOf(int64_t id, const Values &picture) const {
    const auto row = values.at("embedding").begin() + id * kInputWidth;
    const Values x = Matrix(WeightFormat::F32, kInputWidth, kInputWidth,
                            values.at("project"))
                         .times(picture, {}, Values(row, row + kInputWidth));
    Values normed(kInputWidth);
    numerics::rmsNormF32(x.data(), values.at("norm").data(), kInputWidth, 1e-6f,
                         normed.data());
    return Matrix(WeightFormat::F32, kIds, kInputWidth, values.at("head"))
        .times(normed);
  }

  Random random{7};
  mlir::MLIRContext context;
  WeightSources sources;
  std::map<std::string, Values> values;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ThreadPool pool{2};
  std::unique_ptr<LoadedPrograms> loaded;
  std::optional<Mapping> weights;
  std::unique_ptr<Engine> engine;
  SequenceId sequence = 0;
};
} // namespace

TEST_F(InputsTest, TokensGiveTheirRows) {
  const Values pictures = random.values(kTokensOfRun * kInputWidth);
  std::vector<InputRows> rows(kTokensOfRun);
  std::vector<Token> batch;
  for (int32_t i = 0; i < kTokensOfRun; ++i) {
    InputRows &row = rows[static_cast<size_t>(i)];
    row = {"pictures", std::span(pictures).subspan(
                           static_cast<size_t>(i * kInputWidth), kInputWidth)};
    Token token = {3 * i + 1, sequence, i, true};
    if (i % 3 != 0)
      token.inputs = {&row, 1};
    batch.push_back(token);
  }
  size_t given = 0;
  engine->forward(batch, [&](size_t i, std::span<float> logits) {
    const std::span<const float> row = rows[i].values;
    EXPECT_EQ(Values(logits.begin(), logits.end()),
              logitsOf(batch[i].id, i % 3 != 0 ? Values(row.begin(), row.end())
                                               : Values(kInputWidth)))
        << "token " << i;
    ++given;
  });
  EXPECT_EQ(given, batch.size());
}

TEST_F(InputsTest, RefusesRowsThatNoInputTakes) {
  const Values row = random.values(kInputWidth + 1);
  const auto messageFor = [&](const InputRows &rows) {
    Token token = {1, sequence, 0, true};
    token.inputs = {&rows, 1};
    return messageOf(
        [&] { engine->forward({&token, 1}, [](size_t, std::span<float>) {}); });
  };
  const std::string name = loaded->manifest.model.name;
  EXPECT_EQ(messageFor({"sounds", std::span(row).first(kInputWidth)}),
            name + " has no input \"sounds\" of which a token gives a row");
  EXPECT_EQ(messageFor({"ids", std::span(row).first(1)}),
            name + " has no input \"ids\" of which a token gives a row");
  EXPECT_EQ(messageFor({"pictures", row}),
            "position 0 of sequence 0 has 65 values for the input "
            "\"pictures\" when 64 are needed");
}
