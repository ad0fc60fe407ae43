//===- GgufVariantsTest.cpp - GGUF files of other writers -----------------===//

#include "GgufModelFiles.h"

#include "qwen/Import/Checkpoint/Known.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

TEST_F(GgufModel, ReadsANumberForEachLayer) {
  GgufBytes file = makeModel();
  replaceKey(file, "qwen3.block_count", u32("qwen3.block_count", 3));
  for (const auto &[key, value] : {std::pair("attention.head_count", 2U),
                                   std::pair("attention.head_count_kv", 1U),
                                   std::pair("feed_forward_length", 96U),
                                   std::pair("attention.key_length", 32U)}) {
    const std::string name = std::string("qwen3.") + key;
    replaceKey(file, name, u32s(name, {value, value, value}));
  }
  const ModelConfig config = open(file)->config();
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.kvHeads, 1);
  EXPECT_EQ(config.headDim, 32);
  EXPECT_EQ(config.intermediateSize, 96);
  EXPECT_TRUE(config.notes.empty());

  const std::string width = "qwen3.feed_forward_length";
  for (const std::vector<uint32_t> &other :
       {std::vector<uint32_t>{96, 96, 64}, {96, 96}, {0, 96, 96}, {}}) {
    replaceKey(file, width, u32s(width, other));
    EXPECT_EQ(errorOf(file), ": " + width +
                                 " is an array when an integer from 1 to "
                                 "16777216 is needed");
  }
}

TEST_F(GgufModel, ReadsTheTextOfModelsWithVision) {
  for (const auto &[name, architecture] :
       {std::pair("qwen2vl", Architecture::Qwen2_5Vision),
        std::pair("qwen3vl", Architecture::Qwen3Vision)}) {
    GgufBytes file = makeModel(name);
    const std::string prefix = std::string(name) + ".";
    file.keys.push_back(u32s(prefix + "rope.dimension_sections", {4, 6, 6, 0}));
    file.keys.push_back(u32(prefix + "n_deepstack_layers", 3));
    const auto checkpoint = open(file);
    EXPECT_EQ(checkpoint->config().architecture, architecture);
    EXPECT_EQ(checkpoint->config().rotatedDim, 32);
    EXPECT_TRUE(checkpoint->config().notes.empty());
  }
}

/// ggml counts any number of dimensions of 1.
TEST_F(GgufModel, DropsDimensionsOfOne) {
  GgufBytes file = makeModel("qwen3moe");
  for (const auto &[key, value] :
       {std::pair("expert_count", 1U), std::pair("expert_used_count", 1U),
        std::pair("expert_feed_forward_length", 32U)})
    file.keys.push_back(u32("qwen3moe." + std::string(key), value));
  file.tensors = {{"token_embd.weight", {64, 40, 1, 1}, StoredType::Q8_0},
                  {"blk.0.attn_q.weight", {64, 64, 1}, StoredType::Q4_0},
                  {"blk.0.attn_norm.weight", {64, 1}},
                  {"blk.0.attn_q_norm.weight", {32, 1, 1, 1}},
                  {"blk.0.ffn_gate_inp.weight", {64, 1, 1}},
                  {"blk.0.ffn_gate_exps.weight", {64, 32, 1, 1}}};
  const auto checkpoint = open(file);
  EXPECT_EQ(checkpoint->config().vocabSize, 40);
  const auto shape = [&](const std::string &name) {
    return checkpoint->tensors().find(name)->shape;
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("model.embed_tokens.weight"), (Shape{40, 64}));
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(shape(layer + "self_attn.q_proj.weight"), (Shape{64, 64}));
  EXPECT_EQ(shape(layer + "input_layernorm.weight"), Shape{64});
  EXPECT_EQ(shape(layer + "self_attn.q_norm.weight"), Shape{32});
  EXPECT_EQ(shape(layer + "mlp.gate.weight"), (Shape{1, 64}));
  EXPECT_EQ(shape(layer + "mlp.experts.gate_proj.weight"), (Shape{1, 32, 64}));
}

/// Layers of linear attention may have no heads; draft layers have some.
TEST_F(GgufModel, ReadsLayersWithoutHeads) {
  GgufBytes file = makeHybrid();
  const std::vector<LayerKind> kinds = open(file)->config().layerKinds;
  const std::string heads = "qwen35.attention.head_count_kv";
  replaceKey(file, heads, u32s(heads, {0, 1}));
  EXPECT_EQ(open(file)->config().kvHeads, 1);
  EXPECT_EQ(open(file)->config().layerKinds, kinds);
  replaceKey(file, heads, u32s(heads, {0, 0}));
  EXPECT_EQ(errorOf(file), ": " + heads +
                               " is an array when an integer from 1 to 65536 "
                               "is needed");
  GgufBytes full = file;
  full.tensors.resize(4);
  replaceKey(full, heads, u32s(heads, {0, 1}));
  EXPECT_EQ(errorOf(full), ": " + heads +
                               " is 0 for layer 0, which has no tensors of "
                               "linear attention");
}

TEST_F(GgufModel, ReadsOllamasHybrids) {
  GgufBytes file = makeHybrid();
  file.tensors.push_back({"blk.0.ssm_dt", {6}});
  for (const std::string &name : {"v.blk.0.attn_q.weight", "mm.0.weight",
                                  "mtp.layers.0.input_layernorm.weight"})
    file.tensors.push_back({name, {64}});
  file.keys.push_back(u32("qwen35.vision.block_count", 2));
  file.keys.push_back(u32("qwen35.image_token_id", 3));
  file.keys.push_back(u32s("qwen35.rope.mrope_section", {2, 1, 1}));
  const std::string order = "qwen35.ssm.v_head_reordered";
  file.keys.push_back(key(order, GgufType::Bool, raw(uint8_t{1})));
  const auto other = open(file);
  EXPECT_TRUE(other->config().notes.empty());
  EXPECT_TRUE(other->tensors().find("model.layers.0.linear_attn.dt_bias"));
  for (const auto &[name, tensor] : other->tensors().tensors())
    if (name.starts_with("v.") || name.starts_with("m")) {
      EXPECT_TRUE(name.starts_with("model.") || knownTensorKind(name)) << name;
    }
  replaceKey(file, order, key(order, GgufType::Bool, raw(uint8_t{0})));
  EXPECT_EQ(errorOf(file),
            ": " + order + " false is not supported; supported is true");
}
