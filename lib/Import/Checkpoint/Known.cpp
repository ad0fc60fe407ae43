//===- Known.cpp - What of a checkpoint has no effect ---------------------===//

#include "qwen/Import/Checkpoint/Known.h"

#include <algorithm>
#include <fnmatch.h>

using namespace qwen;
using nlohmann::json;
using Names = std::string_view;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The last two are names in GGUF files.
static constexpr Names kVisionTensors[] = {
    "visual.*", "model.visual.*", "transformer.visual.*", "v.*", "mm.*"};
static constexpr Names kDraftTensors[] = {"mtp.*", "model.mtp.*"};
static constexpr Names kTiedTensors[] = {"lm_head.weight"};
static constexpr Names kRotaryTensors[] = {
    "*.inv_freq", "*.original_inv_freq", "*rotary_emb.cos_cached",
    "*rotary_emb.sin_cached", "*.logn_tensor"};
static constexpr Names kMaskTensors[] = {"*.masked_bias", "*.causal_mask",
                                         "*position_ids"};
static constexpr Names kTrainingTensors[] = {"v_head.*", "optimizer.*",
                                             "lr_scheduler.*", "*_extra_state"};
/// The compiled model's KV cache has no scales.
static constexpr Names kCacheTensors[] = {
    "*.self_attn.k_scale", "*.self_attn.v_scale", "*.k_proj.output_scale",
    "*.v_proj.output_scale"};
static constexpr KnownNames kTensors[] = {
    {"vision", kVisionTensors},
    {"draft head", kDraftTensors},
    {"lm_head of a tied model", kTiedTensors},
    {"rotary buffers", kRotaryTensors},
    {"masks and positions", kMaskTensors},
    {"training state", kTrainingTensors},
    {"scales of a quantized KV cache", kCacheTensors},
};

std::span<const KnownNames> qwen::knownTensors() { return kTensors; }

/// The row of `table` that has a pattern of `name`, or null.
static const KnownNames *findKnown(std::span<const KnownNames> table,
                                   const std::string &name) {
  for (const KnownNames &row : table)
    for (std::string_view pattern : row.names)
      if (fnmatch(std::string(pattern).c_str(), name.c_str(), 0) == 0)
        return &row;
  return nullptr;
}

