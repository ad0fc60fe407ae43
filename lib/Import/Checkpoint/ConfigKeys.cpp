//===- ConfigKeys.cpp - Keys of config.json and their defaults ------------===//

#include "ConfigKeys.h"

using namespace qwen;
using nlohmann::json;

namespace {
/// A default of a configuration class of transformers 5.24. A Qwen 1 has no
/// class there and no defaults.
struct KeyDefault {
  const char *key;
  /// JSON.
  std::string_view value;
  /// The model_type of the class. A row without a model_type holds for every
  /// class that has no row of its own.
  std::string_view modelType = "";
};
} // namespace

static constexpr KeyDefault kDefaults[] = {
    {"vocab_size", "248320", "qwen3_5"},
    {"vocab_size", "248320", "qwen3_5_moe"},
    {"vocab_size", "152064", "qwen2_5_vl"},
    {"vocab_size", "151936"},
    {"hidden_size", "8192", "qwen2_5_vl"},
    {"hidden_size", "2048", "qwen2_moe"},
    {"hidden_size", "2048", "qwen3_moe"},
    {"hidden_size", "2048", "qwen3_vl_moe"},
    {"hidden_size", "2048", "qwen3_5_moe"},
    {"hidden_size", "2048", "qwen3_next"},
    {"hidden_size", "4096"},
    // Not of qwen3_5_moe, whose layers all have experts.
    {"intermediate_size", "22016", "qwen2"},
    {"intermediate_size", "22016", "qwen3"},
    {"intermediate_size", "22016", "qwen3_vl"},
    {"intermediate_size", "29568", "qwen2_5_vl"},
    {"intermediate_size", "12288", "qwen3_5"},
    {"intermediate_size", "5632", "qwen2_moe"},
    {"intermediate_size", "6144", "qwen3_moe"},
    {"intermediate_size", "5632", "qwen3_vl_moe"},
    {"intermediate_size", "5632", "qwen3_next"},
    {"num_hidden_layers", "80", "qwen2_5_vl"},
    {"num_hidden_layers", "24", "qwen2_moe"},
    {"num_hidden_layers", "24", "qwen3_moe"},
    {"num_hidden_layers", "24", "qwen3_vl_moe"},
    {"num_hidden_layers", "40", "qwen3_5_moe"},
    {"num_hidden_layers", "48", "qwen3_next"},
    {"num_hidden_layers", "32"},
    {"num_attention_heads", "64", "qwen2_5_vl"},
    {"num_attention_heads", "16", "qwen3_5"},
    {"num_attention_heads", "16", "qwen2_moe"},
    {"num_attention_heads", "16", "qwen3_vl_moe"},
    {"num_attention_heads", "16", "qwen3_5_moe"},
    {"num_attention_heads", "16", "qwen3_next"},
    {"num_attention_heads", "32"},
    {"num_key_value_heads", "8", "qwen2_5_vl"},
    {"num_key_value_heads", "4", "qwen3_5"},
    {"num_key_value_heads", "16", "qwen2_moe"},
    {"num_key_value_heads", "4", "qwen3_moe"},
    {"num_key_value_heads", "16", "qwen3_vl_moe"},
    {"num_key_value_heads", "2", "qwen3_5_moe"},
    {"num_key_value_heads", "2", "qwen3_next"},
    {"num_key_value_heads", "32"},
    // Others compute it of two sizes.
    {"head_dim", "128", "qwen3"},
    {"head_dim", "128", "qwen3_vl"},
    {"head_dim", "256", "qwen3_5"},
    {"head_dim", "256", "qwen3_5_moe"},
    {"head_dim", "256", "qwen3_next"},
    {"max_position_embeddings", "128000", "qwen3_vl"},
    {"max_position_embeddings", "128000", "qwen3_vl_moe"},
    {"max_position_embeddings", "32768"},
    {"rms_norm_eps", "1e-05", "qwen2_5_vl"},
    {"rms_norm_eps", "1e-06"},
    {"rope_theta", "1000000.0", "qwen2_5_vl"},
    {"rope_theta", "500000.0", "qwen3_vl"},
    {"rope_theta", "500000.0", "qwen3_vl_moe"},
    {"rope_theta", "10000.0"},
    // Others rotate whole heads.
    {"partial_rotary_factor", "0.25", "qwen3_5"},
    {"partial_rotary_factor", "0.25", "qwen3_5_moe"},
    {"partial_rotary_factor", "0.25", "qwen3_next"},
    {"linear_conv_kernel_dim", "4"},
    {"linear_num_key_heads", "16"},
    {"linear_key_head_dim", "128"},
    {"linear_num_value_heads", "32"},
    {"linear_value_head_dim", "128"},
    {"num_experts", "60", "qwen2_moe"},
    {"num_experts", "128", "qwen3_moe"},
    {"num_experts", "60", "qwen3_vl_moe"},
    {"num_experts", "256", "qwen3_5_moe"},
    {"num_experts", "512", "qwen3_next"},
    {"num_experts_per_tok", "4", "qwen2_moe"},
    {"num_experts_per_tok", "4", "qwen3_vl_moe"},
    {"num_experts_per_tok", "10", "qwen3_next"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "1408", "qwen2_moe"},
    {"moe_intermediate_size", "768", "qwen3_moe"},
    {"moe_intermediate_size", "1408", "qwen3_vl_moe"},
    {"moe_intermediate_size", "512"},
    {"shared_expert_intermediate_size", "5632", "qwen2_moe"},
    {"shared_expert_intermediate_size", "512"},
    // Others have no such key.
    {"norm_topk_prob", "false", "qwen2_moe"},
    {"norm_topk_prob", "false", "qwen3_moe"},
    {"norm_topk_prob", "true", "qwen3_next"},
    {"bos_token_id", "151643", "qwen2_5_vl"},
    {"eos_token_id", "151645", "qwen2_5_vl"},
};

static json defaultsOf(const ArchitectureInfo &info) {
  json result = json::object();
  if (info.modelType == infoOf(Architecture::Qwen1).modelType)
    return result;
  for (const KeyDefault &row : kDefaults)
    if (!result.contains(row.key) &&
        (row.modelType.empty() || row.modelType == info.modelType))
      result[row.key] = json::parse(row.value);
  return result;
}

ConfigDefaults::ConfigDefaults(const ArchitectureInfo &info,
                               const std::string &path)
    : values(defaultsOf(info)),
      source{part::file(path) + ": the default of ", part::file(path)} {}

JsonValue ConfigKeys::get(const char *inner) const {
  if (find(inner) || !hasDefault(inner))
    return at(inner);
  const json &value = defaults.values.at(inner);
  defaults.taken.insert(std::string(inner) + " " + value.dump());
  return JsonValue(value, inner, defaults.source);
}
