//===- Qwen1.cpp - Keys and tensors of Qwen 1 -----------------------------===//

#include "Qwen1.h"

#include "ModelReader.h"
#include "ModuleNames.h"

#include "qwen/Import/Checkpoint/ModelScope.h"
#include "qwen/Support/Error.h"
#include "qwen/Weights/Sources.h"

#include <array>

using namespace qwen;

//===----------------------------------------------------------------------===//
// config.json
//===----------------------------------------------------------------------===//

static constexpr SizeKey kQwen1Sizes[] = {
    {&ModelShape::vocabSize, "vocab_size"},
    {&ModelShape::hiddenSize, "hidden_size", "n_embd"},
    {&ModelShape::layers, "num_hidden_layers", "n_layer"},
    {&ModelShape::heads, "num_attention_heads", "n_head"}};

void qwen::parseQwen1Config(const JsonValue &root, const std::string &path,
                            ModelConfig &model) {
  // The first checkpoints have the names of GPT-2.
  const auto at = [&](const char *key, const char *old) {
    return root.at(!root.find(key) && root.find(old) ? old : key);
  };
  readSizes(
      kQwen1Sizes,
      [&](const SizeKey &key) {
        return key.older ? at(key.key, key.older) : root.at(key.key);
      },
      model);
  model.kvHeads = model.heads;
  model.headDim = root.at("kv_channels").integer(1, kMaxModelCount);
  model.layerKinds.resize(static_cast<size_t>(model.layers));
  model.setMlpKinds(std::vector<MlpKind>(model.layerKinds.size()));
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
  const bool hasNtk = flag("use_dynamic_ntk"), hasLogn = flag("use_logn_attn");
  model.maxPosition =
      (hasNtk || hasLogn ? root.at("seq_length")
                         : at("max_position_embeddings", "n_positions"))
          .integer(1, kMaxModelPosition);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static constexpr ModuleName kQwen1Modules[] = {
    {"model.embed_tokens", "transformer.wte"},
    {"model.norm", "transformer.ln_f"},
};
static constexpr std::string_view kQwen1Fused = ".attn.c_attn";
static constexpr std::string_view kProjections[] = {"q_proj", "k_proj",
                                                    "v_proj"};
static constexpr ModuleName kQwen1LayerModules[] = {
    {"input_layernorm", "ln_1"},
    {"post_attention_layernorm", "ln_2"},
    {"self_attn.q_proj", "attn.c_attn"},
    {"self_attn.k_proj", "attn.c_attn"},
    {"self_attn.v_proj", "attn.c_attn"},
    {"self_attn.o_proj", "attn.c_proj"},
    // c_proj(w1(x) * silu(w2(x))).
    {"mlp.up_proj", "mlp.w1"},
    {"mlp.gate_proj", "mlp.w2"},
    {"mlp.down_proj", "mlp.c_proj"},
};
static constexpr ModuleNames kNames = {
    {kTextLayers, "transformer.h."}, kQwen1Modules, kQwen1LayerModules};

std::string qwen::qwen1Name(std::string_view name) {
  return kNames.rename(name, &ModuleName::model, &ModuleName::own);
}

std::string qwen::qwen2Name(std::string_view own) {
  return own.find(kQwen1Fused) == own.npos
             ? kNames.rename(own, &ModuleName::own, &ModuleName::model)
             : std::string(own);
}

StoredTensors qwen::nameAsQwen2(StoredTensors tensors) {
  for (const auto &[own, tensor] : tensors.takeAll()) {
    if (!tensors.add(qwen2Name(own), tensor))
      throw Error(describeTensor(tensor) +
                  " has the name of another tensor in the model");
  }
  return tensors;
}

void qwen::divideQwen1Projections(WeightSources &sources) {
  for (const auto &[own, fused] : sources.all()) {
    // With the name of its first part.
    const std::string name =
        kNames.rename(own, &ModuleName::own, &ModuleName::model);
    const size_t at = name.find(kProjections[0]);
    if (own.find(kQwen1Fused) == own.npos || at == name.npos)
      continue;
    std::array<NamedOutputs, std::size(kProjections)> parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = {name, fused.source->shape().outputs() / std::ssize(parts)};
      parts[i].name.replace(at, kProjections[0].size(), kProjections[i]);
    }
    addProjections(sources, fused, parts);
  }
}