std::optional<std::string_view> qwen::knownTensorKind(const std::string &name) {
  const KnownNames *found = findKnown(kTensors, name);
  return found ? std::optional(found->kind) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Keys of config.json
//===----------------------------------------------------------------------===//

static constexpr Names kVisionKeys[] = {
    "vision_config",  "visual",          "image_token_id",
    "video_token_id", "image_token",     "vision_start_token_id",
    "video_token",    "vision_token_id", "vision_end_token_id"};
static constexpr Names kDraftKeys[] = {
    "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mtp_num_layers",
    "num_nextn_predict_layers"};
/// In texts, the axes of positions are equal.
static constexpr Names kAxesKeys[] = {"use_mrope", "mrope_section",
                                      "mrope_interleaved"};
/// Without use_sliding_window.
static constexpr Names kWindowKeys[] = {"sliding_window", "max_window_layers"};
static constexpr Names kTrainingKeys[] = {"attention_dropout",
                                          "attn_dropout_prob",
                                          "attn_pdrop",
                                          "classifier_dropout",
                                          "emb_dropout_prob",
                                          "embd_pdrop",
                                          "gradient_checkpointing",
                                          "hidden_dropout",
                                          "hidden_dropout_prob",
                                          "initializer_range",
                                          "output_router_logits",
                                          "pretraining_tp",
                                          "resid_pdrop",
                                          "router_aux_loss_coef"};
/// readGenerationConfig reads some of them.
static constexpr Names kTokenKeys[] = {
    "bos_token_id",        "eos_token_id",    "pad_token_id",
    "sep_token_id",        "unk_token_id",    "decoder_start_token_id",
    "forced_bos_token_id", "bad_words_ids",   "forced_eos_token_id",
    "suppress_tokens",     "tokenizer_class", "begin_suppress_tokens",
    "tokenizer_type"};
/// generation_config.json took their place.
static constexpr Names kSamplingKeys[] = {
#define QWEN_MODEL_SAMPLING(Type, Field, Name, ...) #Name,
#include "qwen/ABI/SamplerOptions.def"
    "do_sample",
    "diversity_penalty",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "return_dict_in_generate",
    "typical_p"};
static constexpr Names kLibraryKeys[] = {"_attn_implementation",
                                         "_attn_implementation_autoset",
                                         "_attn_implementation_internal",
                                         "attn_implementation",
                                         "bf16",
                                         "bias_dropout_fusion",
                                         "cache_implementation",
                                         "chunk_size_feed_forward",
                                         "cross_attention_hidden_size",
                                         "dtype",
                                         "fp16",
                                         "fp32",
                                         "is_decoder",
                                         "mamba_ssm_dtype",
                                         "onnx_safe",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "params_dtype",
                                         "return_dict",
                                         "softmax_in_fp32",
                                         "tf_legacy_loss",
                                         "tie_encoder_decoder",
                                         "torch_dtype",
                                         "torchscript",
                                         "transformers_version",
                                         "use_bfloat16",
                                         "use_cache",
                                         "use_cache_kernel",
                                         "use_flash_attn"};
static constexpr Names kDescriptionKeys[] = {
    "_commit_hash",      "_name_or_path",
    "architectures",     "finetuning_task",
    "id2label",          "label2id",
    "model_name",        "model_type",
    "name_or_path",      "num_labels",
    "padded_vocab_size", "prefix",
    "problem_type",      "task_specific_params",
    "unsloth_fixed",     "unsloth_version"};
/// In auto_map.
static constexpr Names kClassKeys[] = {"AutoConfig",
                                       "AutoImageProcessor",
                                       "AutoModelForQuestionAnswering",
                                       "AutoModelForSequenceClassification",
                                       "AutoModelForTokenClassification",
                                       "AutoProcessor",
                                       "AutoTokenizer"};
/// full_attention_interval beside layer_types, and the limits of a Qwen 1.
static constexpr Names kOtherNames[] = {"full_attention_interval",
                                        "max_position_embeddings",
                                        "n_positions", "seq_length"};
static constexpr KnownNames kConfigKeys[] = {
    {"vision", kVisionKeys},
    {"draft head", kDraftKeys},
    {"axes of positions", kAxesKeys},
    {"sliding window that is off", kWindowKeys},
    {"training", kTrainingKeys},
    {"special tokens", kTokenKeys},
    {"sampling", kSamplingKeys},
    {"how a library computes", kLibraryKeys},
    {"descriptions", kDescriptionKeys},
    {"classes of auto_map", kClassKeys},
    {"what another key says", kOtherNames},
};
static constexpr FixedKey kConfigFixed[] = {
    // The mask of attention.
    {"is_causal", "true"},
    {"use_bidirectional_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    {"use_sliding_window", "false"},
    {"attention_chunk_size", "null"},
    {"dual_chunk_attention_config", "null"},
    {"no_rope_layers", "[]"},
    {"no_rope_layer_interval", "null"},
    {"pruned_heads", "{}"},
    // Layers of other kinds.
    {"hidden_act", R"("silu")"},
    {"hidden_activation", R"("silu")"},
    {"activation", R"("swiglu")", R"("silu")"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"no_bias", "true"},
    {"qkv_bias", "true"},
    {"attn_output_gate", "false"},
    {"output_gate_type", "null"},
    {"use_parallel_residual", "false"},
    {"parallel_attn", "false"},
    {"apply_residual_connection_post_layernorm", "false"},
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"n_routed_experts", "0"},
    // Positions.
    {"pos_emb", R"("rotary")"},
    {"position_embedding_type", R"("rotary")", R"("rope")"},
    {"alibi", "false"},
    {"rotary_pct", "1"},
    {"rope_pct", "1"},
    {"rope_interleaved", "false"},
    {"rope_interleave", "false"},
    {"rope_ratio", "1"},
    {"rope_local_base_freq", "null"},
    // Scales and limits of values.
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"scale_embedding", "false"},
    {"attention_multiplier", "null"},
    {"query_pre_attn_scalar", "null"},
    {"attn_logit_softcapping", "null"},
    {"final_logit_softcapping", "null"},
    {"clip_qkv", "null"},
    {"logit_scale", "1"},
    {"logits_scaling", "1"},
    {"lm_head_multiplier", "1"},
    {"embedding_multiplier", "1"},
    {"embedding_scale", "1"},
    {"scale_emb", "1"},
    {"scale_depth", "null"},
    {"dim_model_base", "null"},
    {"residual_multiplier", "1"},
    {"residual_scale", "1"},
    {"use_cache_quantization", "false"},
};

