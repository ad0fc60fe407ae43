//===- PackTest.cpp - Images of weights from any source -------------------===//

#include "qwen/CodeGen/Artifact/PackImage.h"

#include "NumericsRandom.h"
#include "TempDir.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Weights/Owned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

using namespace qwen;

namespace {
constexpr int64_t kInputs = 64, kOwned = 20, kRead = 4;

/// A product of two weights: 20 outputs that a quantizer made, and 4 floats.
class PackTest : public testing::Test {
protected:
  PackTest() {
    context.loadDialect<QwenDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(R"mlir(
      qwen.weight @a : tensor<20x64xf32> from #qwen.source<"a", keeps = <q4_0>> as <q4_0>
      qwen.weight @b : tensor<4x64xf32> from #qwen.source<"b"> as <q4_0>
      qwen.weight @v : tensor<5xf32> from #qwen.source<"v"> as <f32>
      qwen.packed @ab [@a, @b] : tensor<24x64xf32>
        in #qwen.layout<q4_0, panel = 16, chunk = 4> at 0
      qwen.packed @vs [@v] : tensor<5xf32> at 1152
      qwen.image @other
      qwen.weight @w : tensor<5xf32> from #qwen.source<"v"> as <f32> of @other
      qwen.packed @ws [@w] : tensor<5xf32> at 64 of @other
    )mlir",
                                                     &context);
    const auto quantized = std::make_shared<Owned>(
        "the quantizer's a", WeightShape{{kOwned, kInputs}},
        Place::TemporaryFile, WeightFormat::Q4_0);
    for (int64_t output = 0; output < kOwned; ++output) {
      std::vector<numerics::WeightBlock> blocks(kInputs / 32);
      for (size_t i = 0; i < blocks.size(); ++i)
        numerics::encode<numerics::Encoder::Signed4>(row(output) + 32 * i, 32,
                                                     blocks[i]);
      quantized->set(output, blocks);
    }
    sources.set("a", {quantized, {}});
    floats = std::make_shared<Owned>(
        "the merged b", WeightShape{{kRead, kInputs}}, Place::Memory);
    floats->set(0, kRead, row(kOwned));
    sources.set("b", {floats, {}});
    vector = std::make_shared<Owned>("v", WeightShape{{5}}, Place::Memory);
    vector->set(0, 5, x.data());
    sources.set("v", {vector, {}});
  }

  const float *row(int64_t output) const { return x.data() + output * kInputs; }

  std::vector<uint8_t> image(mlir::FlatSymbolRefAttr symbol = {}) {
    std::vector<uint8_t> bytes(1216);
    conversions = packWeights(
        *module, symbol, sources, 1,
        [&](uint64_t offset, std::span<const uint8_t> part) {
          std::memcpy(bytes.data() + offset, part.data(), part.size());
        },
        [](uint64_t, uint64_t) {}, 0, {});
    return bytes;
  }
  std::string error() {
    return test::messageOf([&] { image(); });
  }

  const std::vector<float> x = Random(1).values((kOwned + kRead) * kInputs);
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  WeightSources sources;
  std::shared_ptr<Owned> floats, vector;
  std::vector<Conversion> conversions;
};
} // namespace

TEST_F(PackTest, TakesWhatTheCompilerComputed) {
  const std::vector<uint8_t> bytes = image();
  for (int64_t panel = 0; panel < 2; ++panel) {
    const float *outputs[kPanelOutputs] = {};
    for (int64_t i = 0; i < kPanelOutputs; ++i)
      if (const int64_t output = panel * kPanelOutputs + i;
          output < kOwned + kRead)
        outputs[i] = row(output);
    std::vector<uint8_t> want(576);
    numerics::packPanel(WeightFormat::Q4_0, outputs, kInputs, want.data());
    EXPECT_EQ(std::memcmp(bytes.data() + panel * 576, want.data(), 576), 0)
        << panel;
  }
  std::vector<float> values(5);
  std::memcpy(values.data(), bytes.data() + 1152, 5 * sizeof(float));
  EXPECT_TRUE(std::ranges::equal(values, std::span(x).first(5)));
  ASSERT_EQ(conversions.size(), 2u);
  EXPECT_EQ(conversions[0].from, "computed floats");
  EXPECT_GT(conversions[0].error, 0);
  EXPECT_EQ(conversions[1].from, "q4_0");
  EXPECT_EQ(conversions[1].error, 0);
  EXPECT_EQ(conversions[1].matrices, 1);
  EXPECT_EQ(conversions[1].bytesBefore, 2u * 576);
}

TEST_F(PackTest, PacksTheImageOfASymbol) {
  const std::vector<uint8_t> bytes =
      image(mlir::FlatSymbolRefAttr::get(&context, "other"));
  std::vector<uint8_t> want(1216);
  std::memcpy(want.data() + 64, x.data(), 5 * sizeof(float));
  EXPECT_EQ(bytes, want);
  EXPECT_TRUE(conversions.empty());
}

TEST_F(PackTest, NamesTheSourceInErrors) {
  const float bad = std::numeric_limits<float>::infinity();
  vector->set(3, 1, &bad);
  EXPECT_EQ(error(), "v has a value that is not finite");
  vector->set(3, 1, x.data());
  const float large = 1e6F;
  std::vector<float> values(x.begin(), x.begin() + kInputs);
  values[7] = large;
  floats->set(2, 1, values.data());
  EXPECT_EQ(error(), "the merged b has a block whose scale overflows f16; "
                     "--weights f32 keeps it as it is");
  floats->set(2, 1, x.data());
  sources.set("b", {vector, {}});
  EXPECT_EQ(error(), "v has shape [5] when [4, 64] is needed");
  WeightSources none;
  std::swap(sources, none);
  EXPECT_EQ(error(), "no source gives the values of the weight \"a\"");
}
