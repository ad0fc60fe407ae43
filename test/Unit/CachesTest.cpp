//===- CachesTest.cpp - A compiled model with several caches --------------===//
//
// Compiles a model whose layers differ in the size of heads and in the format
// of keys and values, with an op of this test that has fixed state, and
// compares its logits with the plain C++ model.
//
//===----------------------------------------------------------------------===//

#include "ReferenceModel.h"
#include "Safetensors.h"
#include "TempDir.h"
#include "engine/Engine.h"

#include "Places.h"

#include "qwen/CodeGen/Artifact/ArtifactWriter.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Lower/CacheList.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/TemporaryFile.h"
#include "qwen/Transforms/Passes.h"
#include "qwen/Weights/Sources.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

//===----------------------------------------------------------------------===//
// An op with fixed state
//===----------------------------------------------------------------------===//

namespace {
/// `test.echo`: the state of a sequence, f32 [n], becomes x + state / 2 with
/// each token; that is the result.
class EchoOp : public mlir::Op<EchoOp, mlir::OpTrait::OneOperand,
                               mlir::OpTrait::OneResult, ForwardOp::Trait> {
public:
  using Op::Op;
  static llvm::StringRef getOperationName() { return "test.echo"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() {
    static llvm::StringRef names[] = {"kernels", "layer", "packed", "plan"};
    return names;
  }

  llvm::SmallVector<KernelUse> getKernelUses() { return {}; }
  WorkUnit getWorkUnit() { return WorkUnit::TokenHead; }
  std::optional<CacheUse> getCacheUse() {
    return CacheUse{CacheKind::Fixed,
                    "echo",
                    (*this)->getAttrOfType<mlir::IntegerAttr>("layer").getInt(),
                    widthOf(getOperand()) * 4,
                    /*reads=*/true,
                    /*writes=*/true};
  }

  /// A call of `echo`, which this test declares.
  DriverCall getDriverCall(const CallFacts &facts) {
    mlir::Builder builder(getContext());
    const auto number = [&](const char *name, int64_t value) {
      return mlir::NamedAttribute(builder.getStringAttr(name),
                                  builder.getI64IntegerAttr(value));
    };
    const BufferAttr in = bufferOf(getOperand()),
                     out = bufferOf((*this)->getResult(0));
    return {"echo",
            "testEcho",
            {number("in", in.getOffset()), number("in.stride", in.getStride()),
             number("out", out.getOffset()),
             number("out.stride", out.getStride()),
             number("n", widthOf(getOperand())),
             number("layer", facts.cacheOf(*this).layer)},
            {}};
  }

  mlir::ArrayAttr getKernelsAttr() { return array("kernels"); }
  void setKernelsAttr(mlir::ArrayAttr value) {
    (*this)->setAttr("kernels", value);
  }
  mlir::ArrayAttr getPackedAttr() { return array("packed"); }
  void setPackedAttr(mlir::ArrayAttr value) {
    (*this)->setAttr("packed", value);
  }
  PlanAttr getPlanAttr() { return (*this)->getAttrOfType<PlanAttr>("plan"); }
  void setPlanAttr(PlanAttr value) { (*this)->setAttr("plan", value); }

private:
  mlir::ArrayAttr array(const char *name) {
    return (*this)->getAttrOfType<mlir::ArrayAttr>(name);
  }
};

class TestDialect : public mlir::Dialect {
public:
  explicit TestDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                mlir::TypeID::get<TestDialect>()) {
    addOperations<EchoOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "test"; }
};

/// The cache of EchoOp.
int64_t echoCache, echoStride;

/// What differs from one EchoOp to another one.
struct EchoArguments {
  FloatPlace in, out;
  Length n;
  CacheOffset layer;
};

/// The driver function of EchoOp.
void echo(const Context *context, int32_t thread, const EchoArguments &of) {
  if (thread != 0)
    return;
  for (int64_t token = 0; token < context->tokens(); ++token) {
    float *state = driver::stateAt(context, token, CacheId(echoCache),
                                   Bytes(echoStride), Tokens(0), of.layer);
    const float *x = driver::floatsAt(context, of.in).of(token);
    for (int64_t i = 0; i < of.n; ++i)
      driver::floatsAt(context, of.out).of(token)[i] = state[i] =
          x[i] + state[i] / 2;
  }
}

/// Defines the driver function that qwen-lower calls for EchoOp: a call of
/// `echo` in this process.
void defineEcho(mlir::ModuleOp module) {
  mlir::MLIRContext *context = module.getContext();
  auto builder =
      mlir::ImplicitLocOpBuilder::atBlockEnd(module.getLoc(), module.getBody());
  const mlir::Type pointer = mlir::LLVM::LLVMPointerType::get(context);
  const mlir::Type inputs[] = {pointer, builder.getI32Type(), pointer, pointer};
  auto function = mlir::func::FuncOp::create(
      builder, "testEcho", builder.getFunctionType(inputs, {}));
  function.setPrivate();
  builder.setInsertionPointToStart(function.addEntryBlock());
  mlir::Value address = mlir::arith::ConstantIntOp::create(
      builder, reinterpret_cast<int64_t>(&echo), 64);
  llvm::SmallVector<mlir::Value> operands = {
      mlir::LLVM::IntToPtrOp::create(builder, pointer, address)};
  llvm::append_range(operands, function.getArguments().drop_back());
  mlir::LLVM::CallOp::create(
      builder,
      mlir::LLVM::LLVMFunctionType::get(mlir::LLVM::LLVMVoidType::get(context),
                                        llvm::ArrayRef(inputs).drop_back()),
      operands);
  mlir::func::ReturnOp::create(builder);
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

constexpr int64_t kHalved = 1;

mlir::RankedTensorType withSize(mlir::Type type, unsigned dimension,
                                int64_t size) {
  auto shaped = llvm::cast<mlir::RankedTensorType>(type);
  llvm::SmallVector<int64_t> shape(shaped.getShape());
  shape[dimension] = size;
  return shaped.clone(shape);
}

/// Gives the layer heads of half the size: twice as many query heads, and as
/// many KV heads, from the first outputs of k_proj and v_proj.
void halveHeads(AttentionOp attention, WeightSources &sources) {
  const mlir::SymbolTable symbols(attention->getParentOfType<mlir::ModuleOp>());
  const int64_t headDim = attention.getHeadDim() / 2;
  const auto shrink = [&](mlir::Attribute symbol, int64_t size) {
    auto weight = symbols.lookup<WeightOp>(
        llvm::cast<mlir::FlatSymbolRefAttr>(symbol).getValue());
    weight.setType(withSize(weight.getType(), 0, size));
    const std::string name = weight.getSymName().str();
    const WeightSources::Entry whole = *sources.find(name);
    sources.set(name, {makeOutputs(whole.source, outputsFrom(0, size)), {}});
  };
  AppendOp append = attention.getAppend();
  const mlir::Value keys = append.getKeys();
  auto table =
      keys.getDefiningOp<RopeOp>().getCos().getDefiningOp<RopeTableOp>();
  auto weight = symbols.lookup<WeightOp>(table.getFrequencies());
  mlir::OpBuilder builder(weight);
  auto frequencies = llvm::cast<WeightOp>(builder.clone(*weight));
  frequencies.setSymName("rope.halved");
  frequencies.setType(withSize(weight.getType(), 0, headDim / 2));
  builder.setInsertionPoint(table);
  auto halved = llvm::cast<RopeTableOp>(builder.clone(*table));
  halved.setFrequencies("rope.halved");
  for (mlir::Value result : halved->getResults())
    result.setType(withSize(result.getType(), 1, headDim / 2));

  const int64_t kvSize = widthOf(keys) / 2;
  for (mlir::Value value :
       {attention.getQueries(), append.getKeys(), append.getValues()}) {
    const bool isQuery = value == attention.getQueries();
    mlir::Operation *op = value.getDefiningOp();
    for (;; op = op->getOperand(0).getDefiningOp()) {
      if (!isQuery)
        op->getResult(0).setType(
            withSize(op->getResult(0).getType(), 1, kvSize));
      if (llvm::isa<LinearOp>(op))
        break;
      if (auto rope = llvm::dyn_cast<RopeOp>(op)) {
        rope.getCosMutable().assign(halved.getCos());
        rope.getSinMutable().assign(halved.getSin());
      } else if (auto norm = llvm::dyn_cast<RmsNormOp>(op)) {
        norm.setHeadDim(headDim);
        shrink(norm.getWeightAttr(), headDim);
      }
    }
    if (!isQuery)
      shrink(llvm::cast<LinearOp>(op).getWeights()[0], kvSize);
  }
  attention.setHeads(2 * attention.getHeads());
}

/// Puts an EchoOp before each layer.
void addEchoes(mlir::ModuleOp module) {
  auto forward = module.lookupSymbol<mlir::func::FuncOp>(kForwardName);
  const llvm::SmallVector<AttentionOp> layers(forward.getOps<AttentionOp>());
  for (AttentionOp attention : layers) {
    mlir::Operation *op = attention;
    while (!llvm::isa<LinearOp>(op))
      op = op->getOperand(0).getDefiningOp();
    auto norm = op->getOperand(0).getDefiningOp<RmsNormOp>();
    mlir::Value x = norm.getInput();
    mlir::OpBuilder builder(norm);
    mlir::OperationState state(norm.getLoc(), EchoOp::getOperationName());
    state.addOperands(x);
    state.addTypes(x.getType());
    state.addAttribute("layer", attention.getLayerAttr());
    mlir::Operation *added = builder.create(state);
    x.replaceAllUsesExcept(added->getResult(0), added);
  }
}

const std::string kCheckpoint =
    QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3-tied-bf16";

/// Compiles the model for this machine, with weights of f32.
void compile(const std::string &path) {
  mlir::DialectRegistry registry;
  registry.insert<QwenDialect, TestDialect>();
  registerCodeGenDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  ImportedModel model = importCheckpoint(kCheckpoint, context);
  mlir::ModuleOp module = *model.module;
  for (AttentionOp attention :
       module.lookupSymbol<mlir::func::FuncOp>(kForwardName)
           .getOps<AttentionOp>())
    if (attention.getLayer() == kHalved)
      halveHeads(attention, model.checkpoint->weights());
  addEchoes(module);
  const Target target = resolveTarget("native");
  module->setAttr(kTargetFeaturesAttr,
                  FeaturesAttr::get(&context, target.features));
  defineEcho(module);
  mlir::PassManager manager(&context);
  buildPipeline(manager, {.weights = WeightFormat::F32,
                          .kv = KvFormat::F16,
                          .kvLayers = {{kHalved, KvFormat::F32}}});
  manager.addPass(createLower());
  manager.addPass(createVerifyStage({Stage::Calls}));
  ASSERT_TRUE(mlir::succeeded(manager.run(module)));

  std::vector<TargetCode> targets(1);
  targets[0].target = target;
  targets[0].module = std::move(model.module);
  const std::optional<TokenizerImport> noTokenizer;
  TemporaryFile output(path);
  writeArtifact(
      output, targets, {"caches", 200, model.checkpoint.get(), &noTokenizer},
      [](uint64_t, uint64_t) {}, [](const std::string &) {});
}

/// The same model in plain C++.
class PlainModel {
public:
  PlainModel();

  /// The logits of all tokens.
  std::vector<Values> logits(const std::vector<int32_t> &ids) const;

private:
  struct Layer {
    int64_t headDim;
    Values inputNorm, postNorm, qNorm, kNorm;
    Matrix q, k, v, o, gate, up, down;
  };
  static constexpr int64_t kHidden = 96, kQueries = 5 * 64, kFfn = 224;
  static constexpr float kEps = 1e-6f;

  /// The first values of a tensor, which is bf16.
  Values vector(const std::string &name, int64_t size) const {
    Values values;
    for (uint16_t bits : file.get<uint16_t>("model." + name + ".weight"))
      values.push_back(bf16ToF32(bits));
    values.resize(static_cast<size_t>(size));
    return values;
  }
  Matrix matrix(const std::string &name, int64_t n, int64_t k) const {
    return {WeightFormat::F32, n, k, vector(name, n * k)};
  }
  static Values normed(const Values &x, const Values &w) {
    Values y(x.size());
    numerics::rmsNormF32(x.data(), w.data(), std::ssize(x), kEps, y.data());
    return y;
  }
  static Rotation rotationAt(int32_t position, int64_t headDim);

  const Safetensors file;
  std::vector<Layer> layers;
};

PlainModel::PlainModel() : file(kCheckpoint + "/model.safetensors") {
  for (int64_t i = 0; i < 2; ++i) {
    const std::string path = "layers." + std::to_string(i) + ".",
                      heads = path + "self_attn.", mlp = path + "mlp.";
    const int64_t headDim = i == kHalved ? 32 : 64;
    layers.push_back({headDim, vector(path + "input_layernorm", kHidden),
                      vector(path + "post_attention_layernorm", kHidden),
                      vector(heads + "q_norm", headDim),
                      vector(heads + "k_norm", headDim),
                      matrix(heads + "q_proj", kQueries, kHidden),
                      matrix(heads + "k_proj", headDim, kHidden),
                      matrix(heads + "v_proj", headDim, kHidden),
                      matrix(heads + "o_proj", kHidden, kQueries),
                      matrix(mlp + "gate_proj", kFfn, kHidden),
                      matrix(mlp + "up_proj", kFfn, kHidden),
                      matrix(mlp + "down_proj", kHidden, kFfn)});
  }
}

Rotation PlainModel::rotationAt(int32_t position, int64_t headDim) {
  Values frequencies;
  for (int64_t i = 0; i < headDim / 2; ++i)
    frequencies.push_back(numerics::ropeInvFreq(1e6, i, headDim));
  Rotation rotation = {headDim, kEps, Values(frequencies.size()),
                       Values(frequencies.size())};
  numerics::ropeTable(position, frequencies.data(), headDim / 2,
                      rotation.cos.data(), rotation.sin.data());
  return rotation;
}

std::vector<Values> PlainModel::logits(const std::vector<int32_t> &ids) const {
  const Matrix embedding = matrix("embed_tokens", 320, kHidden);
  const Values finalNorm = vector("norm", kHidden);
  std::vector<Values> echoes(layers.size(), Values(kHidden));
  std::vector<AttentionCache> caches;
  for (size_t i = 0; i < layers.size(); ++i)
    caches.emplace_back(i == kHalved ? KvFormat::F32 : KvFormat::F16,
                        /*kvHeads=*/1, layers[i].headDim);
  std::vector<Values> rows;
  for (int32_t id : ids) {
    Values x = embedding.output(id);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer &layer = layers[i];
      for (size_t j = 0; j < x.size(); ++j)
        x[j] = echoes[i][j] = x[j] + echoes[i][j] / 2;
      const Rotation rotation =
          rotationAt(static_cast<int32_t>(rows.size()), layer.headDim);
      const Values h = normed(x, layer.inputNorm);
      caches[i].append(rotation.rotated(layer.k.times(h), layer.kNorm),
                       layer.v.times(h));
      x = layer.o.times(
          caches[i].attend(rotation.rotated(layer.q.times(h), layer.qNorm)), {},
          x);
      const Values g = normed(x, layer.postNorm);
      const Values gate = layer.gate.times(g), up = layer.up.times(g);
      Values y(gate.size());
      numerics::swiGluF32(gate.data(), up.data(), kFfn, y.data());
      x = layer.down.times(y, {}, x);
    }
    rows.push_back(embedding.times(normed(x, finalNorm)));
  }
  return rows;
}
} // namespace

