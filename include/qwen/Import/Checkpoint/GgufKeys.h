//===- GgufKeys.h - The keys of GGUF files ----------------------*- C++ -*-===//
//
// What the reader of GGUF files and their writer (export) share.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_GGUFKEYS_H
#define QWEN_IMPORT_CHECKPOINT_GGUFKEYS_H

#include "qwen/ABI/GenerationConfig.h"
#include "qwen/Import/Checkpoint/ModelConfig.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen {

/// Bytes to whose multiples tensors are aligned, unless general.alignment says
/// otherwise.
inline constexpr uint64_t kGgufAlignment = 32;

inline constexpr char kGgufModelType[] = "general.type";
inline constexpr char kGgufArchitecture[] = "general.architecture";

//===----------------------------------------------------------------------===//
// Keys of an architecture, behind its name and a dot
//===----------------------------------------------------------------------===//

inline constexpr char kGgufHeads[] = "attention.head_count";
inline constexpr char kGgufKvHeads[] = "attention.head_count_kv";
inline constexpr char kGgufMlpWidth[] = "feed_forward_length";
/// The sizes that have no default.
inline constexpr SizeKey kGgufSizes[] = {
    {&ModelShape::hiddenSize, "embedding_length"},
    {&ModelShape::heads, kGgufHeads},
    {&ModelShape::kvHeads, kGgufKvHeads},
    {&ModelShape::intermediateSize, kGgufMlpWidth}};
inline constexpr char kGgufLayers[] = "block_count";
inline constexpr char kGgufExpertCount[] = "expert_count";
inline constexpr char kGgufActiveExperts[] = "expert_used_count";
inline constexpr char kGgufExpertWidth[] = "expert_feed_forward_length";
inline constexpr char kGgufSharedWidth[] = "expert_shared_feed_forward_length";
inline constexpr char kGgufContext[] = "context_length";
inline constexpr char kGgufKeyDim[] = "attention.key_length";
inline constexpr char kGgufValueDim[] = "attention.value_length";
inline constexpr char kGgufRopeTheta[] = "rope.freq_base";
inline constexpr char kGgufEpsilon[] = "attention.layer_norm_rms_epsilon";

/// YaRN. The factors of cos and sin multiply numerics::yarnAttentionFactor.
inline constexpr char kGgufRopeScaling[] = "rope.scaling.type";
inline constexpr char kGgufYarn[] = "yarn";
inline constexpr char kGgufYarnFactor[] = "rope.scaling.factor";
inline constexpr char kGgufYarnPositions[] =
    "rope.scaling.original_context_length";
inline constexpr char kGgufYarnSlow[] = "rope.scaling.yarn_beta_slow";
inline constexpr char kGgufYarnFast[] = "rope.scaling.yarn_beta_fast";
inline constexpr const char *kGgufYarnScales[] = {
    "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"};

/// The names of poolings, by the number in files.
inline constexpr char kGgufPooling[] = "pooling_type";
inline constexpr std::string_view kGgufPoolings[] = {"none", "mean", "cls",
                                                     kLastPooling, "rank"};
inline constexpr char kGgufLabels[] = "classifier.output_labels";

//===----------------------------------------------------------------------===//
// Sampling
//===----------------------------------------------------------------------===//

/// A sampling option.
struct GgufSampling {
  Fact<GenerationConfig> fact;
  /// Whether a file that has it asks to draw tokens.
  bool draws;
};
inline constexpr GgufSampling kGgufSampling[] = {
#define QWEN_MODEL_SAMPLING(Type, Field, Name, Default, Least, Most, Valid,    \
                            Needed, Help, Usual, StoredLeast, StoredMost,      \
                            Gguf, Samples)                                     \
  {{"general.sampling." Gguf, &GenerationConfig::Field, StoredLeast,           \
    StoredMost},                                                               \
   Samples},
#include "qwen/ABI/SamplerOptions.def"
};

//===----------------------------------------------------------------------===//
// The tokenizer
//===----------------------------------------------------------------------===//

inline constexpr char kGgufTokenizer[] = "tokenizer.ggml.model";
/// The tokenizer of all of Qwen's models: byte-level BPE.
inline constexpr char kGgufBytePairs[] = "gpt2";
/// The value of a file without a tokenizer, as if there were no key.
inline constexpr char kGgufNoTokenizer[] = "no_vocab";
inline constexpr char kGgufWords[] = "tokenizer.ggml.pre";
inline constexpr char kGgufTokens[] = "tokenizer.ggml.tokens";
inline constexpr char kGgufTokenKinds[] = "tokenizer.ggml.token_type";
inline constexpr char kGgufMerges[] = "tokenizer.ggml.merges";
inline constexpr char kGgufBosToken[] = "tokenizer.ggml.bos_token_id";
inline constexpr char kGgufEosToken[] = "tokenizer.ggml.eos_token_id";
/// The token that ends a turn, where that is another one.
inline constexpr char kGgufEotToken[] = "tokenizer.ggml.eot_token_id";
inline constexpr char kGgufPadToken[] = "tokenizer.ggml.padding_token_id";
inline constexpr char kGgufAddBos[] = "tokenizer.ggml.add_bos_token";
inline constexpr char kGgufAddEos[] = "tokenizer.ggml.add_eos_token";
inline constexpr char kGgufChatTemplate[] = "tokenizer.chat_template";

/// The tokens that end an answer of Qwen's models, besides the named ones.
inline constexpr std::string_view kGgufEndTokens[] = {"<|im_end|>",
                                                      "<|endoftext|>"};

/// A value of kGgufWords that splits text by one of Qwen's regular expressions.
struct GgufWordRule {
  std::string_view name;
  bool marksJoinLetters;
};
/// The first row with a rule is the one to write.
inline constexpr GgufWordRule kGgufWordRules[] = {
    {"qwen2", false}, {"deepseek-r1-qwen", false}, {"qwen35", true}};

/// Values of kGgufTokenKinds.
enum GgufTokenKind : int32_t {
  GgufNormal = 1,
  GgufControl = 3,
  GgufUserDefined = 4,
  GgufUnused = 5,
};

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The name in a file of `architecture` of the tensor or module that a Hugging
/// Face model calls `name`, and the reverse: the same if there is none.
std::string ggufOwnName(Architecture architecture, std::string_view name);
std::string ggufModelName(Architecture architecture, std::string_view name);
/// The name in the Hugging Face model of the tensor `name` of layer `number` of
/// a draft head.
std::string ggufDraftName(Architecture architecture, std::string_view name,
                          int64_t number);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_GGUFKEYS_H
