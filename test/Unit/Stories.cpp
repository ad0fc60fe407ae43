//===- Stories.cpp - models/stories in plain C++ --------------------------===//

#include "Stories.h"

#include "Safetensors.h"

#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"

using namespace qwen;
using namespace qwen::test;

ReferenceModel test::readStories() {
  const Safetensors file(kStories + "/model.safetensors");
  const auto vector = [&](const std::string &name) {
    Values values;
    for (uint16_t bits : file.get<uint16_t>("model." + name + ".weight"))
      values.push_back(bf16ToF32(bits));
    return values;
  };
  const auto matrix = [&](const std::string &name, int64_t n, int64_t k) {
    return Matrix(WeightFormat::F32, n, k, vector(name));
  };
  ReferenceModel model = {
      .kvHeads = 2,
      .headDim = 64,
      .eps = 1e-6f,
      .cache = KvFormat::F32,
      .frequencies = {},
      .finalNorm = vector("norm"),
      .embedding = matrix("embed_tokens", kStoriesVocab, kStoriesHidden),
      .head = {},
      .layers = {}};
  for (int64_t i = 0; i < 32; ++i)
    model.frequencies.push_back(numerics::ropeInvFreq(10000, i, 64));
  for (int64_t i = 0; i < kStoriesLayers; ++i) {
    const std::string path = "layers." + std::to_string(i);
    ReferenceLayer &layer = model.layers.emplace_back();
    layer.inputNorm = vector(path + ".input_layernorm");
    layer.postNorm = vector(path + ".post_attention_layernorm");
    layer.qNorm = vector(path + ".self_attn.q_norm");
    layer.kNorm = vector(path + ".self_attn.k_norm");
    layer.q = matrix(path + ".self_attn.q_proj", 384, kStoriesHidden);
    layer.k = matrix(path + ".self_attn.k_proj", 128, kStoriesHidden);
    layer.v = matrix(path + ".self_attn.v_proj", 128, kStoriesHidden);
    layer.o = matrix(path + ".self_attn.o_proj", kStoriesHidden, 384);
    layer.gate = matrix(path + ".mlp.gate_proj", 768, kStoriesHidden);
    layer.up = matrix(path + ".mlp.up_proj", 768, kStoriesHidden);
    layer.down = matrix(path + ".mlp.down_proj", kStoriesHidden, 768);
  }
  return model;
}
