//===- GraphBuilderTest.cpp - From checkpoints to graphs ------------------===//

#include "qwen/Import/Models/Import.h"

#include "GgufBytes.h"
#include "TempDir.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Weights/Forms.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

namespace {
struct Tensor {
  std::vector<int64_t> shape;
  const char *dtype = "F32";
};

/// A model of one layer, to be changed before it is written.
struct Model {
  json config;
  std::map<std::string, Tensor> tensors;

  /// Writes both files. The bytes of the tensors are a hole in the file.
  void write(const TempDir &dir) const {
    dir.write("config.json", config.dump());
    json header = json::object();
    uint64_t end = 0;
    for (const auto &[name, tensor] : tensors) {
      const uint64_t begin = end;
      uint64_t bytes = std::string_view(tensor.dtype) == "F32" ? 4 : 2;
      for (int64_t size : tensor.shape)
        bytes *= static_cast<uint64_t>(size);
      end += bytes;
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {begin, end}}};
    }
    const std::string text = header.dump();
    std::string length;
    for (int i = 0; i < 8; ++i)
      length += static_cast<char>(text.size() >> (8 * i));
    dir.write("model.safetensors", length + text);
    std::filesystem::resize_file(dir.path() / "model.safetensors",
                                 8 + text.size() + end);
  }
};
} // namespace

static Model makeModel(const char *architecture) {
  Model model;
  model.config = {{"architectures", {architecture}},
                  {"head_dim", 16},
                  {"hidden_act", "silu"},
                  {"hidden_size", 64},
                  {"intermediate_size", 96},
                  {"max_position_embeddings", 128},
                  {"num_attention_heads", 6},
                  {"num_hidden_layers", 1},
                  {"num_key_value_heads", 2},
                  {"rms_norm_eps", 0.5},
                  {"rope_theta", 10000.0},
                  {"tie_word_embeddings", false},
                  {"vocab_size", 200}};
  const std::string layer = "model.layers.0.";
  model.tensors = {{"model.embed_tokens.weight", {{200, 64}, "BF16"}},
                   {layer + "input_layernorm.weight", {{64}}},
                   {layer + "self_attn.q_proj.weight", {{96, 64}, "F16"}},
                   {layer + "self_attn.k_proj.weight", {{32, 64}}},
                   {layer + "self_attn.v_proj.weight", {{32, 64}}},
                   {layer + "self_attn.o_proj.weight", {{64, 96}}},
                   {layer + "post_attention_layernorm.weight", {{64}}},
                   {layer + "mlp.gate_proj.weight", {{96, 64}}},
                   {layer + "mlp.up_proj.weight", {{96, 64}}},
                   {layer + "mlp.down_proj.weight", {{64, 96}}},
                   {"model.norm.weight", {{64}}},
                   {"lm_head.weight", {{200, 64}}}};
  if (architecture == infoOf(Architecture::Qwen2).name) {
    model.tensors[layer + "self_attn.q_proj.bias"] = {{96}};
    model.tensors[layer + "self_attn.k_proj.bias"] = {{32}};
    model.tensors[layer + "self_attn.v_proj.bias"] = {{32}};
  } else {
    model.tensors[layer + "self_attn.q_norm.weight"] = {{16}};
    model.tensors[layer + "self_attn.k_norm.weight"] = {{16}};
  }
  return model;
}
static Model qwen2() { return makeModel("Qwen2ForCausalLM"); }
static Model qwen3() { return makeModel("Qwen3ForCausalLM"); }

