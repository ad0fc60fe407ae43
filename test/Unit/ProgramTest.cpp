//===- ProgramTest.cpp - Programs of parts of a model ---------------------===//
//
// Programs that a caller makes of the graph of models/stories and compiles in
// f32: one layer, the first half of the layers, and a layer that reads rows of
// `forward` as a draft head does. All rows must have the bits of
// ReferenceModel.
//
//===----------------------------------------------------------------------===//

#include "qwen/Compiler/Compiler.h"

#include "ReferenceModel.h"
#include "Safetensors.h"

#include "artifact/ElfMapping.h"
#include "engine/Engine.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/MemoryFile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kHidden = 256, kLayers = 6, kVocab = 4096, kTokens = 16;
const std::string kCheckpoint = QWEN_SOURCE_DIR "/models/stories";

//===----------------------------------------------------------------------===//
// The model in plain C++
//===----------------------------------------------------------------------===//

ReferenceModel readStories() {
  const Safetensors file(kCheckpoint + "/model.safetensors");
  const auto vector = [&](const std::string &name) {
    Values values;
    for (uint16_t bits : file.get<uint16_t>("model." + name + ".weight"))
      values.push_back(bf16ToF32(bits));
    return values;
  };
  const auto matrix = [&](const std::string &name, int64_t n, int64_t k) {
    return Matrix(WeightFormat::F32, n, k, vector(name));
  };
  ReferenceModel model = {.kvHeads = 2,
                          .headDim = 64,
                          .eps = 1e-6f,
                          .cache = KvFormat::F32,
                          .frequencies = {},
                          .finalNorm = vector("norm"),
                          .embedding = matrix("embed_tokens", kVocab, kHidden),
                          .head = {},
                          .layers = {}};
  for (int64_t i = 0; i < 32; ++i)
    model.frequencies.push_back(numerics::ropeInvFreq(10000, i, 64));
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string path = "layers." + std::to_string(i);
    ReferenceLayer &layer = model.layers.emplace_back();
    layer.inputNorm = vector(path + ".input_layernorm");
    layer.postNorm = vector(path + ".post_attention_layernorm");
    layer.qNorm = vector(path + ".self_attn.q_norm");
    layer.kNorm = vector(path + ".self_attn.k_norm");
    layer.q = matrix(path + ".self_attn.q_proj", 384, kHidden);
    layer.k = matrix(path + ".self_attn.k_proj", 128, kHidden);
    layer.v = matrix(path + ".self_attn.v_proj", 128, kHidden);
    layer.o = matrix(path + ".self_attn.o_proj", kHidden, 384);
    layer.gate = matrix(path + ".mlp.gate_proj", 768, kHidden);
    layer.up = matrix(path + ".mlp.up_proj", 768, kHidden);
    layer.down = matrix(path + ".mlp.down_proj", kHidden, 768);
  }
  return model;
}

//===----------------------------------------------------------------------===//
// Programs of parts of the graph
//===----------------------------------------------------------------------===//

mlir::Type integersType(mlir::MLIRContext *context) {
  return mlir::RankedTensorType::get({mlir::ShapedType::kDynamic},
                                     mlir::IntegerType::get(context, 32));
}
mlir::Type rowsType(mlir::MLIRContext *context) {
  return mlir::RankedTensorType::get({mlir::ShapedType::kDynamic, kHidden},
                                     mlir::Float32Type::get(context));
}

void setLimits(mlir::func::FuncOp program) {
  mlir::Builder builder(program);
  program->setAttr(kMaxTokensAttr, builder.getI64IntegerAttr(kTokens));
  program->setAttr(kMaxRowsAttr, builder.getI64IntegerAttr(2));
}

/// A program made of copies of the ops of `forward`.
class NewProgram {
public:
  NewProgram(mlir::func::FuncOp forward, llvm::StringRef name,
             mlir::TypeRange arguments)
      : forward(forward), builder(forward->getContext()) {
    builder.setInsertionPointToEnd(forward->getBlock());
    program =
        mlir::func::FuncOp::create(builder, forward.getLoc(), name,
                                   builder.getFunctionType(arguments, {}));
    setLimits(program);
    builder.setInsertionPointToEnd(program.addEntryBlock());
  }

  mlir::Value argument(unsigned i) { return program.getArgument(i); }
  void nameArgument(unsigned i, llvm::StringRef name,
                    llvm::StringRef from = "") {
    program.setArgAttr(i, kNameAttr, builder.getStringAttr(name));
    if (!from.empty())
      program.setArgAttr(
          i, kFromAttr,
          mlir::FlatSymbolRefAttr::get(builder.getContext(), from));
  }

