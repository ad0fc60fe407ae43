//===- ReferenceModel.cpp - A model in plain C++ --------------------------===//

#include "ReferenceModel.h"

#include "qwen/ABI/Error.h"
#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Kernels.h"

#include <algorithm>
#include <cmath>

using namespace qwen;
using namespace qwen::test;

static Values zeros(int64_t n) { return Values(static_cast<size_t>(n)); }

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Matrix::Matrix(WeightFormat format, int64_t n, int64_t k, const Values &values)
    : format(format), n(n), k(k),
      panels(static_cast<size_t>(packedBytes(format, n, k))) {
  for (int64_t begin = 0; begin < n; begin += kPanelOutputs) {
    const float *outputs[kPanelOutputs] = {};
    for (int64_t r = 0; r < std::min(kPanelOutputs, n - begin); ++r)
      outputs[r] = values.data() + (begin + r) * k;
    uint8_t *panel =
        panels.data() + begin / kPanelOutputs * panelBytes(format, k);
    if (numerics::packPanel(format, outputs, k, panel) !=
        numerics::EncodeStatus::Ok)
      throw Error("a matrix cannot be packed");
  }
}

Values Matrix::output(int32_t id) const {
  Values result = zeros(k);
  numerics::reference<KernelOp::Embed>(kernelFormat(format))(panels.data(), id,
                                                             k, result.data());
  return result;
}

Values Matrix::times(const Values &x, Values bias, Values residual) const {
  const int64_t padded = alignTo(n, kPanelOutputs);
  const auto pad = [&](Values &values) {
    if (!values.empty())
      values.resize(static_cast<size_t>(padded));
    return values.empty() ? nullptr : values.data();
  };
  Values out = zeros(padded);
  if (!isQuantized(format)) {
    numerics::reference<KernelOp::LinearF32>(kernelFormat(format))(
        x.data(), panels.data(), pad(bias), pad(residual), out.data(), 1, k,
        padded, 0, padded / kPanelOutputs);
  } else {
    std::vector<int8_t> q(static_cast<size_t>(k));
    std::vector<int32_t> sums(static_cast<size_t>(k / kGroup));
    Values d = zeros(ceilDiv(k, kActivationBlock));
    if (numerics::quantizeQ8(x.data(), k, q.data(), d.data(), sums.data()))
      throw Error("an activation is not finite");
    numerics::reference<KernelOp::LinearQ8>(kernelFormat(format))(
        q.data(), d.data(), sums.data(), panels.data(), pad(bias),
        pad(residual), out.data(), 1, k, padded, 0, padded / kPanelOutputs);
  }
  out.resize(static_cast<size_t>(n));
  return out;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

Values Rotation::rotated(const Values &x, const Values &norm) const {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(headDim))
    if (norm.empty())
      numerics::rope(&x[i], cos.data(), sin.data(), headDim / 2, &y[i]);
    else
      numerics::normRope(&x[i], norm.data(), cos.data(), sin.data(),
                         headDim / 2, eps, &y[i]);
  return y;
}

void AttentionCache::append(const Values &k, const Values &v) {
  const int64_t slot = positions++ % kPageTokens;
  if (slot == 0)
    for (auto *pages : {&keys, &values})
      pages->emplace_back(static_cast<size_t>(kvHeads * headBytes()));
  int32_t bad = 0;
  for (int64_t head = 0; head < kvHeads; ++head) {
    bad |= numerics::reference<KernelOp::AppendK>(kernelFormat(format))(
        &k[static_cast<size_t>(head * headDim)], headDim,
        keys.back().data() + head * headBytes() +
            slot * kvElementBytes(format));
    bad |= numerics::reference<KernelOp::AppendV>(kernelFormat(format))(
        &v[static_cast<size_t>(head * headDim)], headDim,
        values.back().data() + head * headBytes() +
            slot * headDim * kvElementBytes(format));
  }
  if (bad)
    throw Error("a key or value is not finite");
}

Values AttentionCache::attend(const Values &queries) const {
  const auto scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(headDim)));
  const auto scores =
      numerics::reference<KernelOp::AttentionScores>(kernelFormat(format));
  const auto sums =
      numerics::reference<KernelOp::AttentionValues>(kernelFormat(format));
  const int64_t heads = static_cast<int64_t>(queries.size()) / headDim;
  Values result = zeros(heads * headDim);
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t offset = head / (heads / kvHeads) * headBytes();
    // M, L and O, padded as in KernelABI.h.
    Values state;
    for (size_t page = 0; page < keys.size(); ++page) {
      const int64_t n = std::min(
          kPageTokens, positions - static_cast<int64_t>(page) * kPageTokens);
      float s[kPageTokens], p[kPageTokens];
      Values of = zeros(2 * kStateQueries + headDim);
      scores(&queries[static_cast<size_t>(head * headDim)],
             keys[page].data() + offset, scale, s, 1, headDim, n, nullptr);
      numerics::softmaxPage(s, 1, n, p, &of[0], &of[kStateQueries]);
      sums(p, values[page].data() + offset, &of[2 * kStateQueries], 1, headDim,
           n, nullptr);
      if (page == 0)
        state = of;
      else
        numerics::mergePage(state.data(), of.data(), 1, headDim, state.data());
    }
    numerics::finishAttention(&state[2 * kStateQueries], state[kStateQueries],
                              headDim,
                              &result[static_cast<size_t>(head * headDim)]);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

ReferenceSequence::ReferenceSequence(const ReferenceModel &model)
    : model(model),
      caches(model.layers.size(), {model.cache, model.kvHeads, model.headDim}) {
}

Values ReferenceSequence::next(int32_t id) {
  const auto normed = [&](const Values &x, const Values &w) {
    Values y(x.size());
    numerics::rmsNormF32(x.data(), w.data(), static_cast<int64_t>(x.size()),
                         model.eps, y.data());
    return y;
  };
  const int64_t half = model.headDim / 2;
  Rotation rotation = {model.headDim, model.eps, zeros(half), zeros(half)};
  numerics::ropeTable(position++, model.frequencies.data(), half,
                      rotation.cos.data(), rotation.sin.data());
  for (Values *values : {&rotation.cos, &rotation.sin})
    for (float &value : *values)
      value *= model.ropeScale;
  Values x = model.embedding.output(id);
  for (size_t i = 0; i < caches.size(); ++i) {
    const ReferenceLayer &layer = model.layers[i];
    const Values h = normed(x, layer.inputNorm);
    const Values q =
        rotation.rotated(layer.q.times(h, layer.qBias), layer.qNorm);
    caches[i].append(
        rotation.rotated(layer.k.times(h, layer.kBias), layer.kNorm),
        layer.v.times(h, layer.vBias));
    x = layer.o.times(caches[i].attend(q), {}, x);
    const Values g = normed(x, layer.postNorm);
    const Values gate = layer.gate.times(g), up = layer.up.times(g);
    Values y(gate.size());
    numerics::swiGluF32(gate.data(), up.data(), layer.gate.n, y.data());
    x = layer.down.times(y, {}, x);
  }
  return normed(x, model.finalNorm);
}
