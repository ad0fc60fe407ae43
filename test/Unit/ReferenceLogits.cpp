//===- ReferenceLogits.cpp - A checkpoint's logits in plain C++ -----------===//
//
// reference-logits CHECKPOINT WEIGHTS KV IDS OUT [NAME=FORMAT]...
//
// Reads config.json and model.safetensors itself, runs ReferenceModel.h and
// writes the logits of all positions as f32. NAME is a matrix with another
// format than WEIGHTS. test/Integration/random_models.py compares them.
//
//===----------------------------------------------------------------------===//

#include "ReferenceModel.h"
#include "Safetensors.h"

#include "qwen/ABI/Error.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Math.h"

#include <cstdio>
#include <map>
#include <span>
#include <sstream>

using namespace qwen;
using namespace qwen::test;

namespace {
/// Reads a model from a folder.
class Checkpoint {
public:
  /// Matrices get the format `weights`, but those that `others` names.
  Checkpoint(const std::string &folder, WeightFormat weights,
             std::map<std::string, WeightFormat> others)
      : file(folder + "/model.safetensors"), format(weights),
        formats(std::move(others)) {
    std::ifstream text(folder + "/config.json");
    config = nlohmann::json::parse(text);
    heads = config.at("num_attention_heads");
    hidden = config.at("hidden_size");
    headDim = config.value("head_dim", hidden / heads);
  }

  ReferenceModel read(KvFormat cache) const {
    const int64_t vocab = config.at("vocab_size");
    ReferenceModel model = {
        config.at("num_key_value_heads"),
        headDim,
        static_cast<float>(config.at("rms_norm_eps").get<double>()),
        cache,
        {},
        vector("model.norm.weight"),
        matrix("model.embed_tokens", vocab, hidden),
        {},
        {}};
    readRope(model);
    if (!config.at("tie_word_embeddings").get<bool>())
      model.head = matrix("lm_head", vocab, hidden);
    for (int64_t i = 0; i < config.at("num_hidden_layers"); ++i)
      model.layers.push_back(layer("model.layers." + std::to_string(i) + "."));
    return model;
  }

private:
  void readRope(ReferenceModel &model) const {
    const double theta = config.at("rope_theta");
    const auto scaling = config.find("rope_scaling");
    const bool isYarn = scaling != config.end() && !scaling->is_null();
    for (int64_t i = 0; i < headDim / 2; ++i)
      model.frequencies.push_back(
          isYarn ? numerics::yarnInvFreq(
                       theta, i, headDim,
                       {scaling->at("factor"),
                        scaling->at("original_max_position_embeddings")})
                 : numerics::ropeInvFreq(theta, i, headDim));
    if (isYarn)
      model.ropeScale = static_cast<float>(
          numerics::yarnAttentionFactor(scaling->at("factor")));
  }

  ReferenceLayer layer(const std::string &path) const {
    const int64_t q = heads * headDim,
                  k = config.at("num_key_value_heads").get<int64_t>() * headDim,
                  ffn = config.at("intermediate_size");
    const bool qwen3 = config.at("model_type") == "qwen3";
    const std::string attention = path + "self_attn.";
    const auto bias = [&](const std::string &name) {
      return qwen3 ? Values() : vector(attention + name + "_proj.bias");
    };
    const auto norm = [&](const std::string &name) {
      return qwen3 ? vector(attention + name + "_norm.weight") : Values();
    };
    return {vector(path + "input_layernorm.weight"),
            vector(path + "post_attention_layernorm.weight"),
            norm("q"),
            norm("k"),
            bias("q"),
            bias("k"),
            bias("v"),
            matrix(attention + "q_proj", q, hidden),
            matrix(attention + "k_proj", k, hidden),
            matrix(attention + "v_proj", k, hidden),
            matrix(attention + "o_proj", hidden, q),
            matrix(path + "mlp.gate_proj", ffn, hidden),
            matrix(path + "mlp.up_proj", ffn, hidden),
            matrix(path + "mlp.down_proj", hidden, ffn)};
  }

  /// A tensor of any type as f32.
  Values vector(const std::string &name) const {
    const std::string type = file.tensors().at(name).at("dtype");
    if (type == "F32")
      return file.get<float>(name);
    Values result;
    for (uint16_t bits : file.get<uint16_t>(name))
      result.push_back(type == "BF16" ? bf16ToF32(bits) : f16ToF32(bits));
    return result;
  }

  Matrix matrix(const std::string &path, int64_t n, int64_t k) const {
    const std::string name = path + ".weight";
    const auto other = formats.find(name);
    return {other == formats.end() ? format : other->second, n, k,
            vector(name)};
  }

  Safetensors file;
  WeightFormat format;
  std::map<std::string, WeightFormat> formats;
  nlohmann::json config;
  int64_t heads, headDim, hidden;
};

WeightFormat formatOf(const std::string &name) {
  if (const auto format = parseWeightFormat(name))
    return *format;
  throw Error("format '" + name + "' when " + weightFormatList() +
              " is needed");
}

void write(const std::vector<std::string> &arguments) {
  std::map<std::string, WeightFormat> others;
  for (const std::string &rule : std::span(arguments).subspan(5)) {
    const size_t split = rule.rfind('=');
    others[rule.substr(0, split)] = formatOf(rule.substr(split + 1));
  }
  const ReferenceModel model =
      Checkpoint(arguments[0], formatOf(arguments[1]), std::move(others))
          .read(parseKvFormat(arguments[2]).value());
  ReferenceSequence sequence(model);
  std::ofstream out(arguments[4], std::ios::binary);
  std::istringstream ids(arguments[3]);
  for (std::string id; std::getline(ids, id, ',');) {
    const Values logits = model.logits(sequence.next(std::stoi(id)));
    out.write(reinterpret_cast<const char *>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  out.close();
  if (!out)
    throw Error("cannot write " + arguments[4]);
}
} // namespace

int main(int argc, char **argv) {
  try {
    if (argc < 6)
      throw Error("usage: reference-logits CHECKPOINT WEIGHTS KV IDS OUT "
                  "[NAME=FORMAT]...");
    write({argv + 1, argv + argc});
  } catch (const std::exception &error) {
    fprintf(stderr, "reference-logits: %s\n", error.what());
    return 1;
  }
  return 0;
}
