//===- ExportTest.cpp - From artifacts to GGUF files ----------------------===//

#include "HandmadeArtifact.h"
#include "TempDir.h"

#include "export/Export.h"
#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Import/Tokenizer/TokenizerBlob.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <random>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

namespace {
/// An artifact that is to be exported.
class Exported {
public:
  /// 30 outputs of three matrices in two panels, a bias of two of them, and the
  /// frequencies of 16 values of a head.
  Exported() {
    manifest["quantization"]["rotated"] = false;
    const auto segment = [](const char *name, int64_t outputs) {
      return json{{"name", "model.layers.0.self_attn." + std::string(name)},
                  {"outputs", outputs}};
    };
    manifest["tensors"] = {
        {{"name", "qkv"},
         {"shape", {30, 64}},
         {"format", "q4_g128"},
         {"offset", 0},
         {"bytes", kMatrix},
         {"segments",
          {segment("q_proj.weight", 12), segment("k_proj.weight", 10),
           segment("v_proj.weight", 8)}}},
        {{"name", "bias"},
         {"shape", {16}},
         {"format", "f32"},
         {"offset", kMatrix},
         {"bytes", 64},
         {"segments", {segment("q_proj.bias", 12), segment("k_proj.bias", 4)}}},
        {{"name", "frequencies"},
         {"shape", {8}},
         {"format", "f32"},
         {"offset", kMatrix + 64},
         {"bytes", 64},
         {"segments", {{{"name", kFrequenciesName}, {"outputs", 8}}}}}};
    std::mt19937 random(1);
    for (uint8_t &byte : weights)
      byte = static_cast<uint8_t>(random());
    for (int64_t i = 0; i < 8; ++i) {
      const float frequency = numerics::ropeInvFreq(1e4, i, 16);
      std::memcpy(weights + kMatrix + 64 + i * 4, &frequency, 4);
    }
  }

  ExportSummary write() {
    HandmadeArtifact artifact(manifest.dump());
    artifact.resizeWeights(sizeof(weights));
    std::memcpy(artifact.bytes.data() + HandmadeArtifact::kWeights, weights,
                sizeof(weights));
    const auto place = [&](FileRange &range, const void *data, size_t size,
                           uint64_t at) {
      range = {size == 0 ? 0 : at, size};
      if (size != 0)
        std::memcpy(artifact.bytes.data() + at, data, size);
    };
    place(artifact.header().tokenizer, tokenizer.data(), tokenizer.size(),
          uint64_t{1} << 20);
    place(artifact.header().chatTemplate, chat.data(), chat.size(),
          uint64_t{3} << 19);
    artifact.seal();
    const std::string path = artifact.write("export.qwen");
    MemoryFile file;
    try {
      ExportSummary summary = exportGguf(Artifact(path), file);
      std::filesystem::remove(path);
      bytes = file.contents();
      gguf = parseGguf(
          {reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()}, "f");
      return summary;
    } catch (const Error &) {
      std::filesystem::remove(path);
      throw;
    }
  }
  /// The error without the path.
  std::string error() {
    const std::string message = messageOf([&] { write(); });
    return message.substr(message.find("export.qwen") + 11);
  }

  json &programModel() { return manifest["programs"][0]["model"]; }

  static constexpr int64_t kMatrix = 2 * 16 * 34;
  json manifest = json::parse(handmadeManifest());
  uint8_t weights[kMatrix + 128];
  std::vector<uint8_t> tokenizer;
  std::string chat;
  std::string bytes;
  GgufFile gguf;
};
} // namespace

TEST(Export, DividesParts) {
  ASSERT_EQ(packedBytes(WeightFormat::Q4_G128, 30, 64), Exported::kMatrix);
  Exported model;
  const ExportSummary summary = model.write();
  EXPECT_EQ(summary.architecture, "qwen3");
  EXPECT_EQ(summary.fileBytes, model.bytes.size());
  ASSERT_EQ(summary.rows.size(), 2U);
  EXPECT_EQ(summary.rows[0].to, StoredType::F32);
  EXPECT_EQ(summary.rows[0].tensors, 2);
  EXPECT_EQ(summary.rows[1].from, WeightFormat::Q4_G128);
  EXPECT_EQ(summary.rows[1].to, StoredType::Q4_0);
  EXPECT_EQ(summary.rows[1].bytes, 30U * 36);

  std::string names;
  int64_t output = 0;
  const uint8_t *vector = model.weights + Exported::kMatrix;
  for (const StoredTensor &tensor : model.gguf.tensors) {
    names += tensor.name + ' ';
    const uint8_t *found = tensor.bytes.data();
    if (tensor.shape.size() == 1) {
      EXPECT_EQ(std::memcmp(found, vector, tensor.bytes.size()), 0);
      vector += tensor.bytes.size();
      continue;
    }
    EXPECT_EQ(tensor.shape[1], 64);
    for (int64_t i = 0; i < tensor.shape[0]; ++i, ++output, found += 36) {
      uint8_t expected[36];
      numerics::exportOutput(
          WeightFormat::Q4_G128,
          model.weights + output / 16 * panelBytes(WeightFormat::Q4_G128, 64),
          64, output % 16, expected);
      EXPECT_EQ(std::memcmp(found, expected, 36), 0) << output;
    }
  }
  EXPECT_EQ(names, "blk.0.attn_q.weight blk.0.attn_k.weight "
                   "blk.0.attn_v.weight blk.0.attn_q.bias blk.0.attn_k.bias ");
  EXPECT_EQ(output, 30);
}