  /// A copy of `op` over `operand`, with the rotations of this program.
  mlir::Operation *copy(mlir::Operation *op, mlir::Value operand = {}) {
    if (operand)
      copies.map(op->getOperand(0), operand);
    return builder.clone(*op, copies);
  }
  template <typename OpType> OpType first() {
    return *forward.getOps<OpType>().begin();
  }

  /// Copies a layer over `x`, with the caches of layer `cache`.
  mlir::Value addLayer(int64_t number, mlir::Value x, int64_t cache) {
    const std::string norm =
        "model.layers." + std::to_string(number) + ".input_layernorm.weight";
    mlir::Operation *op = nullptr;
    for (auto each : forward.getOps<RmsNormOp>())
      if (each.getWeight() == norm)
        op = each;
    copies.map(op->getOperand(0), x);
    mlir::Operation *last = nullptr;
    for (int adds = 0; adds < 2; op = op->getNextNode()) {
      last = copy(op);
      adds += llvm::isa<AddOp>(op);
      if (auto attention = llvm::dyn_cast<AttentionOp>(last)) {
        attention.setLayer(static_cast<uint64_t>(cache));
        values["o"] = attention.getResult();
      } else if (auto normOp = llvm::dyn_cast<RmsNormOp>(last)) {
        if (!normOp.getHeadDim())
          values[adds == 0 ? "qkv" : "gate_up"] = normOp.getResult();
      } else if (auto product = llvm::dyn_cast<SwiGluOp>(last)) {
        values["down"] = product.getResult();
      }
    }
    return last->getResult(0);
  }

  /// Ends the program with these results; those without a name are logits.
  void finish(llvm::ArrayRef<std::pair<llvm::StringRef, mlir::Value>> results) {
    llvm::SmallVector<mlir::Value> operands(llvm::make_second_range(results));
    mlir::func::ReturnOp::create(builder, forward.getLoc(), operands);
    program.setType(builder.getFunctionType(program.getArgumentTypes(),
                                            mlir::ValueRange(operands)));
    for (auto [i, result] : llvm::enumerate(results))
      if (!result.first.empty())
        program.setResultAttr(static_cast<unsigned>(i), kNameAttr,
                              builder.getStringAttr(result.first));
  }

  /// What the products of the last layer read.
  std::map<std::string, mlir::Value> values;

private:
  mlir::func::FuncOp forward, program;
  mlir::OpBuilder builder;
  mlir::IRMapping copies;
};

//===----------------------------------------------------------------------===//
// Running them
//===----------------------------------------------------------------------===//

/// Code in this process, with the facts that an engine needs.
struct Loaded {
  explicit Loaded(const ProgramCode &code)
      : elf(load(code)), manifest(parsePrograms(code.manifest, "the code")) {
    manifest.model.name = "stories";
    manifest.model.vocabSize = kVocab;
    manifest.model.hiddenSize = kHidden;
    manifest.model.context = 128;
    for (const ProgramInfo &program : manifest.programs)
      entries.push_back(elf.function<ForwardFn>(program.name + "." +
                                                manifest.targets.front().name));
  }

  static ElfMapping load(const ProgramCode &code) {
    const MemoryFile file;
    file.write(code.elf);
    return ElfMapping(file.path());
  }

  const ElfMapping elf;
  Manifest manifest;
  std::vector<ForwardFn *> entries;
};

Mapping map(const MemoryFile &image) {
  const File file(image.path());
  return Mapping::file(file, 0, file.size(), kWeightsAlign);
}