/// The ops of `forward` as "<op> <name>(<operands>)". The name of an op is its
/// location; an operand is the name of the op that defines it.
static std::vector<std::string> opsOf(mlir::ModuleOp module) {
  const auto nameOf = [](mlir::Operation *op) {
    return llvm::cast<mlir::NameLoc>(op->getLoc()).getName().str();
  };
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

/// The error about `model`, with "DIR" in place of the folder.
static std::string errorOf(const Model &model) {
  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  std::string message =
      messageOf([&] { importCheckpoint(dir.path(), context); });
  if (const size_t at = message.find(dir.string()); at != message.npos)
    message.replace(at, dir.string().size(), "DIR");
  return message;
}

TEST(GraphBuilder, BuildsQwen2) {
  TempDir dir;
  qwen2().write(dir);
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
  qwen3().write(dir);
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
  qwen3().write(dir);
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
  qwen3().write(dir);
  mlir::MLIRContext context;
  const ImportedModel model = importCheckpoint(dir.path(), context);
  std::string facts;
  llvm::raw_string_ostream(facts)
      << model.module.get()->getDiscardableAttrDictionary();
  EXPECT_EQ(facts,
            "{qwen.model = {architecture = \"Qwen3ForCausalLM\", head_dim = 16 "
            ": i64, heads = 6 : i64, hidden_size = 64 : i64, intermediate_size "
            "= 96 : i64, kv_heads = 2 : i64, layers = 1 : i64, max_position = "
            "128 : i64, rms_norm_eps = 5.000000e-01 : f64, rope_theta = "
            "1.000000e+04 : f64, tied = false, vocab_size = 200 : i64}, "
            "qwen.stage = \"graph\"}");
  mlir::func::FuncOp forward = programsOf(*model.module).front();
  EXPECT_EQ(forward.getSymName(), kForwardName);
  for (const auto &[name, limit] :
       {std::pair(kMaxTokensAttr, 512), std::pair(kMaxRowsAttr, 64)})
    EXPECT_EQ(forward->getAttrOfType<mlir::IntegerAttr>(name).getInt(), limit);
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

using ByKind = std::map<std::string, std::vector<std::string>, std::less<>>;

TEST(GraphBuilder, ListsUnusedTensors) {
  Model model = qwen3();
  model.config["tie_word_embeddings"] = true;
  model.tensors["lm_head.weight"].dtype = "BF16";
  const std::string frequencies =
      "model.layers.0.self_attn.rotary_emb.inv_freq";
  const std::string next = "model.layers.1.input_layernorm.weight";
  model.tensors[frequencies] = {{8}};
  model.tensors[next] = {{64}, "I16"};
  model.tensors["model.visual.a"] = model.tensors["model.visual.b"] = {{1}};
  model.tensors["mtp.norm.weight"] = {{64}};
  model.tensors["v_head.summary.weight"] = {{64}};
  const std::string scale = "model.layers.0.self_attn.k_scale";
  model.tensors[scale] = {{1}};
  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  const ImportedModel imported =
      importCheckpoint(dir.path(), context, {"layers.1", "norm"});
  EXPECT_EQ(imported.unusedTensors,
            (ByKind{{"draft head", {"mtp.norm.weight"}},
                    {"ignored", {next}},
                    {"lm_head of a tied model", {"lm_head.weight"}},
                    {"rotary buffers", {frequencies}},
                    {"scales of a quantized KV cache", {scale}},
                    {"training state", {"v_head.summary.weight"}},
                    {"vision", {"model.visual.a", "model.visual.b"}}}));
  imported.module.get().walk([](LmHeadOp head) {
    EXPECT_EQ(head.getWeight(), "model.embed_tokens.weight");
  });
}

TEST(GraphBuilder, RefusesUnknownTensors) {
  const std::string layer = "model.layers.0.";
  for (const std::string &name :
       {layer + "self_attn.o_proj.bias", layer + "mlp.down_proj.bias",
        layer + "self_attn.q_proj.bias", layer + "mlp.experts.0.w1.weight",
        layer + "self_attn.q_proj.lora_A.weight",
        std::string("model.layers.1.mlp.up_proj.weight"),
        std::string("lm_head.bias"), std::string("odd")}) {
    Model model = qwen3();
    model.tensors[name] = {{64}};
    EXPECT_EQ(
        errorOf(model),
        "DIR/model.safetensors: tensor \"" + name +
            "\" is not a tensor of Qwen3ForCausalLM; --ignore-tensors REGEX "
            "compiles the model without them");
  }
  Model model = qwen2();
  model.tensors["a"] = model.tensors["b"] = model.tensors["c"] = {{1}};
  EXPECT_EQ(
      errorOf(model),
      "DIR/model.safetensors: tensor \"a\" (and 2 more) is not a tensor of "
      "Qwen2ForCausalLM; --ignore-tensors REGEX "
      "compiles the model without them");

  TempDir dir;
  model.write(dir);
  mlir::MLIRContext context;
  const auto errorWith = [&](const std::vector<std::string> &ignored) {
    return messageOf([&] { importCheckpoint(dir.path(), context, ignored); });
  };
  EXPECT_EQ(errorWith({"a|b", "^c$"}), "");
  EXPECT_NE(errorWith({"b"}).find("tensor \"a\" (and 1 more) is not a"),
            std::string::npos);
  EXPECT_EQ(errorWith({"^.$", "d"}), "--ignore-tensors \"d\" matches no tensor "
                                     "that the model does not use");
  EXPECT_EQ(errorWith({"("}), "--ignore-tensors \"(\" is not a regular "
                              "expression: missing ): (");
}

TEST(GraphBuilder, RefusesUnknownTensorsOfGguf) {
  GgufBytes file;
  const std::string a = "qwen3.";
  file.keys = {string("general.architecture", "qwen3"),
               u32(a + "block_count", 1),
               u32(a + "context_length", 256),
               u32(a + "embedding_length", 64),
               u32(a + "feed_forward_length", 96),
               u32(a + "attention.head_count", 2),
               u32(a + "attention.head_count_kv", 2),
               u32(a + "attention.key_length", 32),
               f32(a + "attention.layer_norm_rms_epsilon", 1e-6F),
               f32(a + "rope.freq_base", 1e6F)};
  const std::string layer = "blk.0.";
  file.tensors = {{"token_embd.weight", {64, 40}},
                  {"output_norm.weight", {64}},
                  {layer + "attn_norm.weight", {64}},
                  {layer + "attn_q_norm.weight", {32}},
                  {layer + "attn_k_norm.weight", {32}},
                  {layer + "ffn_norm.weight", {64}},
                  {layer + "ffn_gate.weight", {64, 96}},
                  {layer + "ffn_up.weight", {64, 96}},
                  {layer + "ffn_down.weight", {96, 64}}};
  for (const char *name : {"attn_q", "attn_k", "attn_v", "attn_output"})
    file.tensors.push_back({layer + name + ".weight", {64, 64}});
  const TempDir dir;
  const auto errorWith = [&](const std::string &name, uint64_t outputs = 64) {
    GgufBytes more = file;
    more.tensors.push_back({name, {outputs}});
    dir.write("m.gguf", more.make());
    mlir::MLIRContext context;
    return messageOf([&] { importCheckpoint(dir.path() / "m.gguf", context); });
  };
  for (const auto &[name, outputs] :
       {std::pair("rope_freqs.weight", 16), std::pair("output.bias", 40),
        std::pair("blk.0.attn_q.bias", 64),
        std::pair("blk.0.attn_qkv.bias", 192),
        std::pair("blk.0.attn_output.bias", 64),
        std::pair("blk.0.ffn_down.bias", 64),
        std::pair("blk.0.attn_q.scale", 1),
        std::pair("blk.1.attn_norm.weight", 64)}) {
    const std::string message = errorWith(name, static_cast<uint64_t>(outputs));
    EXPECT_TRUE(message.find("/m.gguf: tensor \"" + std::string(name) +
                             "\" is not a tensor of Qwen3ForCausalLM") !=
                message.npos)
        << message;
  }
  EXPECT_EQ(errorWith("blk.1.nextn.eh_proj.weight"), "");
}

TEST(GraphBuilder, RefusesQuantizedTensors) {
  for (const char *key :
       {"quantization_config", "compression_config", "quantization"}) {
    Model model = qwen3();
    model.config[key] = {{"quant_method", "hqq"}};
    model.tensors["model.visual.position_ids"] = {{1}, "I16"};
    TempDir dir;
    model.write(dir);
    mlir::MLIRContext context;
    EXPECT_EQ(importCheckpoint(dir.path(), context).checkpoint->config().notes,
              std::vector<std::string>{dir.string() + "/config.json: " + key +
                                       " has no effect: all tensors are "
                                       "floats"});

    // Scales beside floats are unknown tensors.
    model.tensors["model.layers.0.mlp.up_proj.weight_scale"] = {{1}};
    EXPECT_NE(errorOf(model).find("up_proj.weight_scale\" is not a tensor of"),
              std::string::npos);
    model.tensors["model.layers.0.mlp.up_proj.weight"].dtype = "I16";
    EXPECT_EQ(errorOf(model),
              std::string("DIR/config.json: ") + key +
                  ".quant_method \"hqq\" is not supported; the weights of the "
                  "original model, in F32, F16 or BF16, or quant_method " +
                  formMethodList() +
                  ", are needed: tensor "
                  "\"model.layers.0.mlp.up_proj.weight\" has dtype I16");
  }
}

TEST(GraphBuilder, TakesPublishedNames) {
  for (const char *prefix : {"model.language_model.", "language_model.model.",
                             "language_model.", ""}) {
    Model model = qwen3();
    for (const auto &[name, tensor] : qwen3().tensors)
      if (name.starts_with("model.")) {
        model.tensors.erase(name);
        model.tensors[prefix + name.substr(6)] = tensor;
      }
    EXPECT_EQ(errorOf(model), "") << prefix;
    const std::string up = std::string(prefix) + "layers.0.mlp.up_proj.weight";
    model.tensors.erase(up);
    EXPECT_EQ(errorOf(model),
              "DIR has no tensor \"" + up +
                  "\", which its configuration demands with shape [96, 64]");
  }
}

namespace {
/// What became of the head of a model.
struct Head {
  bool isTied;
  OutputKind kind;
  std::string weight;
  std::vector<std::string> notes;
};
} // namespace

/// `change` changes the files of `model`.
static Head headOf(const Model &model,
                   llvm::function_ref<void(const TempDir &)> change) {
  TempDir dir;
  model.write(dir);
  change(dir);
  mlir::MLIRContext context;
  const ImportedModel imported = importCheckpoint(dir.path(), context);
  const ModelConfig &config = imported.checkpoint->config();
  Head head = {config.tied, config.output.kind, "",
               imported.checkpoint->config().notes};
  imported.module.get().walk(
      [&](LmHeadOp op) { head.weight = op.getWeight().str(); });
  return head;
}

TEST(GraphBuilder, TheTensorsSayWhetherAModelIsTied) {
  constexpr char kEmbedding[] = "model.embed_tokens.weight";
  const auto keep = [](const TempDir &) {};
  for (bool isTied : {false, true}) {
    Model model = qwen3();
    model.config["tie_word_embeddings"] = isTied;
    model.tensors["lm_head.weight"].dtype = "BF16";
    const Head same = headOf(model, keep);
    EXPECT_TRUE(same.isTied);
    EXPECT_EQ(same.weight, kEmbedding);
    EXPECT_TRUE(same.notes.empty());

    // lm_head.weight comes first in the file.
    const Head other = headOf(model, [](const TempDir &dir) {
      std::fstream file(dir.path() / "model.safetensors",
                        std::ios::in | std::ios::out | std::ios::binary);
      char size[8];
      file.read(size, sizeof size);
      file.seekp(8 + static_cast<unsigned char>(size[0]) +
                 256 * static_cast<unsigned char>(size[1]));
      file.put(1);
    });
    EXPECT_FALSE(other.isTied);
    EXPECT_EQ(other.weight, "lm_head.weight");
    EXPECT_EQ(other.notes,
              isTied ? std::vector<std::string>{"lm_head.weight is not the "
                                                "embedding, so the model "
                                                "is not tied, although "
                                                "tie_word_embeddings is true"}
                     : std::vector<std::string>());
  }
  Model model = qwen3();
  model.tensors.erase("lm_head.weight");
  const Head none = headOf(model, keep);
  EXPECT_FALSE(none.isTied);
  EXPECT_EQ(none.kind, OutputKind::None);
  EXPECT_EQ(none.weight, kEmbedding);
  ASSERT_EQ(none.notes.size(), 1u);
  EXPECT_TRUE(none.notes[0].starts_with("no logits: ")) << none.notes[0];
  model.config["tie_word_embeddings"] = true;
  EXPECT_EQ(headOf(model, keep).kind, OutputKind::Logits);
}

TEST(GraphBuilder, RefusesMissingTensors) {
  for (Model model : {qwen2(), qwen3()})
    for (const auto &[name, tensor] : std::map(model.tensors)) {
      // Without it, the model gives no logits.
      if (name == "lm_head.weight")
        continue;
      std::string shape;
      for (int64_t size : tensor.shape)
        shape += (shape.empty() ? "" : ", ") + std::to_string(size);
      model.tensors.erase(name);
      EXPECT_EQ(errorOf(model),
                "DIR has no tensor \"" + name +
                    "\", which its configuration demands with shape [" + shape +
                    "]");
      model.tensors[name] = tensor;
    }
}

TEST(GraphBuilder, RefusesOtherShapes) {
  Model model = qwen2();
  model.tensors["model.layers.0.self_attn.q_proj.weight"].shape = {64, 96};
  EXPECT_EQ(errorOf(model),
            "DIR/model.safetensors: tensor "
            "\"model.layers.0.self_attn.q_proj.weight\" has shape [64, 96] "
            "when [96, 64] is needed");
  model = qwen2();
  model.tensors["model.layers.0.self_attn.v_proj.bias"].shape = {1, 32};
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.layers.0.self_attn.v_proj.bias\" has "
                            "shape [1, 32] when [32] is needed");
  model = qwen3();
  model.config["vocab_size"] = 201;
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.embed_tokens.weight\" has shape [200, 64] "
                            "when [201, 64] is needed");
  model = qwen3();
  model.tensors["model.layers.0.self_attn.k_norm.weight"].shape = {};
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.layers.0.self_attn.k_norm.weight\" has "
                            "shape [] when [16] is needed");
}

TEST(GraphBuilder, RefusesOtherTypes) {
  Model model = qwen3();
  model.tensors["model.norm.weight"].dtype = "I16";
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.norm.weight\" has dtype I16 when F32, F16 "
                            "or BF16 is needed");
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
  Model model = qwen3();
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
