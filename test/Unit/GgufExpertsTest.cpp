//===- GgufExpertsTest.cpp - Models with experts in GGUF files ------------===//

#include "GgufBytes.h"
#include "TempDir.h"

#include "qwen/Import/Checkpoint/Checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

using namespace qwen;
using namespace qwen::test;

/// A model of one layer with 8 experts of width 64, of which a token takes 2.
static GgufBytes makeExperts(const std::string &architecture) {
  const std::string a = architecture + ".";
  GgufBytes file;
  file.keys = {string("general.architecture", architecture),
               u32(a + "block_count", 1),
               u32(a + "context_length", 256),
               u32(a + "embedding_length", 64),
               u32(a + "feed_forward_length", 192),
               u32(a + "attention.head_count", 2),
               u32(a + "attention.head_count_kv", 1),
               f32(a + "attention.layer_norm_rms_epsilon", 1e-6F),
               f32(a + "rope.freq_base", 1e6F),
               u32(a + "expert_count", 8),
               u32(a + "expert_used_count", 2),
               u32(a + "expert_feed_forward_length", 64)};
  file.tensors = {
      {"token_embd.weight", {64, 40}},
      {"blk.0.ffn_gate_inp.weight", {64, 8}},
      {"blk.0.ffn_gate_exps.weight", {64, 64, 8}, StoredType::Q4_0},
      {"blk.0.ffn_up_exps.weight", {64, 64, 8}, StoredType::Q4_0},
      {"blk.0.ffn_down_exps.weight", {64, 64, 8}, StoredType::Q8_0}};
  return file;
}

/// The sizes of linear attention, with 2 key heads and 6 value heads of 32.
static void addLinear(GgufBytes &file, const std::string &architecture) {
  for (const auto &[key, value] :
       {std::pair("ssm.conv_kernel", 4), std::pair("ssm.state_size", 32),
        std::pair("ssm.group_count", 2), std::pair("ssm.time_step_rank", 6),
        std::pair("ssm.inner_size", 192)})
    file.keys.push_back(
        u32(architecture + "." + key, static_cast<uint32_t>(value)));
  file.tensors.push_back({"blk.0.ssm_out.weight", {192, 64}});
}

static void removeKey(GgufBytes &file, const std::string &name) {
  std::erase_if(file.keys, [&](const std::string &key) {
    return key.starts_with(text(name));
  });
}

namespace {
class GgufExperts : public testing::Test {
protected:
  std::unique_ptr<Checkpoint> open(const GgufBytes &file) {
    dir.write("m.gguf", file.make());
    return openCheckpoint(dir.path() / "m.gguf");
  }

  std::string withoutPath(std::string message) {
    const std::string path = dir.string() + "/m.gguf";
    if (message.starts_with(path))
      message.erase(0, path.size());
    return message;
  }

  /// The error about a qwen2moe with another value of a key.
  std::string errorWith(const std::string &name, uint32_t value) {
    GgufBytes file = makeExperts("qwen2moe");
    removeKey(file, "qwen2moe." + name);
    file.keys.push_back(u32("qwen2moe." + name, value));
    return withoutPath(messageOf([&] { open(file); }));
  }

  /// The error about a weight of `file` that ops read in `shape`.
  std::string errorOf(const GgufBytes &file, const std::string &weight,
                      const WeightShape &shape) {
    const auto checkpoint = open(file);
    return withoutPath(messageOf(
        [&] { checkpoint->weight("model.layers.0.mlp." + weight, shape); }));
  }

  const TempDir dir;
};
} // namespace

