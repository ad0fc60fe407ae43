//===- MasksTest.cpp - Programs with masks and three positions ------------===//
//
// A program over a layer of models/stories as a vision tower has it: without a
// cache, with attention in windows, in a whole sequence and up to a token,
// rotated by time, height and width. It runs beside `forward`, whose tokens
// have three positions too. All rows must have the bits of a plain model.
//
//===----------------------------------------------------------------------===//

#include "Stories.h"

#include "calibration/LoadedPrograms.h"
#include "calibration/ProgramBuilder.h"
#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Numerics/Kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kTowerTokens = 200, kHeads = 6, kKvHeads = 2, kHeadDim = 64;

/// Frequency i rotates by the position i mod 3: the sections of Qwen3.5.
SectionsAttr sectionsIn(mlir::MLIRContext *context) {
  return SectionsAttr::get(context, 11, 11, 10, /*interleaved=*/true);
}

/// Gives the tokens of `forward` three positions.
void addPositions(mlir::func::FuncOp forward) {
  auto table = *forward.getOps<RopeTableOp>().begin();
  for (unsigned i : {2u, 3u}) {
    EXPECT_TRUE(mlir::succeeded(forward.insertArgument(
        i, forward.getArgument(1).getType(), {}, forward.getLoc())));
    table.getGridMutable().append(forward.getArgument(i));
  }
  table.setSectionsAttr(sectionsIn(forward.getContext()));
}

/// Leaves out the rotation of the last layer of `forward`.
void dropRotation(mlir::func::FuncOp forward) {
  AttentionOp last;
  for (AttentionOp attention : forward.getOps<AttentionOp>())
    last = attention;
  for (mlir::OpOperand *heads :
       {&last.getQueriesMutable(), &last.getAppend().getKeysMutable()}) {
    auto rope = heads->get().getDefiningOp<RopeOp>();
    heads->set(rope.getInput());
    rope.erase();
  }
}

/// Makes the ops of a tower: (%rows, %times, %heights, %widths, %windows).
class TowerBuilder {
public:
  explicit TowerBuilder(mlir::func::FuncOp program)
      : program(program),
        builder(mlir::OpBuilder::atBlockEnd(&program.front())) {}

  /// The attention of each mask over the normed rows.
  std::vector<std::pair<std::string, mlir::Value>> build() {
    RmsNormOp::Properties norm;
    norm.setWeight(weight("input_layernorm"));
    norm.setEps(builder.getF64FloatAttr(1e-6));
    const mlir::Value x = argument(0);
    normed = RmsNormOp::create(builder, program.getLoc(), {x.getType()},
                               mlir::ValueRange(x), norm);
    const mlir::Value q = project("q_proj", kHeads), k = project("k_proj", 2),
                      v = project("v_proj", kKvHeads);
    RopeTableOp::Properties of;
    of.setFrequencies(
        mlir::FlatSymbolRefAttr::get(builder.getContext(), "rope.frequencies"));
    of.setSections(sectionsIn(builder.getContext()));
    const mlir::Type half = activationsType(builder.getContext(), kHeadDim / 2);
    auto table = RopeTableOp::create(
        builder, program.getLoc(), {half, half},
        mlir::ValueRange({argument(1), argument(2), argument(3)}), of);
    const auto rotated = [&](mlir::Value heads) -> mlir::Value {
      return RopeOp::create(builder, program.getLoc(), heads, table.getCos(),
                            table.getSin());
    };
    const mlir::Value turnedQ = rotated(q), turnedK = rotated(k);
    return {{"window", attention(turnedQ, turnedK, v, Mask::Windows)},
            {"all", attention(turnedQ, turnedK, v, Mask::All)},
            {"plain", attention(q, k, v, Mask::Causal)}};
  }

private:
  mlir::Value argument(unsigned i) { return program.getArgument(i); }
  mlir::FlatSymbolRefAttr weight(const std::string &path) {
    return mlir::FlatSymbolRefAttr::get(builder.getContext(),
                                        "model.layers.0." + path + ".weight");
  }
  mlir::Value project(const std::string &name, int64_t heads) {
    LinearOp::Properties linear;
    linear.setWeights(builder.getArrayAttr(weight("self_attn." + name)));
    return LinearOp::create(
               builder, program.getLoc(),
               {activationsType(builder.getContext(), heads * kHeadDim)},
               mlir::ValueRange(normed), linear)
        .getResult(0);
  }
  mlir::Value attention(mlir::Value q, mlir::Value k, mlir::Value v,
                        Mask mask) {
    AttentionOp::Properties of;
    of.setHeads(builder.getI64IntegerAttr(kHeads));
    of.setKvHeads(builder.getI64IntegerAttr(kKvHeads));
    of.setMask(MaskAttr::get(builder.getContext(), mask));
    const bool windows = mask == Mask::Windows;
    of.setOperandSegmentSizes({1, 1, 1, 0, 0, windows ? 1 : 0});
    llvm::SmallVector<mlir::Value> operands = {q, k, v};
    if (windows)
      operands.push_back(argument(4));
    return AttentionOp::create(builder, program.getLoc(), {q.getType()},
                               operands, of);
  }

