//===- GraphBuilderTest.cpp - From checkpoints to graphs ------------------===//

#include "PrefixedCheckpoint.h"
#include "TinyModel.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Verifier.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

/// The name of an op.
static std::string nameOf(mlir::Operation *op) {
  return llvm::cast<mlir::NameLoc>(op->getLoc()).getName().str();
}

/// The ops of `forward` as "<op> <name>(<operands>)". The name of an op is its
/// location; an operand is the name of the op that defines it.
static std::vector<std::string> opsOf(mlir::ModuleOp module) {
  const auto operandOf = [&](mlir::Value value) {
    if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(value))
      return "%" + std::to_string(argument.getArgNumber());
    const unsigned number = llvm::cast<mlir::OpResult>(value).getResultNumber();
    return nameOf(value.getDefiningOp()) +
           (number ? "#" + std::to_string(number) : "");
  };
  std::vector<std::string> ops;
  for (mlir::Operation &op :
       module.lookupSymbol<mlir::func::FuncOp>(kForwardName).getOps()) {
    std::string operands;
    for (mlir::Value operand : op.getOperands())
      operands += (operands.empty() ? "" : ", ") + operandOf(operand);
    ops.push_back(op.getName().stripDialect().str() + " " + nameOf(&op) + "(" +
                  operands + ")");
  }
  return ops;
}

TEST(GraphBuilder, BuildsQwen2) {
  TempDir dir;
  tinyQwen2().write(dir);
  mlir::MLIRContext context;
  const ImportedModel model = importCheckpoint(dir.path(), context);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*model.module)));
  EXPECT_EQ(
      opsOf(*model.module),
      (std::vector<std::string>{
          "embedding embed_tokens(%0)",
          "rope_table rotary_emb(%1)",
          "rms_norm layers.0.input_layernorm(embed_tokens)",
          "linear layers.0.self_attn.q_proj(layers.0.input_layernorm)",
          "add_bias layers.0.self_attn.q_proj.bias(layers.0.self_attn.q_proj)",
          "linear layers.0.self_attn.k_proj(layers.0.input_layernorm)",
          "add_bias layers.0.self_attn.k_proj.bias(layers.0.self_attn.k_proj)",
          "linear layers.0.self_attn.v_proj(layers.0.input_layernorm)",
          "add_bias layers.0.self_attn.v_proj.bias(layers.0.self_attn.v_proj)",
          "rope layers.0.self_attn.q_rope(layers.0.self_attn.q_proj.bias, "
          "rotary_emb, rotary_emb#1)",
          "rope layers.0.self_attn.k_rope(layers.0.self_attn.k_proj.bias, "
          "rotary_emb, rotary_emb#1)",
          "append layers.0.self_attn.append(layers.0.self_attn.k_rope, "
          "layers.0.self_attn.v_proj.bias)",
          "attention layers.0.self_attn(layers.0.self_attn.q_rope)",
          "linear layers.0.self_attn.o_proj(layers.0.self_attn)",
          "add layers.0.self_attn.residual(embed_tokens, "
          "layers.0.self_attn.o_proj)",
          "rms_norm "
          "layers.0.post_attention_layernorm(layers.0.self_attn.residual)",
          "linear layers.0.mlp.gate_proj(layers.0.post_attention_layernorm)",
          "linear layers.0.mlp.up_proj(layers.0.post_attention_layernorm)",
          "swiglu layers.0.mlp.act_fn(layers.0.mlp.gate_proj, "
          "layers.0.mlp.up_proj)",
          "linear layers.0.mlp.down_proj(layers.0.mlp.act_fn)",
          "add layers.0.mlp.residual(layers.0.self_attn.residual, "
          "layers.0.mlp.down_proj)",
          "wanted_tokens wanted_tokens(layers.0.mlp.residual)",
          "rms_norm norm(wanted_tokens)",
          "lm_head lm_head(norm)",
          "return return(lm_head)"}));
  EXPECT_TRUE(model.unusedTensors.empty());
  EXPECT_EQ(model.checkpoint->config().heads, 6);
}

