//===- ReferenceLogits.cpp - A checkpoint's logits in plain C++ -----------===//
//
// reference-logits CHECKPOINT WEIGHTS KV IDS OUT [NAME=FORMAT]...
//
// The model written out with the kernels of lib/Numerics, one token after the
// other. Reads config.json and model.safetensors itself, so that it has nothing
// in common with the compiler but the encoders, and writes the logits of all
// positions as f32. NAME is a matrix with another format than WEIGHTS.
// test/Integration/random_models.py compares them.
//
//===----------------------------------------------------------------------===//

#include "Safetensors.h"

#include "qwen/ABI/Error.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Float16.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <span>
#include <sstream>

using namespace qwen;
using Row = std::vector<float>;

namespace {
Row zeros(int64_t n) { return Row(static_cast<size_t>(n)); }

/// A packed matrix [n][k] and its products.
struct Matrix {
  WeightFormat format;
  int64_t n, k;
  std::vector<uint8_t> panels;

  Matrix(WeightFormat format, int64_t n, int64_t k, const Row &values)
      : format(format), n(n), k(k),
        panels(static_cast<size_t>(packedBytes(format, n, k))) {
    for (int64_t begin = 0; begin < n; begin += kPanelOutputs) {
      const float *rows[kPanelOutputs] = {};
      for (int64_t r = 0; r < std::min(kPanelOutputs, n - begin); ++r)
        rows[r] = values.data() + (begin + r) * k;
      uint8_t *panel =
          panels.data() + begin / kPanelOutputs * panelBytes(format, k);
      if (numerics::packPanel(format, rows, k, panel) !=
          numerics::EncodeStatus::Ok)
        throw Error("a matrix cannot be packed");
    }
  }

  Row row(int32_t id) const {
    Row result = zeros(k);
    numerics::reference<KernelOp::Embed>(kernelFormat(format))(
        panels.data(), id, k, result.data());
    return result;
  }

  /// `bias` and `residual` may be empty.
  Row times(const Row &x, Row bias = {}, Row residual = {}) const {
    const int64_t padded = alignTo(n, kPanelOutputs);
    const auto pad = [&](Row &values) {
      if (!values.empty())
        values.resize(static_cast<size_t>(padded));
      return values.empty() ? nullptr : values.data();
    };
    Row out = zeros(padded);
    if (!isQuantized(format)) {
      numerics::reference<KernelOp::LinearF32>(kernelFormat(format))(
          x.data(), panels.data(), pad(bias), pad(residual), out.data(), 1, k,
          padded, 0, padded / kPanelOutputs);
    } else {
      std::vector<int8_t> q(static_cast<size_t>(k));
      std::vector<int32_t> sums(static_cast<size_t>(k / kGroup));
      Row d = zeros(ceilDiv(k, kActivationBlock));
      if (numerics::quantizeQ8(x.data(), k, q.data(), d.data(), sums.data()))
        throw Error("an activation is not finite");
      numerics::reference<KernelOp::LinearQ8>(kernelFormat(format))(
          q.data(), d.data(), sums.data(), panels.data(), pad(bias),
          pad(residual), out.data(), 1, k, padded, 0, padded / kPanelOutputs);
    }
    out.resize(static_cast<size_t>(n));
    return out;
  }
};

class Model {
public:
  /// Matrices have the format `weights`, but those that `others` names.
  Model(const std::string &folder, WeightFormat weights,
        std::map<std::string, WeightFormat> others, KvFormat kv)
      : file(folder + "/model.safetensors"), format(weights),
        formats(std::move(others)), cache(kv) {
    std::ifstream text(folder + "/config.json");
    const auto config = nlohmann::json::parse(text);
    heads = config.at("num_attention_heads");
    kvHeads = config.at("num_key_value_heads");
    hidden = config.at("hidden_size");
    ffn = config.at("intermediate_size");
    vocab = config.at("vocab_size");
    headDim = config.value("head_dim", hidden / heads);
    eps = static_cast<float>(config.at("rms_norm_eps").get<double>());
    qwen3 = config.at("model_type") == "qwen3";
    for (int64_t i = 0; i < headDim / 2; ++i)
      frequencies.push_back(
          numerics::ropeInvFreq(config.at("rope_theta"), i, headDim));
    embedding.push_back(matrix("model.embed_tokens", vocab, hidden));
    if (!config.at("tie_word_embeddings").get<bool>())
      embedding.push_back(matrix("lm_head", vocab, hidden));
    finalNorm = vector("model.norm.weight");
    const int64_t q = heads * headDim, k = kvHeads * headDim;
    for (int64_t i = 0; i < config.at("num_hidden_layers"); ++i) {
      const std::string p = "model.layers." + std::to_string(i) + ".";
      const auto bias = [&](const std::string &name) {
        return qwen3 ? Row() : vector(p + "self_attn." + name + "_proj.bias");
      };
      const auto norm = [&](const std::string &name) {
        return qwen3 ? vector(p + "self_attn." + name + "_norm.weight") : Row();
      };
      layers.push_back({vector(p + "input_layernorm.weight"),
                        vector(p + "post_attention_layernorm.weight"),
                        norm("q"),
                        norm("k"),
                        bias("q"),
                        bias("k"),
                        bias("v"),
                        matrix(p + "self_attn.q_proj", q, hidden),
                        matrix(p + "self_attn.k_proj", k, hidden),
                        matrix(p + "self_attn.v_proj", k, hidden),
                        matrix(p + "self_attn.o_proj", hidden, q),
                        matrix(p + "mlp.gate_proj", ffn, hidden),
                        matrix(p + "mlp.up_proj", ffn, hidden),
                        matrix(p + "mlp.down_proj", hidden, ffn),
                        {},
                        {}});
    }
  }