TEST_F(GgufExperts, ReadSizes) {
  const auto checkpoint = open(makeExperts("qwen3moe"));
  const ModelConfig &config = checkpoint->config();
  EXPECT_EQ(config.architecture, Architecture::Qwen3Moe);
  EXPECT_TRUE(config.notes.empty());
  ASSERT_TRUE(config.expertsOf(0));
  EXPECT_EQ(*config.expertsOf(0),
            (ExpertsShape{8, 2, 64, 0, /*normalized=*/true}));
  const WeightSource &down =
      *checkpoint
           ->weight("model.layers.0.mlp.experts.down_proj.weight",
                    {{8, 64, 64}})
           .source;
  EXPECT_EQ(down.keptFormat(), WeightFormat::Q8_0);
  EXPECT_TRUE(down.hasIntegers());
  EXPECT_TRUE(checkpoint->tensors().find("model.layers.0.mlp.gate.weight"));
  EXPECT_EQ(checkpoint->ownName("model.layers.0.mlp.shared_expert.up_proj.x"),
            "blk.0.ffn_up_shexp.x");

  GgufBytes shared = makeExperts("qwen2moe");
  shared.keys.push_back(u32("qwen2moe.expert_shared_feed_forward_length", 96));
  EXPECT_EQ(*open(shared)->config().experts, (ExpertsShape{8, 2, 64, 96}));
}

TEST_F(GgufExperts, ReadWidthsFromOtherKeys) {
  GgufBytes file = makeExperts("qwen2moe");
  removeKey(file, "qwen2moe.expert_feed_forward_length");
  EXPECT_EQ(*open(file)->config().experts, (ExpertsShape{8, 2, 96, 192}));

  file = makeExperts("qwen3moe");
  removeKey(file, "qwen3moe.feed_forward_length");
  EXPECT_EQ(open(file)->config().intermediateSize, 64);
  removeKey(file, "qwen3moe.expert_feed_forward_length");
  EXPECT_EQ(withoutPath(messageOf([&] { open(file); })),
            " has no qwen3moe.expert_feed_forward_length");
}

TEST_F(GgufExperts, ReadTheRouterOfASharedExpert) {
  GgufBytes file = makeExperts("qwen2moe");
  file.tensors.push_back({"blk.0.ffn_gate_inp_shexp.weight", {64}});
  const std::string name = "shared_expert_gate.weight";
  for (const std::vector<uint64_t> &dimensions :
       {std::vector<uint64_t>{64}, {64, 1}}) {
    file.tensors.back().dimensions = dimensions;
    EXPECT_EQ(errorOf(file, name, {{1, 64}}), "");
  }
  file.tensors.back().dimensions = {64, 8};
  EXPECT_EQ(errorOf(file, name, {{1, 64}}),
            ": tensor \"blk.0.ffn_gate_inp_shexp.weight\" has shape [8, 64] "
            "when [1, 64] is needed");
}

TEST_F(GgufExperts, DivideGateAndUp) {
  GgufBytes file = makeExperts("qwen3moe");
  file.tensors[2] = {
      "blk.0.ffn_gate_up_exps.weight", {64, 128, 8}, StoredType::Q4_0};
  file.tensors.erase(file.tensors.begin() + 3);
  const auto checkpoint = open(file);
  for (const char *name : {"gate_proj", "up_proj"}) {
    const WeightSources::Entry &entry = checkpoint->weight(
        std::string("model.layers.0.mlp.experts.") + name + ".weight",
        {{8, 64, 64}});
    EXPECT_EQ(entry.source->keptFormat(), WeightFormat::Q4_0);
    EXPECT_EQ(entry.tensors, std::vector<std::string>{
                                 "model.layers.0.mlp.experts.gate_up_proj."
                                 "weight"});
  }
  file.tensors[2].dimensions[1] = 64;
  EXPECT_EQ(withoutPath(messageOf([&] { open(file); })),
            ": tensor \"blk.0.ffn_gate_up_exps.weight\" has shape [8, 64, 64] "
            "when [8, 128, 64] is needed");
}