TEST(GraphBuilder, BuildsQwen3) {
  TempDir dir;
  tinyQwen3().write(dir);
  mlir::MLIRContext context;
  const ImportedModel model = importCheckpoint(dir.path(), context);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*model.module)));
  const std::vector<std::string> ops = opsOf(*model.module);
  EXPECT_EQ(std::vector(ops.begin() + 2, ops.begin() + 12),
            (std::vector<std::string>{
                "rms_norm layers.0.input_layernorm(embed_tokens)",
                "linear layers.0.self_attn.q_proj(layers.0.input_layernorm)",
                "linear layers.0.self_attn.k_proj(layers.0.input_layernorm)",
                "linear layers.0.self_attn.v_proj(layers.0.input_layernorm)",
                "rms_norm layers.0.self_attn.q_norm(layers.0.self_attn.q_proj)",
                "rms_norm layers.0.self_attn.k_norm(layers.0.self_attn.k_proj)",
                "rope layers.0.self_attn.q_rope(layers.0.self_attn.q_norm, "
                "rotary_emb, rotary_emb#1)",
                "rope layers.0.self_attn.k_rope(layers.0.self_attn.k_norm, "
                "rotary_emb, rotary_emb#1)",
                "append layers.0.self_attn.append(layers.0.self_attn.k_rope, "
                "layers.0.self_attn.v_proj)",
                "attention layers.0.self_attn(layers.0.self_attn.q_rope)"}));
}

TEST(GraphBuilder, NamesTheSources) {
  TempDir dir;
  tinyQwen3().write(dir);
  mlir::MLIRContext context;
  const ImportedModel model = importCheckpoint(dir.path(), context);
  int count = 0;
  for (WeightOp weight : model.module.get().getOps<WeightOp>()) {
    if (const auto frequencies =
            llvm::dyn_cast<FrequenciesAttr>(weight.getSource())) {
      EXPECT_EQ(frequencies.getTheta().convertToDouble(), 10000);
      EXPECT_EQ(weight.getType().getShape(), llvm::ArrayRef<int64_t>(8));
      continue;
    }
    const StoredTensor *stored =
        model.checkpoint->tensors().find(weight.getSymName().str());
    ASSERT_TRUE(stored);
    EXPECT_EQ(llvm::cast<SourceAttr>(weight.getSource()).getName().getValue(),
              weight.getSymName());
    EXPECT_EQ(weight.getType().getShape(), llvm::ArrayRef(stored->shape));
    EXPECT_EQ(weight.getType().getElementType().isBF16(),
              stored->type == StoredType::BF16);
    ++count;
  }
  EXPECT_EQ(count, 14);
}

TEST(GraphBuilder, StatesTheFacts) {
  TempDir dir;
  tinyQwen3().write(dir);
  mlir::MLIRContext context;
  const ImportedModel model = importCheckpoint(dir.path(), context);
  mlir::func::FuncOp forward = programsOf(*model.module).front();
  std::string facts;
  llvm::raw_string_ostream(facts) << forward->getAttr(kModelAttr);
  EXPECT_EQ(facts,
            "{architecture = \"Qwen3ForCausalLM\", head_dim = 16 "
            ": i64, heads = 6 : i64, hidden_size = 64 : i64, intermediate_size "
            "= 96 : i64, kv_heads = 2 : i64, layers = 1 : i64, max_context = "
            "128 : i64, rms_norm_eps = 5.000000e-01 : f64, rope_theta = "
            "1.000000e+04 : f64, tied = false, vocab_size = 200 : i64}");
  EXPECT_EQ(forward.getSymName(), kForwardName);
  EXPECT_EQ(limitOf(forward, kAllName), 512);
  EXPECT_EQ(limitOf(forward, kWantedName), 64);
  model.module.get().walk([](mlir::Operation *op) {
    if (auto norm = llvm::dyn_cast<RmsNormOp>(op)) {
      EXPECT_EQ(norm.getEps().convertToDouble(), 0.5);
      EXPECT_EQ(norm.getHeadDim().has_value(),
                norm.getWeight().contains("self_attn"));
    } else if (auto attention = llvm::dyn_cast<AttentionOp>(op)) {
      EXPECT_EQ(attention.getLayer(), 0u);
      EXPECT_EQ(attention.getHeads(), 6u);
      EXPECT_EQ(attention.getKvHeads(), 2u);
    }
  });
}

