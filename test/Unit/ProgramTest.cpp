//===- ProgramTest.cpp - Programs of parts of a model ---------------------===//
//
// Programs that a caller makes of the graph of models/stories and compiles in
// f32: one layer, the first half of the layers, and a layer that reads rows of
// `forward` as a draft head does. All rows must have the bits of
// ReferenceModel.
//
//===----------------------------------------------------------------------===//

#include "qwen/Compiler/Compiler.h"

#include "Stories.h"

#include "calibration/LoadedPrograms.h"
#include "calibration/ProgramBuilder.h"
#include "calibration/Sublayers.h"
#include "engine/Engine.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Numerics/Kernels.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kTokens = 16, kContext = 128;

/// Gives copies of layers to programs.
class Layers {
public:
  explicit Layers(mlir::func::FuncOp forward)
      : sublayers(divide(forward).sublayers) {}

  /// Copies a layer over `x`, with the caches of layer `cache`.
  mlir::Value add(ProgramBuilder &program, int64_t number, mlir::Value x,
                  int64_t cache) const {
    const auto first = 2 * static_cast<size_t>(number);
    program.useCachesOf(cache);
    program.map(sublayers[first].input, x);
    return program.copy(sublayers[first + 1].result);
  }

  /// Attention and MLP of each layer, one after the other.
  const std::vector<Sublayer> sublayers;
};

void setLimits(mlir::func::FuncOp program) {
  setLimit(program, kAllName, kTokens);
  setLimit(program, kWantedName, 2);
}

class ProgramTest : public testing::Test {
protected:
  ProgramTest() {
    loadDialects(context);
    model = importCheckpoint(kStories, context);
    forward = programsOf(*model.module).front();
    setLimits(forward);
  }

  static void expectRow(const Engine &engine, const char *program,
                        const char *output, size_t index,
                        const Values &expected) {
    const std::span<const float> row = engine.row(program, output, index);
    EXPECT_EQ(Values(row.begin(), row.end()), expected)
        << program << ", " << output << ", row " << index;
  }

  mlir::MLIRContext context;
  const mlir::Type integers = integersType(&context);
  ImportedModel model;
  mlir::func::FuncOp forward;
  ThreadPool pool{2};
};
} // namespace

/// `sources` with the weights of layer `number` under the names of layer 0.
static WeightSources bindLayer(WeightSources sources, int64_t number) {
  const std::string prefix = "model.layers." + std::to_string(number) + ".";
  const WeightSources all = sources;
  for (const auto &[name, entry] : all.all())
    if (name.starts_with(prefix))
      sources.set("model.layers.0." + name.substr(prefix.size()), entry);
  return sources;
}

TEST_F(ProgramTest, ALayerRunsOverTheImagesOfTwo) {
  mlir::ModuleOp module = *model.module;
  const Layers layers(forward);
  const auto &attention = layers.sublayers[0].inputs;
  const auto &mlp = layers.sublayers[1].inputs;
  ProgramBuilder layer(module, "layer", forward,
                       {activationsType(&context, kStoriesHidden), integers});
  setLimits(layer.program());
  layer.nameArgument(0, "hidden");
  layer.map(forward.getArgument(1), layer.argument(1));
  const mlir::Value hidden = layers.add(layer, 0, layer.argument(0), 0);
  layer.finish({{"qkv", layer.copy(attention[0].rows)},
                {"o", layer.copy(attention[1].rows)},
                {"gate_up", layer.copy(mlp[0].rows)},
                {"down", layer.copy(mlp[1].rows)},
                {"after", hidden}});
  forward.erase();
  const LoadedPrograms loaded(compileProgram(module), kContext);
  const std::vector<ProgramInfo> &programs = loaded.manifest.programs;
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_EQ(programs[0].inputs[0].name, "hidden");
  EXPECT_EQ(programs[0].inputs[1].name, "positions");

  const ReferenceModel reference = readStories();
  for (size_t number : {size_t{0}, size_t{4}}) {
    MemoryFile image;
    packImage(
        module,
        bindLayer(model.checkpoint->weights(), static_cast<int64_t>(number)),
        image);
    const Mapping weights = mapImage(image);
    Engine engine(loaded.manifest, weights.data(), loaded.entries, pool);
    const SequenceId sequence = engine.state().open();
    ReferenceSequence expected(reference);
    // Two calls, the second one over the cache of the first.
    for (const auto &[begin, end] : {std::pair(0, 11), std::pair(11, 14)}) {
      std::vector<Token> batch;
      Values rows;
      for (int position = begin; position < end; ++position) {
        batch.push_back({-1, sequence, position, false});
        const Values x = reference.embedding.output(7 * position + 300);
        rows.insert(rows.end(), x.begin(), x.end());
      }
      const InputRows given = {"hidden", rows};
      engine.call("layer", batch, {&given, 1});
      for (size_t i = 0; i < batch.size(); ++i) {
        LayerInputs inputs;
        const auto row =
            rows.begin() + static_cast<int64_t>(i) * kStoriesHidden;
        const Values after =
            expected.runLayer(number, {row, row + kStoriesHidden},
                              begin + static_cast<int32_t>(i), &inputs);
        expectRow(engine, "layer", "qkv", i, inputs.qkv);
        expectRow(engine, "layer", "o", i, inputs.o);
        expectRow(engine, "layer", "gate_up", i, inputs.gateUp);
        expectRow(engine, "layer", "down", i, inputs.down);
        expectRow(engine, "layer", "after", i, after);
      }
    }
    const Token token = {-1, sequence, 14, false};
    EXPECT_THROW(engine.call("layer", {&token, 1}), Error);
    EXPECT_THROW(engine.call("other", {&token, 1}), Error);
  }
}

