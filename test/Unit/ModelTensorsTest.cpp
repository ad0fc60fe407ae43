//===- ModelTensorsTest.cpp - The tensors that a model takes --------------===//

#include "GgufBytes.h"
#include "PrefixedCheckpoint.h"
#include "TinyModel.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Weights/Forms.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

using ByKind = std::map<std::string, std::vector<std::string>, std::less<>>;

TEST(ModelTensors, ListsUnusedTensors) {
  TinyModel model = tinyQwen3();
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
      importCheckpoint(dir.path(), context, kModelPrograms,
                       {.ignoredTensors = {"layers.1", "norm"}});
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

TEST(ModelTensors, RefusesUnknownTensors) {
  const std::string layer = "model.layers.0.";
  for (const std::string &name :
       {layer + "self_attn.o_proj.bias", layer + "mlp.down_proj.bias",
        layer + "self_attn.q_proj.bias", layer + "mlp.experts.0.w1.weight",
        layer + "self_attn.q_proj.lora_A.weight",
        std::string("model.layers.1.mlp.up_proj.weight"),
        std::string("lm_head.bias"), std::string("odd")}) {
    TinyModel model = tinyQwen3();
    model.tensors[name] = {{64}};
    EXPECT_EQ(
        errorOf(model),
        "DIR/model.safetensors: tensor \"" + name +
            "\" is not a tensor of Qwen3ForCausalLM; --ignore-tensors REGEX "
            "compiles the model without them");
  }
  TinyModel model = tinyQwen2();
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
    return messageOf([&] {
      importCheckpoint(dir.path(), context, kModelPrograms,
                       {.ignoredTensors = ignored});
    });
  };
  EXPECT_EQ(errorWith({"a|b", "^c$"}), "");
  EXPECT_NE(errorWith({"b"}).find("tensor \"a\" (and 1 more) is not a"),
            std::string::npos);
  EXPECT_EQ(errorWith({"^.$", "d"}), "--ignore-tensors \"d\" matches no tensor "
                                     "that the model does not use");
  EXPECT_EQ(errorWith({"("}),
            "--ignore-tensors has the regular expression \"(\", which RE2 does "
            "not read (missing ): (); look-around and back-references are not "
            "supported");
}

TEST(ModelTensors, NamesThoseOfASecondTextModel) {
  TinyModel model = tinyQwen3();
  for (const auto &[name, tensor] : tinyQwen3().tensors)
    model.tensors["draft." + name] = tensor;
  EXPECT_EQ(
      errorOf(model),
      "DIR/model.safetensors: tensor \"draft.lm_head.weight\" (and 13 more) is "
      "not a tensor of Qwen3ForCausalLM; --ignore-tensors REGEX compiles the "
      "model without them");
  // One in a module of the scope, and one beside it.
  for (const char *name :
       {"draft.model.layers.0.mlp.up_proj.weight", "draft.lm_head.weight"}) {
    TinyModel incomplete = model;
    incomplete.tensors.erase(name);
    TempDir dir;
    incomplete.write(dir);
    mlir::MLIRContext context;
    EXPECT_NE(messageOf([&] {
                importCheckpoint(dir.path(), context, kTwoTextModels);
              })
                  .find(std::string(" has no tensor \"") + name +
                        "\", which its "
                        "configuration demands"),
              std::string::npos);
  }
}

TEST(ModelTensors, RefusesUnknownTensorsOfGguf) {
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

TEST(ModelTensors, RefusesQuantizedTensors) {
  for (const char *key :
       {"quantization_config", "compression_config", "quantization"}) {
    TinyModel model = tinyQwen3();
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

TEST(ModelTensors, TakesPublishedNames) {
  for (const char *prefix : {"model.language_model.", "language_model.model.",
                             "language_model.", ""}) {
    TinyModel model = tinyQwen3();
    for (const auto &[name, tensor] : tinyQwen3().tensors)
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
static Head headOf(const TinyModel &model,
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

TEST(ModelTensors, TheTensorsSayWhetherAModelIsTied) {
  constexpr char kEmbedding[] = "model.embed_tokens.weight";
  const auto keep = [](const TempDir &) {};
  for (bool isTied : {false, true}) {
    TinyModel model = tinyQwen3();
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
  TinyModel model = tinyQwen3();
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

TEST(ModelTensors, RefusesMissingTensors) {
  for (TinyModel model : {tinyQwen2(), tinyQwen3()})
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

TEST(ModelTensors, RefusesOtherShapes) {
  TinyModel model = tinyQwen2();
  model.tensors["model.layers.0.self_attn.q_proj.weight"].shape = {64, 96};
  EXPECT_EQ(errorOf(model),
            "DIR/model.safetensors: tensor "
            "\"model.layers.0.self_attn.q_proj.weight\" has shape [64, 96] "
            "when [96, 64] is needed");
  model = tinyQwen2();
  model.tensors["model.layers.0.self_attn.v_proj.bias"].shape = {1, 32};
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.layers.0.self_attn.v_proj.bias\" has "
                            "shape [1, 32] when [32] is needed");
  model = tinyQwen3();
  model.config["vocab_size"] = 201;
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.embed_tokens.weight\" has shape [200, 64] "
                            "when [201, 64] is needed");
  model = tinyQwen3();
  model.tensors["model.layers.0.self_attn.k_norm.weight"].shape = {};
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.layers.0.self_attn.k_norm.weight\" has "
                            "shape [] when [16] is needed");
}

TEST(ModelTensors, RefusesOtherTypes) {
  TinyModel model = tinyQwen3();
  model.tensors["model.norm.weight"].dtype = "I16";
  EXPECT_EQ(errorOf(model), "DIR/model.safetensors: tensor "
                            "\"model.norm.weight\" has dtype I16 when F32, F16 "
                            "or BF16 is needed");
}