class ProgramTest : public testing::Test {
protected:
  ProgramTest() {
    loadDialects(context);
    model = importCheckpoint(kCheckpoint, context);
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
  NewProgram layer(forward, "layer",
                   {rowsType(&context), integersType(&context)});
  layer.nameArgument(0, "hidden");
  layer.copy(layer.first<RopeTableOp>(), layer.argument(1));
  const mlir::Value hidden = layer.addLayer(0, layer.argument(0), 0);
  layer.finish({{"qkv", layer.values["qkv"]},
                {"o", layer.values["o"]},
                {"gate_up", layer.values["gate_up"]},
                {"down", layer.values["down"]},
                {"after", hidden}});
  forward.erase();
  const Loaded loaded(compileProgram(module));
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
    const Mapping weights = map(image);
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
        const auto row = rows.begin() + static_cast<int64_t>(i) * kHidden;
        const Values after =
            expected.runLayer(number, {row, row + kHidden},
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
  // `forward` leaves the normed rows of all tokens, too.
  auto wanted = *forward.getOps<WantedRowsOp>().begin();
  auto norm = llvm::cast<RmsNormOp>(*wanted->user_begin());
  auto head = *forward.getOps<LmHeadOp>().begin();
  mlir::OpBuilder builder(wanted);
  mlir::IRMapping overAll;
  overAll.map(wanted.getResult(), wanted.getInput());
  mlir::Value normed = builder.clone(*norm, overAll)->getResult(0);
  mlir::Operation *end = forward.front().getTerminator();
  end->insertOperands(1, normed);
  forward.setType(builder.getFunctionType(forward.getArgumentTypes(),
                                          end->getOperandTypes()));
  forward.setResultAttr(1, kNameAttr, builder.getStringAttr("normed"));

  const mlir::Type integers = integersType(&context), rows = rowsType(&context);
  NewProgram half(forward, "half", {integers, integers});
  mlir::Value x =
      half.copy(half.first<EmbeddingOp>(), half.argument(0))->getResult(0);
  half.copy(half.first<RopeTableOp>(), half.argument(1));
  for (int64_t i = 0; i < kLayers / 2; ++i)
    x = half.addLayer(i, x, i);
  mlir::Value last = half.copy(wanted, x)->getResult(0);
  last = half.copy(norm, last)->getResult(0);
  half.finish({{"", half.copy(head, last)->getResult(0)}, {"hidden", x}});

  NewProgram draft(forward, "draft", {rows, integers});
  draft.nameArgument(0, "normed", "forward");
  draft.copy(draft.first<RopeTableOp>(), draft.argument(1));
  draft.finish(
      {{"hidden", draft.addLayer(kLayers - 1, draft.argument(0), kLayers)}});

  const Loaded loaded(compileProgram(module));
  const std::vector<ProgramInfo> &programs = loaded.manifest.programs;
  ASSERT_EQ(programs.size(), 3u);
  EXPECT_EQ(programs[0].caches[0].layers,
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(programs[1].caches[0].layers, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(programs[2].caches[0].layers, std::vector<int64_t>{kLayers});
  MemoryFile image;
  packImage(module, model.checkpoint->weights(), image);
  const Mapping weights = map(image);
  Engine engine(loaded.manifest, weights.data(), loaded.entries, pool);
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
  const auto runDraft = [&](int64_t begin, int64_t stop, int64_t first) {
    std::vector<Token> batch;
    for (int64_t position = begin; position < stop; ++position)
      batch.push_back({-1, sequence, position, false});
    engine.call("draft", batch, {}, first);
    for (int64_t position = begin; position < stop; ++position)
      expectRow(engine, "draft", "hidden",
                static_cast<size_t>(position - begin),
                drafted.runLayer(0, hidden[static_cast<size_t>(position)],
                                 static_cast<int32_t>(position)));
  };
  runForward(0, 9);
  runDraft(0, 8, 0);
  runDraft(8, 9, 8);
  runForward(9, 10);
  runDraft(9, 10, 0);
  runForward(10, 12);

  // `halves` runs two more tokens than `forward`, over the caches of `forward`.
  std::vector<Token> batch;
  std::vector<Values> after;
  for (int64_t position = 0; position < 14; ++position) {
    Values y = reference.embedding.output(idAt(position));
    for (size_t i = 0; i < kLayers / 2; ++i)
      y = halves.runLayer(i, y, static_cast<int32_t>(position));
    after.push_back(y);
    if (position >= 12)
      batch.push_back({idAt(position), sequence, position, true});
  }
  engine.call("half", batch);
  for (size_t i = 0; i < 2; ++i) {
    const Values &row = after[12 + i];
    expectRow(engine, "half", "hidden", i, row);
    Values last(row.size());
    numerics::rmsNormF32(row.data(), reference.finalNorm.data(), kHidden,
                         reference.eps, last.data());
    expectRow(engine, "half", "logits", i, reference.logits(last));
  }
  // `forward` goes on as if they had not run.
  engine.state().truncate(sequence, 12);
  runForward(12, 14);
  EXPECT_EQ(engine.state().length(sequence), 14);
}

TEST_F(ProgramTest, ArgumentsNeedAPlace) {
  NewProgram layer(forward, "layer", {rowsType(&context)});
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