TEST_F(GgufExperts, OfHybridsHaveTheirOrderOfValueHeads) {
  GgufBytes tiled = makeExperts("qwen35moe");
  addLinear(tiled, "qwen35moe");
  EXPECT_TRUE(open(tiled)->config().interleavesValueHeads);

  GgufBytes grouped = makeExperts("qwen3next");
  addLinear(grouped, "qwen3next");
  grouped.tensors.push_back({"blk.0.attn_qkv.weight", {64, 320}});
  grouped.tensors.push_back({"blk.0.ssm_ba.weight", {64, 12}});
  // The projections may be joined.
  for (const char *name : {"attn_gate", "ssm_in"}) {
    grouped.tensors.push_back({"blk.0." + std::string(name) + ".weight",
                               {64, name[0] == 's' ? 512U : 192U}});
    const auto checkpoint = open(grouped);
    EXPECT_FALSE(checkpoint->config().interleavesValueHeads);
    for (const auto &[part, outputs] :
         {std::pair("qkv", 320), std::pair("z", 192), std::pair("b", 6),
          std::pair("a", 6)})
      checkpoint->weight("model.layers.0.linear_attn.in_proj_" +
                             std::string(part) + ".weight",
                         {{outputs, 64}});
    std::erase_if(grouped.tensors, [](const GgufEntry &tensor) {
      return tensor.name.starts_with("blk.0.attn_");
    });
  }
}

TEST_F(GgufExperts, RefuseSizes) {
  EXPECT_EQ(errorWith("expert_count", 0),
            ": qwen2moe.expert_count is 0 when an integer from 1 to 1024 is "
            "needed");
  EXPECT_EQ(errorWith("expert_used_count", 9),
            ": qwen2moe.expert_used_count is 9 when an integer from 1 to 8 is "
            "needed");
  EXPECT_EQ(errorWith("expert_used_count", 0),
            ": qwen2moe.expert_used_count is 0 when an integer from 1 to 8 is "
            "needed");
  EXPECT_EQ(errorWith("expert_feed_forward_length", 48),
            ": qwen2moe.expert_feed_forward_length is 48 when a multiple of 32 "
            "is needed");
  EXPECT_EQ(errorWith("expert_shared_feed_forward_length", 0),
            ": qwen2moe.expert_shared_feed_forward_length is 0 when an integer "
            "from 32 to 16777216 is needed");
  EXPECT_EQ(errorWith("expert_gating_func", 2),
            ": qwen2moe.expert_gating_func 2 is not supported; supported is 1");
  EXPECT_EQ(errorWith("leading_dense_block_count", 1),
            ": qwen2moe.leading_dense_block_count 1 is not supported; "
            "supported is 0");
  GgufBytes file = makeExperts("qwen3moe");
  file.keys.push_back(
      key("qwen3moe.expert_weights_norm", GgufType::Bool, raw(uint8_t{0})));
  EXPECT_EQ(withoutPath(messageOf([&] { open(file); })),
            ": qwen3moe.expert_weights_norm false is not supported; supported "
            "is true");
  file = makeExperts("qwen2moe");
  removeKey(file, "qwen2moe.expert_count");
  EXPECT_EQ(withoutPath(messageOf([&] { open(file); })),
            " has no qwen2moe.expert_count");
  removeKey(file, "qwen2moe.expert_feed_forward_length");
  file.keys.push_back(u32("qwen2moe.expert_count", 8));
  removeKey(file, "qwen2moe.feed_forward_length");
  file.keys.push_back(u32("qwen2moe.feed_forward_length", 96));
  EXPECT_EQ(withoutPath(messageOf([&] { open(file); })),
            ": qwen2moe.feed_forward_length is 96 when a multiple of 64 is "
            "needed");
}

TEST_F(GgufExperts, RefuseTensors) {
  const GgufBytes file = makeExperts("qwen3moe");
  EXPECT_EQ(errorOf(file, "gate.weight", {{7, 64}}),
            ": tensor \"blk.0.ffn_gate_inp.weight\" has shape [8, 64] when [7, "
            "64] is needed");
  EXPECT_EQ(errorOf(file, "experts.up_proj.weight", {{9, 64, 64}}),
            ": tensor \"blk.0.ffn_up_exps.weight\" has shape [8, 64, 64] when "
            "[9, 64, 64] is needed");
  EXPECT_EQ(errorOf(file, "shared_expert.up_proj.weight", {{96, 64}}),
            " has no tensor \"blk.0.ffn_up_shexp.weight\", which its "
            "configuration demands with shape [96, 64]");
}
