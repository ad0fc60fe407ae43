//===- Qwen1.cpp - Keys and tensors of Qwen 1 -----------------------------===//

#include "Qwen1.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/Text.h"

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// config.json
//===----------------------------------------------------------------------===//

/// Rejects a `key` that would make it another model.
static void requireFlag(const JsonValue &root, const char *key, bool needed) {
  if (const auto found = root.findValue(key);
      found && found->boolean() != needed)
    found->refuse(needed ? "supported is true" : "supported is false");
}

static void refuseUnsupported(const JsonValue &root) {
  for (const auto &[key, needed] :
       {std::pair("no_bias", true), std::pair("scale_attn_weights", true),
        std::pair("apply_residual_connection_post_layernorm", false),
        std::pair("use_cache_quantization", false)})
    requireFlag(root, key, needed);
  for (const auto &[key, needed] :
       {std::pair("activation", "swiglu"), std::pair("pos_emb", "rotary")})
    if (const auto found = root.findValue(key);
        found && found->string() != needed)
      found->refuse("supported is \"" + std::string(needed) + "\"");
  if (const auto part = root.findValue("rotary_pct");
      part && part->number(0, 1) != 1)
    part->refuse("supported is 1");
}

void qwen::parseQwen1Config(const JsonValue &root, const std::string &path,
                            ModelConfig &model) {
  // The first checkpoints have the names of GPT-2.
  const auto at = [&](const char *key, const char *old) {
    return root.at(!root.find(key) && root.find(old) ? old : key);
  };
  refuseUnsupported(root);
  model.vocabSize = root.at("vocab_size").integer(1, INT32_MAX);
  model.hiddenSize = at("hidden_size", "n_embd").integer(1, kMaxModelWidth);
  model.layers = at("num_hidden_layers", "n_layer").integer(1, kMaxModelCount);
  model.heads = at("num_attention_heads", "n_head").integer(1, kMaxModelCount);
  model.kvHeads = model.heads;
  model.headDim = root.at("kv_channels").integer(1, kMaxModelCount);
  // The key counts w1 and w2.
  model.intermediateSize = at("intermediate_size", "ffn_hidden_size")
                               .multiple(2, 2, 2 * kMaxModelWidth) /
                           2;
  checkSizes(path, model);

  model.rotatedDim = model.headDim;
  model.ropeTheta = root.at("rotary_emb_base").number(1e-30, 1e30);
  model.rmsNormEps = root.at("layer_norm_epsilon").number(1e-30, 1);
  const auto tied = root.findValue("tie_word_embeddings");
  model.tied = tied && tied->boolean();
  const auto flag = [&](const char *key) {
    const auto found = root.findValue(key);
    return !found || found->boolean();
  };
  const bool isBounded = flag("use_dynamic_ntk") || flag("use_logn_attn");
  model.maxPosition = (isBounded ? root.at("seq_length")
                                 : at("max_position_embeddings", "n_positions"))
                          .integer(1, kMaxModelPosition);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

namespace {
/// The name of a module in a Qwen 1 and in a Qwen2.
struct ModuleName {
  std::string_view own;
  std::string_view model;
};
} // namespace

static constexpr ModuleName kModules[] = {
    {"transformer.wte.", "model.embed_tokens."},
    {"transformer.ln_f.", "model.norm."},
};
static constexpr ModuleName kLayer = {"transformer.h.", "model.layers."};
static constexpr std::string_view kFused = ".attn.c_attn.";
static constexpr ModuleName kLayerModules[] = {
    {".ln_1.", ".input_layernorm."},
    {".ln_2.", ".post_attention_layernorm."},
    {kFused, ".self_attn.q_proj."},
    {kFused, ".self_attn.k_proj."},
    {kFused, ".self_attn.v_proj."},
    {".attn.c_proj.", ".self_attn.o_proj."},
    // c_proj(w1(x) * silu(w2(x))).
    {".mlp.w1.", ".mlp.up_proj."},
    {".mlp.w2.", ".mlp.gate_proj."},
    {".mlp.c_proj.", ".mlp.down_proj."},
};

/// The names that the tensor `name` has by `to`, if it has one by `from`.
static std::vector<std::string> renamed(std::string_view name,
                                        std::string_view ModuleName::*from,
                                        std::string_view ModuleName::*to) {
  for (const ModuleName &module : kModules)
    if (name.starts_with(module.*from))
      return {std::string(module.*to) +
              std::string(name.substr((module.*from).size()))};
  std::vector<std::string> names;
  if (name.starts_with(kLayer.*from)) {
    const size_t begin = (kLayer.*from).size();
    const size_t dot = std::min(name.find('.', begin), name.size());
    const std::string_view number = name.substr(begin, dot - begin);
    const std::string_view rest = name.substr(dot);
    for (const ModuleName &module : kLayerModules)
      if (rest.starts_with(module.*from))
        names.push_back(std::string(kLayer.*to) + std::string(number) +
                        std::string(module.*to) +
                        std::string(rest.substr((module.*from).size())));
  }
  return names.empty() ? std::vector{std::string(name)} : names;
}

std::string qwen::qwen1Name(std::string_view name) {
  return renamed(name, &ModuleName::model, &ModuleName::own).front();
}

/// Part `index` of `count` equal parts of the outputs of `tensor`.
static StoredTensor partOf(const StoredTensor &tensor, size_t index,
                           size_t count, const std::string &path) {
  const auto parts = static_cast<int64_t>(count);
  if (tensor.shape.empty() || tensor.shape.front() % parts != 0)
    throw Error(path + ": tensor " + quote(tensor.name) +
                " has no equal parts for q, k and v");
  StoredTensor part = tensor;
  part.shape.front() /= parts;
  const size_t bytes = tensor.bytes.size() / count;
  part.offset += index * bytes;
  part.bytes = tensor.bytes.subspan(index * bytes, bytes);
  return part;
}

StoredTensors qwen::nameAsQwen2(StoredTensors tensors) {
  const auto all = tensors.takeAll();
  for (const auto &[own, tensor] : all) {
    const std::string path = (tensors.directory() / tensor.file).string();
    const auto names = renamed(own, &ModuleName::own, &ModuleName::model);
    const size_t parts = names.size();
    for (size_t i = 0; i < parts; ++i)
      if (!tensors.add(names[i],
                       parts == 1 ? tensor : partOf(tensor, i, parts, path)))
        throw Error(path + ": tensor " + quote(tensor.name) +
                    " has the name of another tensor in the model");
  }
  return tensors;
}
