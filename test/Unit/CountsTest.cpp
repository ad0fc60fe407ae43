//===- CountsTest.cpp - A program whose tokens are patches ----------------===//
//
// A program of one MLP over patches, which an op of this test joins, four to a
// merged patch, before the last product. It has no ids and no caches. Its rows
// must have the bits of lib/Numerics.
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

#include <cmath>
#include <map>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kPatchWidth = 64, kInner = 96, kJoined = 4, kOutputs = 40,
                  kMostPatches = 24;

/// The view of `own.merge`: four tokens of its operand are one.
class MergeOp : public mlir::Op<MergeOp, mlir::OpTrait::OneOperand,
                                mlir::OpTrait::OneResult, ViewOp::Trait> {
public:
  using Op::Op;
  static llvm::StringRef getOperationName() { return "own.merge"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }
  static int64_t getJoinedTokens() { return kJoined; }
};

class MergeDialect : public mlir::Dialect {
public:
  explicit MergeDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                mlir::TypeID::get<MergeDialect>()) {
    addOperations<MergeOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "own"; }
};

constexpr const char *kTower = R"mlir(
  qwen.weight @n1 : tensor<64xf32> from #qwen.source<"n1">
  qwen.weight @gate : tensor<96x64xf32> from #qwen.source<"gate">
  qwen.weight @up : tensor<96x64xf32> from #qwen.source<"up">
  qwen.weight @down : tensor<64x96xf32> from #qwen.source<"down">
  qwen.weight @n2 : tensor<64xf32> from #qwen.source<"n2">
  qwen.weight @merge : tensor<40x256xf32> from #qwen.source<"merge">
  func.func @tower(%x: tensor<?x64xf32, #qwen.count<patches>> {qwen.name = "pixels"})
      -> (tensor<?x64xf32, #qwen.count<patches>> {qwen.name = "patches"}, tensor<?x40xf32, #qwen.count<merged>> {qwen.name = "merged"})
      attributes {qwen.model = {architecture = "Tower", vocab_size = 1 : i64, hidden_size = 64 : i64, layers = 1 : i64, heads = 2 : i64,
                                kv_heads = 2 : i64, head_dim = 32 : i64, intermediate_size = 96 : i64, rope_theta = 1.0e+04 : f64,
                                rms_norm_eps = 1.0e-06 : f64, tied = false, max_context = 64 : i64},
                  qwen.limits = {patches = 24 : i64, merged = 6 : i64}} {
    %n = qwen.rms_norm %x, @n1 eps 1.0e-06 : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x64xf32, #qwen.count<patches>>
    %g = qwen.linear %n, [@gate] : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x96xf32, #qwen.count<patches>>
    %u = qwen.linear %n, [@up] : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x96xf32, #qwen.count<patches>>
    %s = qwen.swiglu %g, %u : tensor<?x96xf32, #qwen.count<patches>> -> tensor<?x96xf32, #qwen.count<patches>>
    %d = qwen.linear %s, [@down] : tensor<?x96xf32, #qwen.count<patches>> -> tensor<?x64xf32, #qwen.count<patches>>
    %h = qwen.add %x, %d : tensor<?x64xf32, #qwen.count<patches>>
    %p = qwen.rms_norm %h, @n2 eps 1.0e-06 : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x64xf32, #qwen.count<patches>>
    %m = "own.merge"(%p) : (tensor<?x64xf32, #qwen.count<patches>>) -> tensor<?x256xf32, #qwen.count<merged>>
    %y = qwen.linear %m, [@merge] : tensor<?x256xf32, #qwen.count<merged>> -> tensor<?x40xf32, #qwen.count<merged>>
    return %p, %y : tensor<?x64xf32, #qwen.count<patches>>, tensor<?x40xf32, #qwen.count<merged>>
  }
)mlir";

/// The compiled program with an open sequence.
struct Tower {
  Tower(mlir::ModuleOp module, const WeightSources &sources,
        WeightFormat format, ThreadPool &pool)
      : loaded(compileProgram(module, {.weights = format}), 64),
        weights(pack(module, sources)), image(weights.data(), weights.size()),
        engine(loaded.manifest, {&image, 1}, loaded.entries, pool),
        sequence(engine.state().open()) {}

  const LoadedPrograms loaded;
  const Mapping weights;
  const WeightImage image;
  Engine engine;
  const SequenceId sequence;

private:
  static Mapping pack(mlir::ModuleOp module, const WeightSources &sources) {
    MemoryFile file;
    packImage(module, sources, file);
    return mapImage(file);
  }
};

class CountsTest : public testing::Test {
protected:
  CountsTest() {
    loadDialects(context);
    context.loadDialect<MergeDialect>();
    add("n1", {kPatchWidth});
    add("gate", {kInner, kPatchWidth});
    add("up", {kInner, kPatchWidth});
    add("down", {kPatchWidth, kInner});
    add("n2", {kPatchWidth});
    add("merge", {kOutputs, kJoined * kPatchWidth});
  }

  void add(const std::string &name, std::vector<int64_t> sizes) {
    const WeightShape shape = {std::move(sizes)};
    auto source = std::make_shared<Owned>(name, shape, Place::Memory);
    values[name] = random.values(shape.values());
    source->set(0, shape.outputs(), values[name].data());
    sources.set(name, {source, {}});
  }

  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
    return mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  /// The rows of patches behind the last norm.
  Values patchOf(const Values &x, WeightFormat format) const {
    const auto product = [&](const char *name, int64_t n, int64_t k) {
      return Matrix(format, n, k, values.at(name));
    };
    const auto normed = [&](const Values &row, const char *name) {
      Values y(row.size());
      numerics::rmsNormF32(row.data(), values.at(name).data(), kPatchWidth,
                           1e-6f, y.data());
      return y;
    };
    const Values n = normed(x, "n1");
    const Values gate = product("gate", kInner, kPatchWidth).times(n),
                 up = product("up", kInner, kPatchWidth).times(n);
    Values gated(gate.size());
    numerics::swiGluF32(gate.data(), up.data(), kInner, gated.data());
    return normed(product("down", kPatchWidth, kInner).times(gated, {}, x),
                  "n2");
  }

  /// Compiles and runs the tower, and compares its rows.
  void check(WeightFormat format);

  Random random{5};
  mlir::MLIRContext context;
  WeightSources sources;
  std::map<std::string, Values> values;
  ThreadPool pool{2};
};
} // namespace

/// The first `count` patches of `sequence`.
static std::vector<Token> patchesOf(SequenceId sequence, int64_t count) {
  std::vector<Token> batch;
  batch.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    batch.push_back({-1, sequence, i, false});
  return batch;
}

void CountsTest::check(WeightFormat format) {
  const auto module = parse(kTower);
  ASSERT_TRUE(module);
  Tower tower(*module, sources, format, pool);
  const ProgramInfo &info = tower.loaded.manifest.programs.front();
  EXPECT_EQ(info.limits.tokens, kMostPatches);
  EXPECT_EQ(info.limits.rows, 0);
  ASSERT_EQ(info.limits.counts.size(), 1U);
  EXPECT_EQ(info.limits.counts[0].name, "merged");
  EXPECT_EQ(info.limits.counts[0].most, kMostPatches / kJoined);
  EXPECT_EQ(info.inputs[0].count, kTokensOfCall);
  EXPECT_EQ(info.outputs[1].count, kFirstOwnCount);
  EXPECT_EQ(info.work.front().count, kTokensOfCall);
  EXPECT_EQ(info.work.back().count, kFirstOwnCount);

  for (int64_t patches : {kMostPatches, int64_t{8}}) {
    const std::vector<Token> batch = patchesOf(tower.sequence, patches);
    const Values pixels = random.values(patches * kPatchWidth);
    const InputRows given = {"pixels", pixels};
    const CountNumber merged = {"merged", patches / kJoined};
    tower.engine.call("tower", batch, {&given, 1}, 0, {&merged, 1});
    Values joined;
    for (int64_t i = 0; i < patches; ++i) {
      const auto from = pixels.begin() + i * kPatchWidth;
      const Values row = patchOf({from, from + kPatchWidth}, format);
      const auto found =
          tower.engine.row("tower", "patches", static_cast<size_t>(i));
      EXPECT_EQ(Values(found.begin(), found.end()), row) << "patch " << i;
      joined.insert(joined.end(), row.begin(), row.end());
      if ((i + 1) % kJoined != 0)
        continue;
      const auto out =
          tower.engine.row("tower", "merged", static_cast<size_t>(i / kJoined));
      EXPECT_EQ(
          Values(out.begin(), out.end()),
          Matrix(format, kOutputs, kJoined * kPatchWidth, values.at("merge"))
              .times(joined))
          << "merged patch " << i / kJoined;
      joined.clear();
    }
    tower.engine.state().truncate(tower.sequence, 0);
  }
}

TEST_F(CountsTest, PatchesRunInF32) { check(WeightFormat::F32); }

TEST_F(CountsTest, PatchesRunInQ8) { check(WeightFormat::Q8_0); }

TEST_F(CountsTest, BuffersHaveRoomForWhatTheyCount) {
  const auto bytesOf = [&](const std::string &limits) {
    std::string text = kTower;
    const std::string before = "{patches = 24 : i64, merged = 6 : i64}";
    text.replace(text.find(before), before.size(), limits);
    const auto module = parse(text);
    EXPECT_TRUE(module);
    return LoadedPrograms(compileProgram(*module), 64)
        .manifest.programs.front()
        .arenaBytes;
  };
  EXPECT_EQ(bytesOf("{patches = 48 : i64, merged = 6 : i64}"),
            2 * bytesOf("{patches = 24 : i64, merged = 6 : i64}"));
  EXPECT_EQ(
      messageOf([&] { bytesOf("{patches = 24 : i64, merged = 7 : i64}"); }),
      "'own.merge' op needs 28 patches for the limit of merged when 24 "
      "is the limit");
}

TEST_F(CountsTest, ACallHasANumberOfEachCount) {
  const auto module = parse(kTower);
  ASSERT_TRUE(module);
  Tower tower(*module, sources, WeightFormat::Q8_0, pool);
  const std::vector<Token> batch = patchesOf(tower.sequence, 8);
  Values pixels = random.values(8 * kPatchWidth);
  const auto call = [&](std::vector<CountNumber> numbers) {
    return messageOf([&] {
      const InputRows given = {"pixels", pixels};
      tower.engine.call("tower", batch, {&given, 1}, 0, numbers);
    });
  };
  EXPECT_EQ(call({{"merged", 7}}), "program \"tower\" takes 0 to 6 of its "
                                   "count \"merged\" in a call, not 7");
  EXPECT_EQ(call({{"merged", -1}}), "program \"tower\" takes 0 to 6 of its "
                                    "count \"merged\" in a call, not -1");
  EXPECT_EQ(call({{"other", 1}}), "a call of program \"tower\" needs a number "
                                  "of its count \"merged\"");
  EXPECT_EQ(call({{"merged", 2}}), "");
  EXPECT_THROW((void)tower.engine.row("tower", "merged", 6), Error);
  tower.engine.state().truncate(tower.sequence, 0);

  // A patch has a flag, and what reads it, too.
  pixels[5 * kPatchWidth] = INFINITY;
  const std::string message = call({{"merged", 2}});
  EXPECT_NE(message.find("a number is not finite at sequence 0, position 5"),
            std::string::npos)
      << message;
}

TEST_F(CountsTest, ANumberThatIsNotFiniteIsToldOfItsCount) {
  // The norm gives it, and the merged patch's own quantize sees it first.
  values["n2"][3] = 3e38F;
  auto norm =
      std::make_shared<Owned>("n2", WeightShape{{kPatchWidth}}, Place::Memory);
  norm->set(0, kPatchWidth, values["n2"].data());
  sources.set("n2", {norm, {}});
  const auto module = parse(kTower);
  ASSERT_TRUE(module);
  Tower tower(*module, sources, WeightFormat::Q8_0, pool);
  const std::vector<Token> batch = patchesOf(tower.sequence, 8);
  Values pixels = random.values(8 * kPatchWidth);
  pixels[3] = 100;
  const InputRows given = {"pixels", pixels};
  const CountNumber merged = {"merged", 2};
  const std::string message = messageOf(
      [&] { tower.engine.call("tower", batch, {&given, 1}, 0, {&merged, 1}); });
  EXPECT_NE(message.find("a number is not finite at merged 0, in quantize."),
            std::string::npos)
      << message;
}