TEST_F(ProgramTest, HalfOfTheLayersAndADraftLayerRunBesideForward) {
  mlir::ModuleOp module = *model.module;
  const Layers layers(forward);
  // `forward` leaves the normed rows of all tokens, too.
  auto wanted = *forward.getOps<WantedTokensOp>().begin();
  auto norm = llvm::cast<RmsNormOp>(*wanted->user_begin());
  auto head = *forward.getOps<LmHeadOp>().begin();
  mlir::OpBuilder builder(wanted);
  mlir::IRMapping overAll;
  overAll.map(wanted.getResult(), wanted.getInput());
  mlir::Value normed = builder.clone(*norm, overAll)->getResult(0);
  normed.setType(wanted.getInput().getType());
  mlir::Operation *end = forward.front().getTerminator();
  end->insertOperands(1, normed);
  forward.setType(builder.getFunctionType(forward.getArgumentTypes(),
                                          end->getOperandTypes()));
  forward.setResultAttr(1, kNameAttr, builder.getStringAttr("normed"));

  ProgramBuilder half(module, "half", forward, {integers, integers});
  setLimits(half.program());
  half.map(forward.getArgument(0), half.argument(0));
  half.map(forward.getArgument(1), half.argument(1));
  mlir::Value x = half.copy(layers.sublayers.front().input);
  for (int64_t i = 0; i < kStoriesLayers / 2; ++i)
    x = layers.add(half, i, x, i);
  half.map(wanted.getInput(), x);
  half.finish({{"", half.copy(head.getResult())}, {"hidden", x}});

  ProgramBuilder draft(module, "draft", forward,
                       {activationsType(&context, kStoriesHidden), integers});
  setLimits(draft.program());
  draft.nameArgument(0, "normed", "forward");
  draft.map(forward.getArgument(1), draft.argument(1));
  draft.finish({{"hidden", layers.add(draft, kStoriesLayers - 1,
                                      draft.argument(0), kStoriesLayers)}});

  const LoadedPrograms loaded(compileProgram(module), kContext);
  const std::vector<ProgramInfo> &programs = loaded.manifest.programs;
  ASSERT_EQ(programs.size(), 3u);
  EXPECT_EQ(programs[0].caches[0].layers,
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(programs[1].caches[0].layers, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(programs[2].caches[0].layers, std::vector<int64_t>{kStoriesLayers});
  MemoryFile image;
  packImage(module, model.checkpoint->weights(), image);
  const Mapping weights = mapImage(image);
  Engine engine(loaded.manifest, weights.data(), loaded.entries, pool,
                {.sequences = 2});
  const SequenceId sequence = engine.state().open();

  ReferenceModel reference = readStories();
  const ReferenceModel draftLayer = {reference.kvHeads,
                                     reference.headDim,
                                     reference.eps,
                                     reference.cache,
                                     reference.frequencies,
                                     reference.finalNorm,
                                     {},
                                     {},
                                     {reference.layers.back()}};
  ReferenceSequence whole(reference), halves(reference), drafted(draftLayer);
  const auto idAt = [](int64_t position) {
    return static_cast<int32_t>(31 * position % 4000 + 5);
  };
  std::vector<Values> hidden;
  // Runs the tokens [begin, end) through `forward`.
  const auto runForward = [&](int64_t begin, int64_t stop) {
    std::vector<Token> batch;
    for (int64_t position = begin; position < stop; ++position) {
      batch.push_back(
          {idAt(position), sequence, position, position == stop - 1});
      hidden.push_back(whole.next(idAt(position)));
    }
    engine.forward(batch, [&](size_t, std::span<float> row) {
      EXPECT_EQ(Values(row.begin(), row.end()),
                reference.logits(hidden.back()));
    });
    for (size_t i = 0; i < batch.size(); ++i)
      expectRow(engine, "forward", "normed", i,
                hidden[static_cast<size_t>(begin) + i]);
  };
  // Runs the tokens [begin, end), whose rows lie in place from `first` on.
  const auto runDraft = [&](int64_t begin, int64_t stop, int64_t first,
                            SequenceId in) {
    std::vector<Token> batch;
    for (int64_t position = begin; position < stop; ++position)
      batch.push_back({-1, in, position, false});
    engine.call("draft", batch, {}, first);
    for (int64_t position = begin; position < stop; ++position)
      expectRow(engine, "draft", "hidden",
                static_cast<size_t>(position - begin),
                drafted.runLayer(0, hidden[static_cast<size_t>(position)],
                                 static_cast<int32_t>(position)));
  };
  runForward(0, 9);
  runDraft(0, 8, 0, sequence);
  runDraft(8, 9, 8, sequence);
  runForward(9, 10);
  runDraft(9, 10, 0, sequence);
  runForward(10, 12);
  // `half` has the positions of `forward`, and `draft` lags behind, in a branch
  // too.
  SequenceState &state = engine.state();
  const SequenceId child = state.branch(sequence, 11);
  EXPECT_EQ(state.length(sequence, 1), 12);
  EXPECT_EQ(state.length(sequence, 2), 10);
  EXPECT_EQ(state.length(child), 11);
  EXPECT_EQ(state.length(child, 2), 10);
  const Token late = {-1, child, 11, false};
  EXPECT_THROW(engine.call("draft", {&late, 1}), Error);
  runDraft(10, 11, 0, child);
  EXPECT_EQ(state.length(child, 2), 11);
  state.close(child);

  // `halves` runs two more tokens than `forward`, over the caches of `forward`.
  std::vector<Token> batch;
  std::vector<Values> after;
  for (int64_t position = 0; position < 14; ++position) {
    Values y = reference.embedding.output(idAt(position));
    for (size_t i = 0; i < kStoriesLayers / 2; ++i)
      y = halves.runLayer(i, y, static_cast<int32_t>(position));
    after.push_back(y);
    if (position >= 12)
      batch.push_back({idAt(position), sequence, position, true});
  }
  engine.call("half", batch);
  EXPECT_EQ(state.length(sequence), 12);
  EXPECT_EQ(state.length(sequence, 1), 14);
  for (size_t i = 0; i < 2; ++i) {
    const Values &row = after[12 + i];
    expectRow(engine, "half", "hidden", i, row);
    Values last(row.size());
    numerics::rmsNormF32(row.data(), reference.finalNorm.data(), kStoriesHidden,
                         reference.eps, last.data());
    expectRow(engine, "half", "logits", i, reference.logits(last));
  }
  // `forward` goes on as if they had not run.
  state.truncate(sequence, 12);
  EXPECT_EQ(state.length(sequence, 1), 12);
  runForward(12, 14);
  EXPECT_EQ(engine.state().length(sequence), 14);
}

TEST_F(ProgramTest, ArgumentsNeedAPlace) {
  ProgramBuilder layer(*model.module, "layer", forward,
                       {activationsType(&context, kStoriesHidden)});
  setLimits(layer.program());
  layer.nameArgument(0, "hidden", "forward");
  layer.finish({});
  try {
    compileProgram(*model.module);
    FAIL();
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(), "argument 0 of program @layer reads \"hidden\" "
                               "of @forward, which has no such result");
  }
}
