//===- PublishedConfigs.h - config.json of published models -----*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_PUBLISHEDCONFIGS_H
#define QWEN_TEST_UNIT_PUBLISHEDCONFIGS_H

#include "TempDir.h"

#include "qwen/Import/Checkpoint/Config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace qwen::test {

/// Qwen2.5-0.5B's published config.json.
inline nlohmann::json qwen2() {
  return nlohmann::json::parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu",
    "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "use_mrope": false, "use_sliding_window": false,
    "vocab_size": 151936})");
}

/// A small Qwen3 as transformers 5 writes it.
inline nlohmann::json qwen3() {
  return nlohmann::json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
    "dtype": "float32", "eos_token_id": 1, "head_dim": 32,
    "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96,
    "layer_types": ["full_attention", "full_attention"],
    "max_position_embeddings": 256, "model_type": "qwen3",
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 5000000.0, "rope_type": "default"},
    "sliding_window": null, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 321})");
}

/// A Qwen3.5 as it is published, with small sizes.
inline nlohmann::json qwen35() {
  nlohmann::json text = qwen3();
  text.erase("architectures");
  text.update({{"model_type", "qwen3_5_text"},
               {"num_hidden_layers", 6},
               {"layer_types",
                {"linear_attention", "linear_attention", "full_attention",
                 "linear_attention", "linear_attention", "full_attention"}},
               {"attn_output_gate", true},
               {"linear_conv_kernel_dim", 4},
               {"linear_num_key_heads", 2},
               {"linear_key_head_dim", 64},
               {"linear_num_value_heads", 6},
               {"linear_value_head_dim", 32},
               {"rope_parameters",
                {{"rope_theta", 1e7},
                 {"rope_type", "default"},
                 {"partial_rotary_factor", 0.25},
                 {"mrope_section", {2, 1, 1}}}}});
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"text_config", text},
          {"tie_word_embeddings", true},
          {"vision_config", {{"depth", 1}}}};
}

/// A small Qwen 1 as it is published.
inline nlohmann::json qwen1() {
  return nlohmann::json::parse(R"({
    "architectures": ["QWenLMHeadModel"], "hidden_size": 96,
    "intermediate_size": 448, "kv_channels": 32, "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 512, "model_type": "qwen", "no_bias": true,
    "num_attention_heads": 3, "num_hidden_layers": 2,
    "rotary_emb_base": 10000, "rotary_pct": 1.0, "scale_attn_weights": true,
    "seq_length": 64, "tie_word_embeddings": false, "use_dynamic_ntk": true,
    "use_logn_attn": true, "vocab_size": 320})");
}

/// What the compiler reads of `config`.
inline ModelConfig readConfig(const nlohmann::json &config) {
  TempDir dir;
  dir.write("config.json", config.dump());
  return readModelConfig(dir.path());
}

/// The error about `config`, without the file's path and ": ".
inline std::string configError(const nlohmann::json &config) {
  TempDir dir;
  dir.write("config.json", config.dump());
  const std::string path = dir.string() + "/config.json";
  std::string message = messageOf([&] { readModelConfig(dir.path()); });
  if (message.empty())
    return "";
  EXPECT_EQ(message.substr(0, path.size()), path);
  return message.substr(path.size() + (message[path.size()] == ':' ? 2 : 1));
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_PUBLISHEDCONFIGS_H