KnownKeys qwen::knownConfigKeys() { return {kConfigKeys, kConfigFixed}; }

//===----------------------------------------------------------------------===//
// Keys of generation_config.json
//===----------------------------------------------------------------------===//

static constexpr Names kPaddingKeys[] = {"pad_token_id",
                                         "decoder_start_token_id"};
/// The last two are of a Qwen 1.
static constexpr Names kLengthKeys[] = {"max_length",  "max_new_tokens",
                                        "max_time",    "max_cache_len",
                                        "chat_format", "max_window_size"};
static constexpr Names kGenerationLibraryKeys[] = {
    "_from_model_config",
    "assistant_*",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "continuous_batching_config",
    "disable_compile",
    "is_assistant",
    "low_memory",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_*",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "return_dict_in_generate",
    "speculation_type",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
    "use_mtp"};
static constexpr KnownNames kGenerationKeys[] = {
    {"padding", kPaddingKeys},
    {"limits of length", kLengthKeys},
    {"how a library computes", kGenerationLibraryKeys},
};
/// The values that have no effect.
static constexpr FixedKey kGenerationFixed[] = {
#define QWEN_MODEL_SAMPLING(...)
#define QWEN_SAMPLING(Type, Field, Name, Default, ...) {#Name, #Default},
#include "qwen/ABI/SamplerOptions.def"
#define QWEN_BEAM_OPTION(Type, Field, Name, Default, ...) {#Name, #Default},
#include "qwen/ABI/BeamOptions.def"
    {"early_stopping", "false"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"encoder_repetition_penalty", "1"},
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"num_return_sequences", "1"},
    {"remove_invalid_values", "false"},
    {"renormalize_logits", "false"},
    {"token_healing", "false"},
};

KnownKeys qwen::knownGenerationKeys() {
  return {kGenerationKeys, kGenerationFixed, "", {}, /*tellsFixed=*/true};
}

//===----------------------------------------------------------------------===//
// Keys of a GGUF architecture
//===----------------------------------------------------------------------===//

static constexpr Names kGgufVision[] = {"vision.*", "image_token_id",
                                        "vision_start_token_id",
                                        "vision_end_token_id"};
static constexpr Names kGgufAxes[] = {
    "mrope_sections", "n_deepstack_layers", "rope.dimension_sections",
    "rope.mrope_interleaved", "rope.mrope_section"};
static constexpr Names kGgufWindow[] = {"attention.sliding_window_pattern",
                                        "rope.dimension_count_swa",
                                        "rope.freq_base_swa"};