  mlir::func::FuncOp program;
  mlir::OpBuilder builder;
  mlir::Value normed;
};

/// A row of the tower with its place.
struct Patch {
  Token token;
  Values row;
};

/// Images of windows of these lengths.
std::vector<Patch>
makePatches(const std::vector<std::vector<int32_t>> &images) {
  std::vector<Patch> patches;
  for (int32_t image = 0; image < std::ssize(images); ++image)
    for (int32_t window = 0; window < std::ssize(images[image]); ++window)
      for (int32_t i = 0; i < images[image][window]; ++i) {
        const auto n = static_cast<int32_t>(patches.size());
        Values row;
        for (int32_t j = 0; j < kStoriesHidden; ++j)
          row.push_back(static_cast<float>((n * 37 + j * 11) % 101 - 50) / 64);
        patches.push_back({.token = {.id = -1,
                                     .sequence = image + 40,
                                     .position = n,
                                     .wanted = false,
                                     .rope = RopePosition{window, i, n % 13},
                                     .window = window},
                           .row = row});
      }
  return patches;
}

/// The tower in plain C++.
class PlainTower {
public:
  PlainTower(const ReferenceModel &model, const std::vector<Patch> &patches)
      : model(model), patches(patches) {
    const ReferenceLayer &layer = model.layers[0];
    for (const Patch &patch : patches) {
      Values normed(kStoriesHidden);
      numerics::rmsNormF32(patch.row.data(), layer.inputNorm.data(),
                           kStoriesHidden, model.eps, normed.data());
      const Values q = layer.q.times(normed), k = layer.k.times(normed);
      const Rotation rotation = rotationOf(*patch.token.rope);
      heads.push_back({q, k, rotation.rotated(q, {}), rotation.rotated(k, {}),
                       layer.v.times(normed)});
    }
  }

  /// The attention of a patch to those that it sees.
  Values attend(size_t i, Mask mask) const {
    AttentionCache seen(KvFormat::F32, kKvHeads, kHeadDim);
    const bool rotates = mask != Mask::Causal;
    for (size_t other = 0; other < patches.size(); ++other)
      if (sees(i, other, mask))
        seen.append(rotates ? heads[other].turnedK : heads[other].k,
                    heads[other].v);
    return seen.attend(rotates ? heads[i].turnedQ : heads[i].q);
  }

private:
  struct Heads {
    Values q, k, turnedQ, turnedK, v;
  };

  Rotation rotationOf(const RopePosition &of) const {
    const std::array positions = {of.time, of.height, of.width};
    Rotation rotation = {kHeadDim, 0, Values(32), Values(32)};
    for (size_t i = 0; i < 32; ++i)
      numerics::ropeTable(positions.at(i % 3), &model.frequencies[i], 1,
                          &rotation.cos[i], &rotation.sin[i]);
    return rotation;
  }
  bool sees(size_t i, size_t other, Mask mask) const {
    const Token &a = patches[i].token, &b = patches[other].token;
    return a.sequence == b.sequence &&
           (mask != Mask::Windows || a.window == b.window) &&
           (mask != Mask::Causal || other <= i);
  }

  const ReferenceModel &model;
  const std::vector<Patch> &patches;
  std::vector<Heads> heads;
};

/// `forward` and `tower`, compiled, and the weights of both.
struct TowerModel {
  TowerModel() {
    mlir::MLIRContext context;
    loadDialects(context);
    const ImportedModel model = importCheckpoint(kStories, context);
    mlir::ModuleOp module = *model.module;
    auto forward = programsOf(module).front();
    addPositions(forward);
    dropRotation(forward);
    const mlir::Type integers = integersType(&context);
    ProgramBuilder tower(module, "tower", forward,
                         {activationsType(&context, kStoriesHidden), integers,
                          integers, integers, integers});
    tower.setLimits(kTowerTokens, 1);
    tower.nameArgument(0, "rows");
    tower.finish(TowerBuilder(tower.program()).build());
    loaded.emplace(compileProgram(module), /*context=*/128);
    packImage(module, model.checkpoint->weights(), image);
    weights = mapImage(image);
  }

  std::optional<LoadedPrograms> loaded;
  MemoryFile image;
  Mapping weights;
  const ReferenceModel reference = readStories();
};

class MasksTest : public testing::Test {
protected:
  static void SetUpTestSuite() { model = std::make_unique<TowerModel>(); }
  static void TearDownTestSuite() { model.reset(); }

