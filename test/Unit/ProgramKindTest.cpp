//===- ProgramKindTest.cpp - A program that its kind reads ----------------===//
//
// A checkpoint of a text model and, under "draft.", a second one with a
// configuration of its own, whose q, k and v share a tensor and whose widths
// are no multiples of 32. Its kind is of this test.
//
//===----------------------------------------------------------------------===//

#include "TinyModel.h"

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Weights/Sources.h"

#include "mlir/IR/Verifier.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kOwnHidden = 128, kOwnQuery = 64, kOwnKey = 32,
                  kOwnInner = 50, kOwnPadded = 64;
constexpr ModelScope kOwnScope = {"draft.model.", "draft."};
} // namespace

static std::optional<ModelConfig> configOfOwnKind(const Checkpoint &from) {
  const std::string path = (from.path() / "config.json").string();
  const std::optional<nlohmann::json> keys = readJsonObject(path);
  const JsonSource source = JsonSource::ofFile(path);
  const auto own = JsonValue(*keys, source).findValue("draft_config");
  if (!own)
    return std::nullopt;
  ModelConfig config = from.config();
  config.hiddenSize = own->at("hidden_size").integer(1, kMaxModelWidth);
  config.heads = own->at("heads").integer(1, kMaxModelCount);
  config.kvHeads = own->at("kv_heads").integer(1, kMaxModelCount);
  config.intermediateSize =
      alignTo(own->at("intermediate_size").integer(1, kMaxModelWidth), kGroup);
  return config;
}

static void divideOwnKind(Checkpoint &checkpoint, const ModelScope &scope,
                          const ModelConfig &config) {
  const std::string layer = scope.layer(0), attention = layer + "self_attn.";
  const int64_t query = config.heads * config.headDim,
                key = config.kvHeads * config.headDim;
  const WeightSources::Entry fused = checkpoint.weight(
      attention + "qkv.weight", {{query + 2 * key, config.hiddenSize}});
  const NamedOutputs projections[] = {{attention + "q_proj.weight", query},
                                      {attention + "k_proj.weight", key},
                                      {attention + "v_proj.weight", key}};
  addProjections(checkpoint.weights(), fused, projections);
  for (const char *name : {"gate_proj", "up_proj"})
    padWeight(checkpoint, layer + "mlp." + name + ".weight",
              {{kOwnInner, config.hiddenSize}});
  padWeight(checkpoint, layer + "mlp.down_proj.weight",
            {{config.hiddenSize, kOwnInner}});
}

/// The text model, and the program of the kind above.
static constexpr ModelProgram kWithOwnKind[] = {
    kModelPrograms[0],
    {"draft", kOwnScope, buildTextModel, configOfOwnKind, divideOwnKind}};

/// A checkpoint that has both.
static TinyModel makeBoth() {
  TinyModel model = tinyQwen3();
  model.config["draft_config"] = {{"hidden_size", kOwnHidden},
                                  {"heads", 4},
                                  {"kv_heads", 2},
                                  {"intermediate_size", kOwnInner}};
  const std::string layer = kOwnScope.layer(0), norm = "norm.weight",
                    attention = layer + "self_attn.";
  auto &tensors = model.tensors;
  tensors[kOwnScope.embedding()] = {{200, kOwnHidden}};
  tensors[kOwnScope.weight(norm)] = {{kOwnHidden}};
  tensors[kOwnScope.beside("lm_head.weight")] = {{200, kOwnHidden}};
  tensors[layer + "input_layernorm.weight"] = {{kOwnHidden}};
  tensors[layer + "post_attention_layernorm.weight"] = {{kOwnHidden}};
  tensors[attention + "qkv.weight"] = {{kOwnQuery + 2 * kOwnKey, kOwnHidden}};
  tensors[attention + "o_proj.weight"] = {{kOwnHidden, kOwnQuery}};
  tensors[attention + "q_norm.weight"] = {{16}};
  tensors[attention + "k_norm.weight"] = {{16}};
  tensors[layer + "mlp.gate_proj.weight"] = {{kOwnInner, kOwnHidden}};
  tensors[layer + "mlp.up_proj.weight"] = {{kOwnInner, kOwnHidden}};
  tensors[layer + "mlp.down_proj.weight"] = {{kOwnHidden, kOwnInner}};
  return model;
}

TEST(ProgramKind, ReadsItsConfigurationAndItsTensors) {
  TempDir dir;
  makeBoth().write(dir);
  mlir::MLIRContext context;
  const ImportedModel model =
      importCheckpoint(dir.path(), context, kWithOwnKind);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*model.module)));
  EXPECT_TRUE(model.unusedTensors.empty());
  const auto programs = programsOf(*model.module);
  ASSERT_EQ(programs.size(), 2u);
  const auto widthIn = [](mlir::func::FuncOp program) {
    return program->getAttrOfType<mlir::DictionaryAttr>(kModelAttr)
        .getAs<mlir::IntegerAttr>("hidden_size")
        .getInt();
  };
  EXPECT_EQ(widthIn(programs[0]), 64);
  EXPECT_EQ(widthIn(programs[1]), kOwnHidden);

  const mlir::SymbolTable symbols(*model.module);
  const auto shapeOf = [&](const std::string &path) {
    return llvm::cast<mlir::ShapedType>(
               symbols.lookup<WeightOp>(kOwnScope.layer(0) + path + ".weight")
                   .getType())
        .getShape()
        .vec();
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shapeOf("self_attn.q_proj"), (Shape{kOwnQuery, kOwnHidden}));
  EXPECT_EQ(shapeOf("self_attn.v_proj"), (Shape{kOwnKey, kOwnHidden}));
  EXPECT_EQ(shapeOf("mlp.gate_proj"), (Shape{kOwnPadded, kOwnHidden}));
  EXPECT_EQ(shapeOf("mlp.down_proj"), (Shape{kOwnHidden, kOwnPadded}));
}

TEST(ProgramKind, MayHaveNoProgram) {
  TinyModel model = makeBoth();
  model.config.erase("draft_config");
  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  const ImportedModel found = importCheckpoint(
      dir.path(), context, kWithOwnKind, {.ignoredTensors = {"^draft"}});
  EXPECT_EQ(programsOf(*found.module).size(), 1u);
}

TEST(ProgramKind, NamesTheTensorOfAnotherShape) {
  TinyModel model = makeBoth();
  const std::string name = kOwnScope.layer(0) + "mlp.up_proj.weight";
  model.tensors[name] = {{kOwnInner + 1, kOwnHidden}};
  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  const std::string message =
      messageOf([&] { importCheckpoint(dir.path(), context, kWithOwnKind); });
  EXPECT_NE(message.find(name), message.npos) << message;
  EXPECT_NE(message.find("has shape [51, 128] when [50, 128] is needed"),
            message.npos)
      << message;
}
