//===- GgufNames.cpp - Names of tensors in GGUF files ---------------------===//

#include "ModuleNames.h"
#include "qwen/ABI/Program.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Import/Checkpoint/ModelScope.h"

using namespace qwen;

static constexpr ModuleName kModules[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"score", "cls.output"},
};
/// The modules of a layer, behind its name and "blk.N.": first those
/// that only models with linear attention have.
static constexpr ModuleName kLayerModules[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    // Ollama's name.
    {"linear_attn.dt_bias", "ssm_dt"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"linear_attn.in_proj_qkvz", "ssm_in"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
};
static constexpr size_t kLinearModules = 13;

/// The modules of a draft head, behind "blk.N.nextn.". Its layer has the names
/// of other layers.
static constexpr ModuleName kDraftModules[] = {
    {"fc", "eh_proj"},
    {"pre_fc_norm_embedding", "enorm"},
    {"pre_fc_norm_hidden", "hnorm"},
    {"norm", "shared_head_norm"},
};

static ModuleNames namesOf(Architecture architecture) {
  const std::span<const ModuleName> all = kLayerModules;
  return {{kTextLayers, "blk."},
          kModules,
          layersOf(architecture).hasLinear ? all : all.subspan(kLinearModules)};
}

std::string qwen::ggufModelName(Architecture architecture,
                                std::string_view name) {
  return namesOf(architecture)
      .rename(name, &ModuleName::own, &ModuleName::model);
}

std::string qwen::ggufOwnName(Architecture architecture,
                              std::string_view name) {
  return namesOf(architecture)
      .rename(name, &ModuleName::model, &ModuleName::own);
}

std::string qwen::ggufDraftName(Architecture architecture,
                                std::string_view name, int64_t number) {
  const std::string head(kDraftHeadTensors);
  // Behind "blk.N.".
  const std::string_view path = name.substr(name.find('.', 4) + 1);
  const std::string_view module = path.substr(path.find('.') + 1);
  if (number == 0 && path.starts_with("nextn."))
    for (const auto &[model, own] : kDraftModules)
      if (module.starts_with(own) && module.substr(own.size()) == ".weight")
        return head + std::string(model) + ".weight";
  const std::string layer = ggufModelName(architecture, name);
  if (!layer.starts_with(kTextLayers))
    return head + std::string(name);
  const std::string_view rest =
      std::string_view(layer).substr(kTextLayers.size());
  return ModelScope{kDraftHeadTensors}.layer(number) +
         std::string(rest.substr(rest.find('.') + 1));
}