TEST(Caches, LayersWithOtherHeadsAndFixedStateGiveTheBitsOfPlainCpp) {
  const TempDir folder;
  const std::string path = folder.string() + "/caches.qwen";
  compile(path);
  const Artifact artifact(path);
  const std::vector<CacheInfo> &caches = artifact.manifest().caches;
  // 2 * 64 values in f16 have the bytes of 2 * 32 in f32. The fixed state of 96
  // floats.
  ASSERT_EQ(caches.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const bool fixed = caches[i].kind == CacheKind::Fixed;
    EXPECT_EQ(caches[i].name, fixed ? "echo" : "kv");
    EXPECT_EQ(caches[i].layers, fixed ? (std::vector<int64_t>{0, 1})
                                : i == kHalved + 1 ? std::vector<int64_t>{1}
                                                   : std::vector<int64_t>{0});
    EXPECT_EQ(caches[i].format.has_value(), !fixed);
    if (fixed) {
      echoCache = static_cast<int64_t>(i);
      echoStride = caches[i].stride();
    }
  }
  EXPECT_EQ(artifact.manifest().kv.tokenBytes, 256 + 256);
  EXPECT_EQ(describeKvFormats(caches), "f32 in 1 layer, f16 in 1 layer");
  EXPECT_EQ(echoStride, 2 * 384);

  // Two sequences of 70 tokens together; the second leaves the first after 40.
  std::vector<std::vector<int32_t>> ids(2);
  for (int32_t i = 0; i < 70; ++i) {
    ids[0].push_back(i * 37 % 320);
    ids[1].push_back(i < 40 ? ids[0].back() : i * 11 % 320);
  }
  const PlainModel plain;
  const std::vector<Values> rows[] = {plain.logits(ids[0]),
                                      plain.logits(ids[1])};
  ThreadPool pool(3);
  Engine engine(artifact, pool,
                {.sequences = 2, .snapshotBytes = 2 * 384, .callTokens = 7});
  SequenceState &state = engine.state();
  const auto run = [&](int64_t end) {
    std::vector<Token> batch;
    for (int64_t position = 0; position < end; ++position)
      for (SequenceId s = 0; s < 2; ++s)
        if (state.isOpen(s) && position >= state.length(s))
          batch.push_back(
              {ids[static_cast<size_t>(s)][static_cast<size_t>(position)], s,
               position, true});
    engine.forward(batch, [&](size_t index, std::span<float> row) {
      const Token &token = batch[index];
      const Values &want =
          rows[token.sequence][static_cast<size_t>(token.position)];
      ASSERT_EQ(row.size(), want.size());
      ASSERT_EQ(memcmp(row.data(), want.data(), row.size_bytes()), 0)
          << "sequence " << token.sequence << ", position " << token.position;
    });
  };
  state.open();
  run(30);
  state.snapshot(0);
  run(40);
  state.branch(0, 40);
  run(70);
  // Back to the snapshot, and from the beginning.
  state.truncate(0, 30);
  state.close(1);
  state.open();
  run(70);
}