TEST(Export, WritesKeys) {
  Exported model;
  model.programModel()["yarn"] = {{"factor", 1.0},
                                  {"positions", 50},
                                  {"fast", 16.0},
                                  {"slow", 2.0},
                                  {"scale", 1.5}};
  model.manifest["model"]["pooling"] = "mean";
  model.manifest["generation"]["top_k"] = 7;
  model.manifest["generation"]["bos_token_id"] = 3;
  model.manifest["generation"]["eos_token_id"] = {5, 6, 7};
  const ExportSummary summary = model.write();
  EXPECT_EQ(summary.warnings,
            std::vector<std::string>{
                "token 7 ends an answer, too, which the GGUF file does not "
                "say"});
  const json &keys = model.gguf.values;
  EXPECT_EQ(keys.at("general.architecture"), "qwen3");
  EXPECT_EQ(keys.at("qwen3.block_count"), 1);
  EXPECT_EQ(keys.at("qwen3.context_length"), 100);
  EXPECT_EQ(keys.at("qwen3.attention.key_length"), 16);
  EXPECT_EQ(keys.at("qwen3.attention.layer_norm_rms_epsilon"), 1e-6);
  EXPECT_EQ(keys.at("qwen3.rope.scaling.type"), "yarn");
  EXPECT_EQ(keys.at("qwen3.rope.scaling.yarn_beta_fast"), 16.0);
  EXPECT_EQ(keys.at("qwen3.rope.scaling.attn_factor"), 1.5);
  EXPECT_EQ(keys.at("qwen3.pooling_type"), 1);
  EXPECT_EQ(keys.at("general.sampling.temp"), 0.0);
  EXPECT_FALSE(keys.contains("general.sampling.top_k"));
  EXPECT_EQ(keys.at("tokenizer.ggml.bos_token_id"), 3);
  EXPECT_EQ(keys.at("tokenizer.ggml.eos_token_id"), 5);
  EXPECT_EQ(keys.at("tokenizer.ggml.eot_token_id"), 6);
  EXPECT_FALSE(keys.contains("tokenizer.ggml.tokens"));

  model.manifest["model"]["pooling"] = "max";
  model.manifest["generation"]["do_sample"] = true;
  EXPECT_EQ(model.write().warnings.front(),
            "the pooling \"max\" is not one of a GGUF file, which does not say "
            "it");
  EXPECT_EQ(model.gguf.values.at("general.sampling.top_k"), 7);
  EXPECT_EQ(model.gguf.values.at("general.sampling.temp"), 1.0);
}

TEST(Export, WritesTheTokenizer) {
  CheckpointTokenizer from;
  from.vocab = {{"b", 0}, {"a", 1}, {"\u0120", 2}, {"ab", 3}, {"\u0120ab", 4}};
  from.addMerge("f", "a b", "");
  from.addMerge("f", "\u0120 ab", "");
  from.addAdded("f", 5, "<|im_end|>", AddedSpecial);
  from.addAdded("f", 6, "<th\u00efnk>", 0);
  from.addAdded("f", 7, "<mask>", AddedSpecial | AddedLstrip);
  from.marksJoinLetters = true;
  from.eosToken = from.padToken = from.appendedToken = "<|im_end|>";
  from.chatTemplate = "{{ messages }}";
  const TokenizerImport blob = buildTokenizer(from);
  Exported model;
  model.tokenizer = blob.blob;
  model.chat = blob.chatTemplate;
  model.manifest["model"]["tokenizer_vocab"] = blob.vocabSize;
  model.manifest["generation"]["eos_token_id"] = {7, 5};
  EXPECT_EQ(model.write().warnings,
            std::vector<std::string>{
                "token \"<mask>\" takes white space beside it or needs words "
                "apart, which a GGUF file does not say"});
  EXPECT_EQ(model.gguf.values.at("tokenizer.ggml.eos_token_id"), 5);
  EXPECT_EQ(model.gguf.values.at("tokenizer.ggml.eot_token_id"), 7);
  EXPECT_EQ(ggufStrings(model.gguf, "f", kGgufTokens).size(), 40U);

  const CheckpointTokenizer found = *readGgufTokenizer(model.gguf, "f");
  EXPECT_EQ(found.vocab, from.vocab);
  ASSERT_EQ(found.merges.size(), 2U);
  EXPECT_EQ(found.merges[1].left, "\u0120");
  EXPECT_EQ(found.merges[1].right, "ab");
  EXPECT_EQ(found.addedIds, from.addedIds);
  EXPECT_EQ(found.added.at(5).flags, AddedSpecial);
  EXPECT_EQ(found.added.at(6).flags, 0U);
  EXPECT_TRUE(found.marksJoinLetters);
  EXPECT_EQ(found.eosToken, from.eosToken);
  EXPECT_EQ(found.padToken, from.padToken);
  EXPECT_EQ(found.appendedToken, from.appendedToken);
  EXPECT_EQ(found.chatTemplate, from.chatTemplate);
  EXPECT_EQ(found.warnings, std::vector<std::string>());
}

