//===- GgufModelTest.cpp - Models in GGUF files ---------------------------===//

#include "GgufModelFiles.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Numerics/Math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

TEST_F(GgufModel, ReadsConfiguration) {
  const auto checkpoint = open(makeModel());
  const ModelConfig &config = checkpoint->config();
  EXPECT_EQ(config.architecture, Architecture::Qwen3);
  EXPECT_EQ(config.vocabSize, 40);
  EXPECT_EQ(config.hiddenSize, 64);
  EXPECT_EQ(config.layers, 1);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.kvHeads, 1);
  EXPECT_EQ(config.headDim, 32);
  EXPECT_EQ(config.intermediateSize, 96);
  EXPECT_EQ(config.maxPosition, 256);
  EXPECT_EQ(config.ropeTheta, 1e6);
  EXPECT_EQ(config.rmsNormEps, 1e-6);
  EXPECT_TRUE(config.tied);
  const GenerationConfig &generation = checkpoint->generation();
  EXPECT_FALSE(generation.doSample);
  EXPECT_TRUE(generation.eosTokenIds.empty());
  EXPECT_FALSE(checkpoint->readTokenizer().has_value());

  const StoredTensors &tensors = checkpoint->tensors();
  EXPECT_EQ(tensors.tensors().size(), 4u);
  EXPECT_TRUE(tensors.find("model.embed_tokens.weight"));
  EXPECT_TRUE(tensors.find("model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(tensors.find("odd"));
  const StoredTensor *q =
      tensors.find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_TRUE(q);
  EXPECT_EQ(q->name, "blk.0.attn_q.weight");
  EXPECT_EQ(checkpoint->ownName("model.layers.11.mlp.up_proj.weight"),
            "blk.11.ffn_up.weight");
  EXPECT_EQ(checkpoint->ownName("lm_head.weight"), "output.weight");
}

TEST_F(GgufModel, ReadsSampling) {
  GgufBytes file = makeModel();
  file.keys.push_back(f32("general.sampling.temp", 0.7F));
  file.keys.push_back(f32("general.sampling.top_p", 0.8F));
  file.keys.push_back(f32("general.sampling.min_p", 0.05F));
  file.keys.push_back(u32("general.sampling.top_k", 20));
  file.keys.push_back(f32("general.sampling.penalty_repeat", 1.05F));
  file.keys.push_back(u32("tokenizer.ggml.eos_token_id", 39));
  file.keys.push_back(u32("tokenizer.ggml.bos_token_id", 3));
  file.keys.push_back(
      strings("tokenizer.ggml.tokens", {"a", "<|endoftext|>", "<|im_end|>"}));
  const auto checkpoint = open(file);
  const GenerationConfig &found = checkpoint->generation();
  EXPECT_TRUE(found.doSample);
  EXPECT_EQ(found.temperature, 0.7);
  EXPECT_EQ(found.topP, 0.8);
  EXPECT_EQ(found.minP, 0.05);
  EXPECT_EQ(found.topK, 20);
  EXPECT_EQ(found.repetitionPenalty, 1.05);
  EXPECT_EQ(found.eosTokenIds, (std::vector<int32_t>{39, 2, 1}));
  EXPECT_EQ(found.bosTokenId, 3);

  replaceKey(file, "general.sampling.temp", f32("general.sampling.temp", 0));
  EXPECT_FALSE(open(file)->generation().doSample);
  // The vocabulary has 40 tokens.
  replaceKey(file, "tokenizer.ggml.eos_token_id",
             u32("tokenizer.ggml.eos_token_id", 40));
  file.keys.push_back(u32("tokenizer.ggml.eot_token_id", UINT32_MAX));
  const auto beyond = open(file);
  EXPECT_EQ(beyond->generation().eosTokenIds, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(beyond->config().notes,
            std::vector<std::string>{"not used, tokens beyond the vocabulary: "
                                     "tokenizer.ggml.eos_token_id 40, "
                                     "tokenizer.ggml.eot_token_id 4294967295"});
}

TEST_F(GgufModel, ReadsYarn) {
  GgufBytes file = makeModel();
  file.keys.push_back(string("qwen3.rope.scaling.type", "yarn"));
  file.keys.push_back(f32("qwen3.rope.scaling.factor", 4));
  file.keys.push_back(u32("qwen3.rope.scaling.original_context_length", 128));
  file.keys.push_back(f32("qwen3.rope.scaling.yarn_beta_fast", 16));
  file.keys.push_back(f32("qwen3.rope.scaling.attn_factor", 0.5F));
  const ModelConfig config = open(file)->config();
  ASSERT_TRUE(config.yarn);
  EXPECT_EQ(config.yarn->factor, 4);
  EXPECT_EQ(config.yarn->positions, 128);
  EXPECT_EQ(config.yarn->fast, 16);
  EXPECT_EQ(config.yarn->slow, 1);
  EXPECT_EQ(config.ropeScale(), 0.5 * numerics::yarnAttentionFactor(4));
  EXPECT_EQ(config.maxPosition, 512);

  file.keys.push_back(f32("qwen3.rope.scaling.yarn_ext_factor", 0));
  EXPECT_EQ(errorOf(file), ": qwen3.rope.scaling.yarn_ext_factor 0.0 is not "
                           "supported; supported is 1");
}

TEST_F(GgufModel, ReadsHybrid) {
  GgufBytes file = makeHybrid();
  const auto checkpoint = open(file);
  const ModelConfig &config = checkpoint->config();
  EXPECT_EQ(config.architecture, Architecture::Qwen3_5);
  EXPECT_EQ(config.layers, 1);
  EXPECT_EQ(config.rotatedDim, 8);
  EXPECT_EQ(config.layerKinds,
            (std::vector<LayerKind>{LinearAttention{2, 64, 6, 32}}));
  EXPECT_TRUE(checkpoint->tensors().find("model.layers.0.linear_attn.A_log"));
  EXPECT_EQ(checkpoint->ownName("model.layers.0.linear_attn.dt_bias"),
            "blk.0.ssm_dt.bias");
  EXPECT_EQ(
      checkpoint->ownName("model.layers.0.linear_attn.in_proj_qkv.weight"),
      "blk.0.attn_qkv.weight");

  replaceKey(file, "qwen35.ssm.inner_size", u32("qwen35.ssm.inner_size", 96));
  EXPECT_EQ(errorOf(file), ": qwen35.ssm.inner_size is 96 when an integer "
                           "from 192 to 1536 is needed");
}

TEST_F(GgufModel, RefusesKeys) {
  EXPECT_EQ(errorWith("qwen3.block_count", u32("x", 0)),
            " has no qwen3.block_count");
  EXPECT_EQ(errorWith("qwen3.block_count", string("qwen3.block_count", "1")),
            ": qwen3.block_count is \"1\" when an integer from 1 to 65536 is "
            "needed");
  EXPECT_EQ(errorWith("qwen3.attention.head_count_kv",
                      array("qwen3.attention.head_count_kv", GgufType::U32, 2,
                            raw(1U) + raw(1U))),
            ": qwen3.attention.head_count_kv is an array when an integer from "
            "1 to 65536 is needed");
  EXPECT_EQ(errorWith("general.architecture",
                      string("general.architecture", "llama")),
            ": general.architecture \"llama\" is not supported; supported are "
            "qwen2 (Qwen2, Qwen2.5), qwen3, qwen35, qwen2vl (the text of "
            "Qwen2.5-VL), qwen3vl (the text of Qwen3-VL), qwen2moe, qwen3moe, "
            "qwen3vlmoe (the text of Qwen3-VL-MoE), qwen35moe and qwen3next");
  EXPECT_EQ(errorWith("general.type", string("general.type", "adapter")),
            ": general.type \"adapter\" is not supported; supported is "
            "\"model\", the file of a whole model; --lora takes an adapter");
  EXPECT_EQ(errorWith("x", string("qwen3.rope.scaling.type", "linear")),
            ": qwen3.rope.scaling.type \"linear\" is not supported; supported "
            "are \"none\" and \"yarn\"");
  EXPECT_EQ(errorWith("x", f32("qwen3.rope.scaling.factor", 4)),
            ": qwen3.rope.scaling.factor 4.0 is not supported; supported is 1");
  EXPECT_EQ(errorWith("x", u32("qwen3.rope.dimension_count", 16)),
            ": qwen3.rope.dimension_count 16 is not supported; supported are "
            "all 32 values of a head");
  EXPECT_EQ(errorWith("x", u32("qwen3.expert_count", 8)),
            ": qwen3.expert_count 8 is not supported; supported is 0");
  EXPECT_EQ(errorWith("x", key("qwen3.attention.causal", GgufType::Bool,
                               raw(uint8_t{0}))),
            ": qwen3.attention.causal false is not supported; supported is "
            "true");
}

TEST_F(GgufModel, AccountsForKeys) {
  GgufBytes file = makeModel();
  EXPECT_TRUE(open(file)->config().notes.empty());
  for (const std::string &key :
       {u32("qwen3.vocab_size", 40), f32("qwen3.logit_scale", 1),
        f32("qwen3.final_logit_softcapping", 0), u32("qwen3.expert_count", 0),
        f32("qwen3.rope.scaling.attn_factor", 1), u32("general.new", 1),
        string("quantize.imatrix.file", "x"), u32("tokenizer.ggml.new", 1)})
    file.keys.push_back(key);
  EXPECT_TRUE(open(file)->config().notes.empty());
  for (const std::string &key :
       {u32("qwen3.new", 1), u32("clip.new", 1), u32("qwen2.block_count", 1),
        strings("qwen3.news", {"a"})})
    file.keys.push_back(key);
  EXPECT_EQ(open(file)->config().notes,
            std::vector<std::string>{
                "not used, unknown keys: clip.new, qwen2.block_count, "
                "qwen3.new, qwen3.news"});

  for (const auto &[key, value, supported] :
       {std::tuple("logit_scale", 0.5F, "1"),
        std::tuple("final_logit_softcapping", 30.0F, "0"),
        std::tuple("attention.clamp_kqv", 8.0F, "0"),
        std::tuple("residual_scale", 0.25F, "1"),
        std::tuple("rope.scaling.attn_factor", 0.5F, "1")}) {
    const std::string name = std::string("qwen3.") + key;
    EXPECT_EQ(errorWith("x", f32(name, value)),
              ": " + name + " " + json(value).dump() +
                  " is not supported; supported is " + supported);
  }
  EXPECT_EQ(errorWith("x", string("qwen3.logit_scale", "1")),
            ": qwen3.logit_scale is \"1\" when a number is needed");
}

TEST_F(GgufModel, FindsDraftLayers) {
  const auto modelOf = [&](uint32_t blocks, uint32_t draft,
                           const std::vector<std::string> &names) {
    GgufBytes file = makeModel();
    replaceKey(file, "qwen3.block_count", u32("qwen3.block_count", blocks));
    if (draft)
      file.keys.push_back(u32("qwen3.nextn_predict_layers", draft));
    file.tensors.resize(1);
    for (const std::string &name : names)
      file.tensors.push_back({"blk." + name + ".weight", {64}});
    return file;
  };
  const std::vector<std::string> two = {"0.attn_norm", "1.attn_norm"};
  std::vector<std::string> three = two;
  three.insert(three.end(), {"2.attn_norm", "2.nextn.eh_proj"});
  // Counted or not, and with the key or not.
  for (const auto &[blocks, draft] : {std::pair(3U, 1U), std::pair(3U, 0U),
                                      std::pair(2U, 1U), std::pair(2U, 0U)}) {
    const auto checkpoint = open(modelOf(blocks, draft, three));
    EXPECT_EQ(checkpoint->config().layers, 2);
    const StoredTensors &tensors = checkpoint->tensors();
    EXPECT_TRUE(tensors.find("model.layers.1.input_layernorm.weight"));
    EXPECT_TRUE(tensors.find("mtp.layers.0.input_layernorm.weight"));
    EXPECT_TRUE(tensors.find("mtp.fc.weight"));
  }
  // Counted, but not there.
  EXPECT_EQ(open(modelOf(3, 1, two))->config().layers, 2);
  EXPECT_EQ(open(modelOf(2, 1, two))->config().layers, 2);
  EXPECT_EQ(open(modelOf(3, 0, two))->config().layers, 3);

  EXPECT_EQ(errorOf(modelOf(2, 1, {"0.nextn.eh_proj", "1.attn_norm"})),
            ": layer 0 is a draft layer, which has nextn tensors, before layer "
            "1 of the model");
  EXPECT_EQ(errorOf(modelOf(1, 1, {"0.nextn.eh_proj"})),
            ": qwen3.block_count is 1 when more than the number of draft "
            "layers is needed");
}

TEST_F(GgufModel, RefusesSizesThatDisagree) {
  EXPECT_EQ(errorWith("qwen3.attention.value_length",
                      u32("qwen3.attention.value_length", 64)),
            ": qwen3.attention.value_length is 64 when 32, as in key_length, "
            "is needed");
  EXPECT_EQ(errorWith("qwen3.attention.key_length",
                      u32("qwen3.attention.key_length", 31)),
            ": qwen3.attention.value_length is 32 when 31, as in key_length, "
            "is needed");
  EXPECT_EQ(errorWith("qwen3.attention.head_count_kv",
                      u32("qwen3.attention.head_count_kv", 4)),
            ": qwen3.attention.head_count is 2 when a multiple of "
            "attention.head_count_kv, 4, is needed");
  EXPECT_EQ(errorWith("qwen3.feed_forward_length",
                      u32("qwen3.feed_forward_length", 90)),
            ": K of model.layers.0.mlp.down_proj.weight is 90 when a multiple "
            "of 32 is needed");
  GgufBytes twice = makeModel();
  twice.tensors.push_back(twice.tensors[1]);
  EXPECT_EQ(errorOf(twice), ": tensor \"blk.0.attn_q.weight\" is there twice");
  GgufBytes none = makeModel();
  none.tensors.erase(none.tensors.begin());
  EXPECT_EQ(errorOf(none), " has no tensor \"token_embd.weight\"");
}

TEST_F(GgufModel, ReadsAHeadOfScores) {
  const auto makeReranker = [](const std::vector<std::string> &labels) {
    GgufBytes file = makeModel();
    file.keys.push_back(u32("qwen3.pooling_type", 4));
    file.keys.push_back(strings("qwen3.classifier.output_labels", labels));
    file.tensors.push_back({"cls.output.weight", {64, 2}});
    return file;
  };
  GgufBytes file = makeReranker({"no", "yes"});
  const auto checkpoint = open(file);
  const ModelOutput &output = checkpoint->config().output;
  EXPECT_EQ(output.kind, OutputKind::Scores);
  EXPECT_EQ(output.labels, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(output.pooling, "rank");
  EXPECT_FALSE(checkpoint->config().tied);
  EXPECT_TRUE(checkpoint->tensors().find("score.weight"));
  EXPECT_EQ(
      checkpoint->config().notes,
      (std::vector<std::string>{
          "no logits, but scores of no and yes; the model is for qwen-run "
          "rerank and /v1/rerank",
          "the pooling is rank, not last: qwen-run embed and /v1/embeddings "
          "refuse the model"}));

  const auto labelsError = [](const std::string &found) {
    return ": qwen3.classifier.output_labels is [" + found +
           "]; supported are \"yes\" and \"no\", in any order";
  };
  EXPECT_EQ(errorOf(makeReranker({"yes"})), labelsError("\"yes\""));
  EXPECT_EQ(errorOf(makeReranker({"LABEL_0", "LABEL_1"})),
            labelsError("\"LABEL_0\", \"LABEL_1\""));
  EXPECT_EQ(errorOf(makeReranker({"yes", "yes"})),
            labelsError("\"yes\", \"yes\""));
  for (const std::vector<uint64_t> &dimensions :
       {std::vector<uint64_t>{64, 1}, {64}}) {
    file.tensors.back().dimensions = dimensions;
    EXPECT_EQ(errorOf(file),
              ": tensor \"cls.output.weight\" has 1 outputs when one for each "
              "label of qwen3.classifier.output_labels is needed");
  }
  file = makeReranker({"yes", "no"});
  file.tensors.push_back({"output.weight", {64, 40}});
  EXPECT_EQ(errorOf(file), ": tensor \"cls.output.weight\" is a head beside "
                           "\"output.weight\", and a model has one");
  file = makeModel();
  file.tensors.push_back({"cls.output.weight", {64, 2}});
  EXPECT_EQ(errorOf(file), " has no array qwen3.classifier.output_labels");
}

TEST_F(GgufModel, ReadsThePooling) {
  GgufBytes file = makeModel();
  file.tensors.push_back({"output.weight", {64, 40}, StoredType::Q8_0});
  const char *names[] = {"none", "mean", "cls", "last", "rank"};
  for (uint32_t type = 0; type < std::size(names); ++type) {
    replaceKey(file, "qwen3.pooling_type", u32("qwen3.pooling_type", type));
    const auto checkpoint = open(file);
    EXPECT_EQ(checkpoint->config().output.pooling, names[type]);
    EXPECT_EQ(checkpoint->config().notes.size(), type == 3 ? 0u : 1u);
    // Its values are those of the embedding.
    EXPECT_TRUE(checkpoint->config().tied);
  }
  EXPECT_EQ(errorWith("qwen3.pooling_type", u32("qwen3.pooling_type", 5)),
            ": qwen3.pooling_type is 5 when an integer from 0 to 4 is needed");
}

TEST_F(GgufModel, DividesFusedProjections) {
  GgufBytes file = makeModel("qwen2");
  file.tensors[1] = {"blk.0.attn_qkv.weight", {64, 128}, StoredType::Q4_0};
  file.tensors.push_back({"blk.0.attn_qkv.bias", {128}});
  const auto checkpoint = open(file);
  const auto sourceOf = [&](const std::string &name) {
    const WeightSources::Entry *entry =
        checkpoint->weights().find("model.layers.0.self_attn." + name);
    return entry ? entry->source : nullptr;
  };
  const WeightSourcePtr q = sourceOf("q_proj.weight"),
                        k = sourceOf("k_proj.weight"),
                        v = sourceOf("v_proj.weight"),
                        bias = sourceOf("v_proj.bias");
  ASSERT_TRUE(q && k && v && bias);
  EXPECT_EQ(q->shape(), (WeightShape{{64, 64}}));
  EXPECT_EQ(k->shape(), (WeightShape{{32, 64}}));
  EXPECT_EQ(q->bytesToRead(), 64u * 36);
  EXPECT_EQ(bias->shape(), WeightShape{{32}});
  EXPECT_EQ(bias->bytesToRead(), 128u);
  EXPECT_EQ(q->name().line(), dir.string() + "/m.gguf: tensor \"blk.0.attn_qkv."
                                             "weight\"");
  std::vector<float> all(128 * 64), some(32 * 64);
  checkpoint->weights()
      .find("blk.0.attn_qkv.weight")
      ->source->read(0, 128, all.data());
  v->read(0, 32, some.data());
  EXPECT_TRUE(std::ranges::equal(some, std::span(all).last(some.size())));

  file.tensors[1].dimensions[1] = 127;
  EXPECT_EQ(errorOf(file), ": tensor \"blk.0.attn_qkv.weight\" has 127 outputs "
                           "when 128 of q, k and v are needed");
}

//===----------------------------------------------------------------------===//
// Split files
//===----------------------------------------------------------------------===//

namespace {
class GgufSplit : public testing::Test {
protected:
  static void setPlace(GgufBytes &file, uint16_t number, uint16_t count,
                       int32_t total) {
    file.keys.push_back(key("split.no", GgufType::U16, raw(number)));
    file.keys.push_back(key("split.count", GgufType::U16, raw(count)));
    file.keys.push_back(key("split.tensors.count", GgufType::I32, raw(total)));
  }

  /// Writes a model whose second tensor and those behind it are in a second
  /// file that has these keys, and opens it.
  std::unique_ptr<Checkpoint> open(uint16_t number, uint16_t count,
                                   int32_t total, bool keepsAll = false) {
    GgufBytes first = makeModel();
    GgufBytes second;
    second.tensors.assign(first.tensors.begin() + 1, first.tensors.end());
    if (!keepsAll)
      first.tensors.resize(1);
    setPlace(first, 0, 2, total);
    setPlace(second, number, count, total);
    dir.write("m-00001-of-00002.gguf", first.make());
    dir.write("m-00002-of-00002.gguf", second.make());
    return openCheckpoint(dir.path() / "m-00001-of-00002.gguf");
  }
  std::string errorOf(uint16_t number, uint16_t count, int32_t total,
                      bool keepsAll = false) {
    return messageOf([&] { open(number, count, total, keepsAll); });
  }

  const TempDir dir;
  const std::string firstPath = dir.string() + "/m-00001-of-00002.gguf";
  const std::string secondPath = dir.string() + "/m-00002-of-00002.gguf";
};
} // namespace

TEST_F(GgufSplit, ReadsAllFiles) {
  const auto checkpoint = open(1, 2, 4);
  const StoredTensors &tensors = checkpoint->tensors();
  EXPECT_EQ(tensors.tensors().size(), 4u);
  EXPECT_EQ(tensors.find("model.embed_tokens.weight")->path, firstPath);
  EXPECT_EQ(tensors.find("odd")->path, secondPath);
  EXPECT_EQ(checkpointName(firstPath), "m");
  // A link, as in Hugging Face's cache, and a snapshot there.
  const std::string link = dir.string() + "/Qwen3-Q8_0.gguf";
  std::filesystem::create_symlink(firstPath, link);
  EXPECT_EQ(checkpointName(link), "Qwen3-Q8_0");
  const auto hub = dir.path() / "models--Qwen--Qwen3-0.6B/snapshots/c1899de2";
  std::filesystem::create_directories(hub);
  EXPECT_EQ(checkpointName(hub), "Qwen3-0.6B");
  EXPECT_EQ(checkpointName(hub / ""), "Qwen3-0.6B");
  EXPECT_EQ(checkpointName(hub / ".." / "."), "snapshots");
  EXPECT_EQ(weightFileBytes(firstPath),
            std::filesystem::file_size(firstPath) +
                std::filesystem::file_size(secondPath));
}

TEST_F(GgufSplit, RefusesFilesThatDisagree) {
  EXPECT_EQ(errorOf(0, 2, 4),
            secondPath +
                " says that it is file 1 of 2 when file 2 of 2 is needed");
  EXPECT_EQ(errorOf(1, 3, 4),
            secondPath +
                " says that it is file 2 of 3 when file 2 of 2 is needed");
  EXPECT_EQ(errorOf(1, 2, 5),
            firstPath +
                ": split.tensors.count is 5 when the files have 4 tensors");
  EXPECT_NE(errorOf(1, 2, 7, /*keepsAll=*/true).find("is there twice"),
            std::string::npos);
  open(1, 2, 4);
  EXPECT_EQ(messageOf([&] { openCheckpoint(secondPath); }),
            secondPath +
                " says that it is file 2 of 2 when file 1 of 2 is needed");
  std::filesystem::remove(secondPath);
  EXPECT_EQ(messageOf([&] { openCheckpoint(firstPath); }),
            "cannot read " + secondPath + ": No such file or directory");
}
