//===- MapsTest.cpp - Element-wise maps in a program ----------------------===//
//
// A program of a map and a product, for each row of ElementMaps.def. Its rows
// must have the bits of lib/Numerics.
//
//===----------------------------------------------------------------------===//

#include "NumericsRandom.h"
#include "ReferenceModel.h"

#include "calibration/LoadedPrograms.h"
#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Weights/Owned.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

// More values than a call of a kernel has.
static constexpr int64_t kMapped = 1056, kOfMapped = 40, kMappedTokens = 3;

/// The program of a map, with the results "mapped" and "product".
static std::string programOf(ElementMap map) {
  std::string text = R"mlir(
  qwen.weight @w : tensor<40x1056xf32> from #qwen.source<"w">
  func.func @maps(%x: tensor<?x1056xf32> {qwen.name = "x"})
      -> (tensor<?x1056xf32> {qwen.name = "mapped"}, tensor<?x40xf32> {qwen.name = "product"})
      attributes {qwen.model = {architecture = "Maps", vocab_size = 1 : i64, hidden_size = 64 : i64, layers = 1 : i64, heads = 2 : i64,
                                kv_heads = 2 : i64, head_dim = 32 : i64, intermediate_size = 96 : i64, rope_theta = 1.0e+04 : f64,
                                rms_norm_eps = 1.0e-06 : f64, tied = false, max_context = 64 : i64},
                  qwen.limits = {all = 8 : i64}} {
    %y = qwen.map <MAP> %x : tensor<?x1056xf32> -> tensor<?x1056xf32>
    %z = qwen.map <MAP> %x : tensor<?x1056xf32> -> tensor<?x1056xf32>
    %p = qwen.linear %z, [@w] : tensor<?x1056xf32> -> tensor<?x40xf32>
    return %y, %p : tensor<?x1056xf32>, tensor<?x40xf32>
  }
)mlir";
  for (size_t at; (at = text.find("MAP")) != text.npos;)
    text.replace(at, 3, infoOf(map).name);
  return text;
}

static Values mappedBy(ElementMap map, const Values &x) {
  Values y(x.size());
  switch (map) {
#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  case ElementMap::Map:                                                        \
    numerics::Name##Values(x.data(), std::ssize(x), y.data());                 \
    break;
#include "qwen/ABI/ElementMaps.def"
  }
  return y;
}

static void checkMap(ElementMap map, WeightFormat format) {
  SCOPED_TRACE(infoOf(map).name);
  SCOPED_TRACE(weightFormatName(format));
  mlir::MLIRContext context;
  loadDialects(context);
  Random random(3);
  const Values matrix = random.values(kOfMapped * kMapped);
  auto source = std::make_shared<Owned>("w", WeightShape{{kOfMapped, kMapped}},
                                        Place::Memory);
  source->set(0, kOfMapped, matrix.data());
  WeightSources sources;
  sources.set("w", {source, {}});
  const auto module =
      mlir::parseSourceString<mlir::ModuleOp>(programOf(map), &context);
  ASSERT_TRUE(module);
  const LoadedPrograms loaded(compileProgram(*module, {.weights = format}), 64);
  MemoryFile file;
  packImage(*module, sources, file);
  const Mapping weights = mapImage(file);
  ThreadPool pool(2);
  Engine engine(loaded.manifest, weights.data(), loaded.entries, pool);
  EXPECT_EQ(loaded.manifest.programs.front().work.front().kind, OpKind::Map);

  const Values x = random.values(kMappedTokens * kMapped);
  const SequenceId sequence = engine.state().open();
  std::vector<Token> batch;
  for (int64_t i = 0; i < kMappedTokens; ++i)
    batch.push_back({-1, sequence, i, false});
  const InputRows given = {"x", x};
  engine.call("maps", batch, {&given, 1});
  for (int64_t i = 0; i < kMappedTokens; ++i) {
    const auto from = x.begin() + i * kMapped;
    const Values needed = mappedBy(map, {from, from + kMapped});
    const auto rowOf = [&](const char *output) {
      const auto row = engine.row("maps", output, static_cast<size_t>(i));
      return Values(row.begin(), row.end());
    };
    EXPECT_EQ(rowOf("mapped"), needed);
    EXPECT_EQ(rowOf("product"),
              Matrix(format, kOfMapped, kMapped, matrix).times(needed));
  }
}

TEST(Maps, HaveTheBitsOfTheirReferences) {
  for (ElementMap map : kElementMaps)
    for (WeightFormat format : {WeightFormat::F32, WeightFormat::Q8_0})
      checkMap(map, format);
}