TEST(Export, RefusesSizesThatDisagree) {
  const auto errorWith = [](const char *pointer, const json &value) {
    Exported model;
    model.manifest.at(json::json_pointer(pointer)) = value;
    return model.error();
  };
  const std::string qkv = " is damaged: in its manifest, tensor \"qkv\" has "
                          "sizes that disagree";
  EXPECT_EQ(errorWith("/tensors/0/bytes", Exported::kMatrix - 1), qkv);
  EXPECT_EQ(errorWith("/tensors/0/segments/1/outputs", 11), qkv);
  EXPECT_EQ(errorWith("/tensors/0/shape/1", 80), qkv);
  EXPECT_EQ(errorWith("/tensors/0/shape/1", int64_t{1} << 31), qkv);
  EXPECT_EQ(errorWith("/tensors/0/shape", {30, 64, 1}), qkv);
  EXPECT_EQ(errorWith("/tensors/1/format", "bf16"),
            " is damaged: in its manifest, tensor \"bias\" has sizes that "
            "disagree");
  EXPECT_EQ(errorWith("/programs/0/model/rope_theta", 1e5),
            " has another rotary embedding than its manifest says; compile "
            "the checkpoint again");
}

/// A model of 2 experts, each with 16 outputs of gate and 16 of up, which begin
/// 2 panels and 64 bytes behind each other. All have `outputs`.
static void setExperts(Exported &model, int64_t outputs) {
  const int64_t matrix = 2 * panelBytes(WeightFormat::Q4_0, 32);
  model.programModel()["architecture"] = "Qwen3MoeForCausalLM";
  model.programModel()["experts"] = {{"count", 2},
                                     {"active", 1},
                                     {"width", 32},
                                     {"shared_width", 0},
                                     {"normalized", true}};
  const auto segment = [](const char *name, int64_t outputs) {
    return json{{"name", "model.layers.0.mlp.experts." + std::string(name)},
                {"outputs", outputs}};
  };
  model.manifest["tensors"] = {{{"name", "experts"},
                                {"shape", {outputs, 32}},
                                {"format", "q4_0"},
                                {"offset", 0},
                                {"bytes", 2 * matrix},
                                {"experts", 2},
                                {"stride", matrix + 64},
                                {"segments",
                                 {segment("gate_proj.weight", outputs - 32),
                                  segment("up_proj.weight", 32)}}}};
}

TEST(Export, StacksExperts) {
  Exported model;
  setExperts(model, 64);
  model.write();
  const json &keys = model.gguf.values;
  EXPECT_EQ(keys.at("qwen3moe.expert_count"), 2);
  EXPECT_EQ(keys.at("qwen3moe.expert_used_count"), 1);
  EXPECT_EQ(keys.at("qwen3moe.expert_feed_forward_length"), 32);
  EXPECT_FALSE(keys.contains("qwen3moe.expert_shared_feed_forward_length"));
  ASSERT_EQ(model.gguf.tensors.size(), 2U);
  const int64_t panel = panelBytes(WeightFormat::Q4_0, 32);
  for (int64_t part = 0; part < 2; ++part) {
    const StoredTensor &tensor = model.gguf.tensors[static_cast<size_t>(part)];
    EXPECT_EQ(tensor.name, part == 0 ? "blk.0.ffn_gate_exps.weight"
                                     : "blk.0.ffn_up_exps.weight");
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 16, 32}));
    for (int64_t i = 0; i < 32; ++i) {
      uint8_t expected[18];
      numerics::exportOutput(WeightFormat::Q4_0,
                             model.weights + i / 16 * (2 * panel + 64) +
                                 part * panel,
                             32, i % 16, expected);
      EXPECT_EQ(std::memcmp(tensor.bytes.data() + i * 18, expected, 18), 0)
          << tensor.name << " " << i;
    }
  }
}

TEST(Export, RefusesExpertsThatNoKeySays) {
  Exported model;
  setExperts(model, 64);
  model.programModel()["experts"]["normalized"] = false;
  EXPECT_EQ(model.error(),
            " has experts whose weights are not divided by their sum, which a "
            "GGUF file of qwen3moe cannot say; run it with qwen-run");
  const std::string dense = " has layers without experts, which a GGUF file of "
                            "qwen3moe cannot say; run it with qwen-run";
  json &name = model.manifest["tensors"][0]["segments"][0]["name"];
  name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_EQ(model.error(), dense);
  model.programModel().erase("experts");
  EXPECT_EQ(model.error(), dense);
  setExperts(model, 72);
  EXPECT_EQ(model.error(), " is damaged: in its manifest, tensor \"experts\" "
                           "has sizes that disagree");
}