  static Engine makeEngine(ThreadPool &pool) {
    return {model->loaded->manifest, model->weights.data(),
            model->loaded->entries, pool};
  }
  /// Calls the tower.
  static void call(Engine &engine, const std::vector<Patch> &patches) {
    std::vector<Token> batch;
    Values rows;
    for (const Patch &patch : patches) {
      batch.push_back(patch.token);
      rows.insert(rows.end(), patch.row.begin(), patch.row.end());
    }
    const InputRows given = {"rows", rows};
    engine.call("tower", batch, {&given, 1});
  }

  static inline std::unique_ptr<const TowerModel> model;
};
} // namespace

TEST_F(MasksTest, ATowerAttendsAsItsMasksSay) {
  const std::vector<ProgramInfo> &programs = model->loaded->manifest.programs;
  ASSERT_EQ(programs.size(), 2u);
  std::vector<std::string> inputs;
  for (const ProgramValue &input : programs[1].inputs)
    inputs.push_back(input.name);
  EXPECT_EQ(inputs, (std::vector<std::string>{"rows", "times", "heights",
                                              "widths", "windows"}));
  EXPECT_TRUE(programs[1].caches.empty());
  const std::vector<std::vector<std::vector<int32_t>>> calls = {
      {{64, 3, 64}, {65}}, {{1}}, {{16, 16, 15}, {1}, {130, 2}}};
  for (int32_t threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    Engine engine = makeEngine(pool);
    for (const auto &images : calls) {
      const std::vector<Patch> patches = makePatches(images);
      call(engine, patches);
      const PlainTower plain(model->reference, patches);
      for (size_t i = 0; i < patches.size(); i += 7)
        for (const auto &[name, mask] :
             {std::pair("window", Mask::Windows), std::pair("all", Mask::All),
              std::pair("plain", Mask::Causal)}) {
          const std::span<const float> row = engine.row("tower", name, i);
          ASSERT_EQ(Values(row.begin(), row.end()), plain.attend(i, mask))
              << name << " " << i << " of " << patches.size() << ", " << threads
              << " threads";
        }
    }
    EXPECT_EQ(engine.state().freePages(), engine.state().pages());
  }
}

TEST_F(MasksTest, ATowerRefusesTokensOutOfOrderAndNumbersThatAreNotFinite) {
  ThreadPool pool(2);
  Engine engine = makeEngine(pool);
  const auto expectError = [&](const std::vector<Patch> &patches,
                               const char *message) {
    try {
      call(engine, patches);
      FAIL() << message;
    } catch (const Error &error) {
      EXPECT_STREQ(error.what(), message);
    }
  };
  const std::vector<Patch> patches = makePatches({{2, 1}, {1}});
  std::vector<Patch> wrong = patches;
  std::swap(wrong[1], wrong[2]);
  expectError(wrong, "program \"tower\" reads token 2 of sequence 40, window 0 "
                     "behind one of a later sequence or window");
  wrong = patches;
  wrong[3].token.sequence = 39;
  expectError(wrong, "program \"tower\" reads token 3 of sequence 39, window 0 "
                     "behind one of a later sequence or window");
  wrong = patches;
  wrong[1].row[5] = INFINITY;
  EXPECT_THROW(call(engine, wrong), Error);
  call(engine, patches);
  const std::span<const float> row = engine.row("tower", "all", 1);
  EXPECT_EQ(Values(row.begin(), row.end()),
            PlainTower(model->reference, patches).attend(1, Mask::All));
}

TEST_F(MasksTest, TextRotatesByItsPositionsAndIsCachedByItsPlace) {
  const ReferenceModel &reference = model->reference;
  ThreadPool pool(2);
  Engine engine = makeEngine(pool);
  // Without three positions, as before. Behind an image, all are later by as
  // much.
  for (int32_t later : {0, 9}) {
    const SequenceId sequence = engine.state().open();
    ReferenceSequence expected(reference);
    std::vector<Token> batch;
    for (int32_t place = 0; place < 20; ++place) {
      const int32_t at = place + later;
      batch.push_back({.id = 31 * place + 5,
                       .sequence = sequence,
                       .position = place,
                       .wanted = true,
                       .rope = later ? std::optional(RopePosition{at, at, at})
                                     : std::nullopt});
    }
    engine.forward(batch, [&](size_t i, std::span<float> row) {
      Values x = reference.embedding.output(batch[i].id);
      const size_t last = reference.layers.size() - 1;
      for (size_t layer = 0; layer < last; ++layer)
        x = expected.runLayer(layer, x, static_cast<int32_t>(i) + later);
      // Position 0 rotates by nothing.
      x = expected.runLayer(last, x, 0);
      Values normed(x.size());
      numerics::rmsNormF32(x.data(), reference.finalNorm.data(), kStoriesHidden,
                           reference.eps, normed.data());
      EXPECT_EQ(Values(row.begin(), row.end()), reference.logits(normed));
    });
    engine.state().close(sequence);
  }
}