  /// Runs the token at the next position.
  Row logits(int32_t id) {
    Row cos = zeros(headDim / 2), sin = zeros(headDim / 2);
    numerics::ropeTable(static_cast<int32_t>(position), frequencies.data(),
                        headDim / 2, cos.data(), sin.data());
    Row x = embedding.front().row(id);
    for (Layer &layer : layers) {
      const Row h = normed(x, layer.inputNorm);
      const Row q =
          rotated(layer.q.times(h, layer.qBias), layer.qNorm, cos, sin);
      append(layer,
             rotated(layer.k.times(h, layer.kBias), layer.kNorm, cos, sin),
             layer.v.times(h, layer.vBias));
      x = layer.o.times(attention(layer, q), {}, x);
      const Row g = normed(x, layer.postNorm);
      const Row gate = layer.gate.times(g), up = layer.up.times(g);
      Row y = zeros(ffn);
      numerics::swiGluF32(gate.data(), up.data(), ffn, y.data());
      x = layer.down.times(y, {}, x);
    }
    ++position;
    return embedding.back().times(normed(x, finalNorm));
  }

private:
  struct Layer {
    Row inputNorm, postNorm, qNorm, kNorm, qBias, kBias, vBias;
    Matrix q, k, v, o, gate, up, down;
    /// Pages of keys [kv head][d][64] and of values [kv head][64][d].
    std::vector<std::vector<uint8_t>> keys, values;
  };

  /// A tensor of any type as f32.
  Row vector(const std::string &name) const {
    const std::string type = file.tensors().at(name).at("dtype");
    if (type == "F32")
      return file.get<float>(name);
    Row result;
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

  Row normed(const Row &x, const Row &w) const {
    Row y = zeros(hidden);
    numerics::rmsNormF32(x.data(), w.data(), hidden, eps, y.data());
    return y;
  }

  /// All heads of x, normed first where the model has a norm for them.
  Row rotated(const Row &x, const Row &norm, const Row &cos,
              const Row &sin) const {
    Row y(x.size());
    for (size_t i = 0; i < x.size(); i += static_cast<size_t>(headDim))
      if (norm.empty())
        numerics::rope(&x[i], cos.data(), sin.data(), headDim / 2, &y[i]);
      else
        numerics::normRope(&x[i], norm.data(), cos.data(), sin.data(),
                           headDim / 2, eps, &y[i]);
    return y;
  }

  /// Bytes of one head of a page.
  int64_t headBytes() const {
    return headDim * kPageTokens * kvElementBytes(cache);
  }

  void append(Layer &layer, const Row &k, const Row &v) const {
    const int64_t slot = position % kPageTokens;
    if (slot == 0)
      for (auto *pages : {&layer.keys, &layer.values})
        pages->emplace_back(static_cast<size_t>(kvHeads * headBytes()));
    int32_t flag = 0;
    for (int64_t head = 0; head < kvHeads; ++head) {
      flag |= numerics::reference<KernelOp::AppendK>(kernelFormat(cache))(
          &k[static_cast<size_t>(head * headDim)], headDim,
          layer.keys.back().data() + head * headBytes() +
              slot * kvElementBytes(cache));
      flag |= numerics::reference<KernelOp::AppendV>(kernelFormat(cache))(
          &v[static_cast<size_t>(head * headDim)], headDim,
          layer.values.back().data() + head * headBytes() +
              slot * headDim * kvElementBytes(cache));
    }
    if (flag)
      throw Error("a key or value is not finite");
  }

  Row attention(const Layer &layer, const Row &q) const {
    const auto scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(headDim)));
    const auto scores =
        numerics::reference<KernelOp::AttentionScores>(kernelFormat(cache));
    const auto sums =
        numerics::reference<KernelOp::AttentionValues>(kernelFormat(cache));
    Row result = zeros(heads * headDim);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t offset = head / (heads / kvHeads) * headBytes();
      // M, L and O, padded as in KernelABI.h.
      Row state;
      for (size_t page = 0; page < layer.keys.size(); ++page) {
        const int64_t n =
            std::min(kPageTokens,
                     position + 1 - static_cast<int64_t>(page) * kPageTokens);
        float s[kPageTokens], p[kPageTokens];
        Row of = zeros(2 * kStateQueries + headDim);
        scores(&q[static_cast<size_t>(head * headDim)],
               layer.keys[page].data() + offset, scale, s, 1, headDim, n,
               nullptr);
        numerics::softmaxPage(s, 1, n, p, &of[0], &of[kStateQueries]);
        sums(p, layer.values[page].data() + offset, &of[2 * kStateQueries], 1,
             headDim, n, nullptr);
        if (page == 0)
          state = of;
        else
          numerics::mergePage(state.data(), of.data(), 1, headDim,
                              state.data());
      }
      numerics::finishAttention(&state[2 * kStateQueries], state[kStateQueries],
                                headDim,
                                &result[static_cast<size_t>(head * headDim)]);
    }
    return result;
  }

  Safetensors file;
  WeightFormat format;
  std::map<std::string, WeightFormat> formats;
  KvFormat cache;
  int64_t heads, kvHeads, headDim, hidden, ffn, vocab;
  float eps;
  bool qwen3;
  Row frequencies, finalNorm;
  /// The embedding, and behind it the head where it is another matrix.
  std::vector<Matrix> embedding;
  std::vector<Layer> layers;
  int64_t position = 0;
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
  Model model(arguments[0], formatOf(arguments[1]), std::move(others),
              parseKvFormat(arguments[2]).value());
  std::ofstream out(arguments[4], std::ios::binary);
  std::istringstream ids(arguments[3]);
  for (std::string id; std::getline(ids, id, ',');) {
    const Row logits = model.logits(std::stoi(id));
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