/// The values of a weight.
static std::vector<float> valuesOf(const WeightSources &weights,
                                   const std::string &name) {
  const WeightSource &source = *weights.find(name)->source;
  std::vector<float> values(static_cast<size_t>(source.shape().values()));
  source.read(0, source.shape().outputs(), values.data());
  return values;
}

TEST(GraphBuilder, ASecondTextModelHasItsOwnNames) {
  // Divided queries and linear attention, and experts.
  for (const char *name : {"qwen3_5-text-f32", "qwen3-moe-f32"}) {
    TempDir dir;
    writeTwice(std::string(QWEN_SOURCE_DIR "/test/Inputs/checkpoints/") + name,
               dir, [](const std::string &tensor) { return tensor; });
    mlir::MLIRContext context;
    const ImportedModel model =
        importCheckpoint(dir.path(), context, kTwoTextModels);
    EXPECT_TRUE(mlir::succeeded(mlir::verify(*model.module)));
    EXPECT_TRUE(model.unusedTensors.empty()) << name;
    const WeightSources &weights = model.checkpoint->weights();
    const mlir::SymbolTable symbols(*model.module);
    int count = 0;
    for (WeightOp weight : model.module.get().getOps<WeightOp>()) {
      const std::string own = weight.getSymName().str();
      if (own.starts_with("draft."))
        continue;
      auto draft = symbols.lookup<WeightOp>("draft." + own);
      ASSERT_TRUE(draft) << own;
      EXPECT_EQ(draft.getType(), weight.getType());
      ++count;
      auto source = llvm::dyn_cast<SourceAttr>(draft.getSource());
      if (!source)
        continue;
      EXPECT_EQ(source.getName().getValue(), "draft." + own);
      EXPECT_EQ(valuesOf(weights, "draft." + own), valuesOf(weights, own))
          << own;
    }
    EXPECT_GT(count, 20) << name;
    auto programs = programsOf(*model.module);
    ASSERT_EQ(programs.size(), 2u);
    for (auto [op, draft] :
         llvm::zip_equal(programs[0].getOps(), programs[1].getOps()))
      EXPECT_EQ(nameOf(&draft), "draft." + nameOf(&op));
  }
}

TEST(OpKinds, EveryOpThatRunsHasOne) {
  mlir::MLIRContext context;
  context.loadDialect<QwenDialect>();
  int count = 0;
  for (mlir::OperationName op : context.getRegisteredOperationsByDialect(
           QwenDialect::getDialectNamespace()))
    if (op.hasInterface<ForwardOp>()) {
      EXPECT_TRUE(parseOpKind(op.stripDialect())) << op.stripDialect().str();
      ++count;
    }
  EXPECT_GT(count, 10);
}

/// Anonymous memory of this process in KiB.
static int64_t anonymousMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:"))
      return std::stoll(line.substr(8));
  return 0;
}

TEST(GraphBuilder, CopiesNoWeights) {
  TinyModel model = tinyQwen3();
  model.config["vocab_size"] = 1 << 24;
  model.tensors["model.embed_tokens.weight"] = {{1 << 24, 64}};
  model.tensors["lm_head.weight"] = {{1 << 24, 64}, "BF16"};
  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  const int64_t before = anonymousMemory();
  const ImportedModel imported = importCheckpoint(dir.path(), context);
  EXPECT_EQ(imported.checkpoint->tensors().find("lm_head.weight")->bytes.size(),
            uint64_t{1} << 31);
  EXPECT_GT(before, 0);
  EXPECT_LT(anonymousMemory() - before, 32 * 1024);
}

TEST(GraphBuilder, ImportsEachKind) {
  for (const char *name :
       {"qwen2-mha-f16", "qwen2-tied-f32", "qwen2-untied-bf16-sharded",
        "qwen3-tied-bf16", "qwen3-untied-f32"}) {
    mlir::MLIRContext context;
    const ImportedModel model = importCheckpoint(
        std::filesystem::path(QWEN_SOURCE_DIR "/test/Inputs/checkpoints") /
            name,
        context);
    EXPECT_TRUE(mlir::succeeded(mlir::verify(*model.module)));
    EXPECT_TRUE(model.unusedTensors.empty()) << name;
    EXPECT_EQ(model.checkpoint->generation().eosTokenIds,
              std::vector<int32_t>{1});
  }
}