/// Without experts.
static constexpr Names kGgufExperts[] = {
    "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "expert_used_count", "expert_weights_norm", "norm_top_k_prob"};
static constexpr Names kGgufTraining[] = {"rope.scaling.finetuned"};
static constexpr Names kGgufOther[] = {"attention.layer_norm_epsilon",
                                       "classifier.output_labels",
                                       "expert_shared_count",
                                       "full_attention_interval",
                                       "rope.scaling.original_context_length",
                                       "tensor_data_layout",
                                       "vocab_size"};
static constexpr KnownNames kGgufKeys[] = {
    {"vision", kGgufVision},
    {"axes of positions", kGgufAxes},
    {"sliding window that is off", kGgufWindow},
    {"experts that are not there", kGgufExperts},
    {"training", kGgufTraining},
    {"what another key or a tensor says", kGgufOther},
};
static constexpr FixedKey kGgufFixed[] = {
    {"attention.causal", "true"},
    {"attention.sliding_window", "0"},
    {"attention.scale", "0"},
    {"attention.output_scale", "1", "0"},
    {"attention.temperature_scale", "0"},
    {"attention.clamp_kqv", "0"},
    {"attention.max_alibi_bias", "0"},
    {"attention.relative_buckets_count", "0"},
    {"attn_logit_softcapping", "0"},
    {"final_logit_softcapping", "0"},
    {"router_logit_softcapping", "0"},
    {"logit_scale", "1", "0"},
    {"residual_scale", "1", "0"},
    {"embedding_scale", "1", "0"},
    {"expert_count", "0"},
    {"expert_gating_func", "1", "0"},
    {"expert_group_count", "0", "1"},
    {"expert_weights_scale", "1", "0"},
    {"leading_dense_block_count", "0"},
    {"use_parallel_residual", "false"},
    {"swin_norm", "false"},
    {"rescale_every_n_layers", "0"},
    {"rope.scale_linear", "1", "0"},
    {"rope.scaling.factor", "1", "0"},
    {"rope.scaling.alpha", "1", "0"},
    {"rope.scaling.attn_factor", "1"},
    {"rope.scaling.yarn_attn_factor", "1"},
    {"rope.scaling.yarn_log_multiplier", "0"},
    {"rope.scaling.yarn_ext_factor", "0", "-1"},
    {"hidden_act", R"("silu")"},
    {"hidden_activation", R"("silu")"},
};

/// Keys that are not about the architecture.
static constexpr Names kGgufElsewhere[] = {"general.", "quantize.", "split.",
                                           "tokenizer."};

KnownKeys qwen::knownGgufKeys(std::string_view architecture) {
  return {kGgufKeys, kGgufFixed, std::string(architecture) + ".",
          kGgufElsewhere};
}

//===----------------------------------------------------------------------===//
// Unread keys
//===----------------------------------------------------------------------===//

/// Whether `value` has no effect.
static bool hasNoEffect(const JsonValue &value, const FixedKey &fixed) {
  return value.isNull() || value.is(json::parse(fixed.value)) ||
         (!fixed.other.empty() && value.is(json::parse(fixed.other)));
}

/// Throws Error for `value`, which changes the result.
[[noreturn]] static void refuseFixed(const JsonValue &value,
                                     const FixedKey &fixed) {
  const json needed = json::parse(fixed.value);
  if (!needed.is_null() && !value.isOfKind(needed))
    value.fail(needed.is_boolean()  ? "true or false"
               : needed.is_string() ? "a string"
               : needed.is_number() ? "a number"
               : needed.is_array()  ? "an array"
                                    : "an object");
  value.refuse("supported is " + std::string(fixed.value));
}

std::vector<std::string> qwen::unknownKeys(const JsonValue &root,
                                           const KnownKeys &keys) {
  std::vector<std::string> unknown;
  for (const auto &[name, value] : root.unread()) {
    const auto begins = [&](std::string_view prefix) {
      return name.starts_with(prefix);
    };
    // A key that is null says that something is off.
    if (value.isNull() || std::ranges::any_of(keys.elsewhere, begins))
      continue;
    if (!begins(keys.prefix)) {
      unknown.push_back(value.name());
      continue;
    }
    const std::string key = name.substr(keys.prefix.size());
    const auto fixed = std::ranges::find(keys.fixed, key, &FixedKey::key);
    const bool isFixed = fixed != keys.fixed.end();
    if (isFixed ? hasNoEffect(value, *fixed)
                : findKnown(keys.known, key) != nullptr)
      continue;
    if (isFixed && !keys.tellsFixed)
      refuseFixed(value, *fixed);
    unknown.push_back(value.name());
  }
  return unknown;
}
