//===- ReferenceModel.cpp - A model in plain C++ --------------------------===//

#include "ReferenceModel.h"

#include "qwen/Numerics/Encode.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/Stored.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace qwen;
using namespace qwen::test;

static Values zeros(int64_t n) { return Values(static_cast<size_t>(n)); }

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Matrix::Matrix(WeightFormat format, int64_t n, int64_t k, const Values &values)
    : Matrix(format, n, k, StoredType::F32,
             reinterpret_cast<const uint8_t *>(values.data())) {}

Matrix::Matrix(WeightFormat format, int64_t n, int64_t k, StoredType type,
               const uint8_t *stored)
    : format(format), n(n), k(k),
      panels(static_cast<size_t>(packedBytes(format, n, k))) {
  Values values = zeros(kPanelOutputs * k);
  for (int64_t begin = 0; begin < n; begin += kPanelOutputs) {
    const int64_t count = std::min(kPanelOutputs, n - begin);
    const auto storedOutput = [&](int64_t i) {
      return stored + storedBytes(type, (begin + i) * k);
    };
    const float *outputs[kPanelOutputs] = {};
    for (int64_t i = 0; i < count; ++i)
      if (!numerics::canKeep(format, type, storedOutput(i), k)) {
        numerics::dequantize(type, storedOutput(i), k, values.data() + i * k);
        outputs[i] = values.data() + i * k;
      }
    uint8_t *panel =
        panels.data() + begin / kPanelOutputs * panelBytes(format, k);
    if (numerics::packPanel(format, outputs, k, panel) !=
        numerics::EncodeStatus::Ok)
      throw Error("a matrix cannot be packed");
    for (int64_t i = 0; i < count; ++i)
      if (!outputs[i])
        numerics::keepOutput(format, type, storedOutput(i), k, i, panel);
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
  const auto half = static_cast<int64_t>(cos.size());
  Values y = x;
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(headDim)) {
    if (!norm.empty() && 2 * half == headDim) {
      numerics::normRope(&x[i], norm.data(), cos.data(), sin.data(), half, eps,
                         &y[i]);
      continue;
    }
    Values head(&x[i], &x[i] + headDim);
    if (!norm.empty())
      numerics::rmsNormF32(&x[i], norm.data(), headDim, eps, head.data());
    std::ranges::copy(head, &y[i]);
    numerics::rope(head.data(), cos.data(), sin.data(), half, &y[i]);
  }
  return y;
}

KvKernels::KvKernels(KvFormat format)
    : KvKernels(
          layoutOf(format),
          numerics::reference<KernelOp::AppendK>(kernelFormat(format)),
          numerics::reference<KernelOp::AppendV>(kernelFormat(format)),
          numerics::reference<KernelOp::AttentionScores>(kernelFormat(format)),
          numerics::reference<KernelOp::AttentionValues>(
              kernelFormat(format))) {
  if (!layout.isFloat())
    encodeQuery =
        numerics::reference<KernelOp::EncodeQuery>(kernelFormat(format));
}

void AttentionCache::append(const Values &k, const Values &v) {
  const int64_t slot = positions++ % kPageTokens;
  if (slot == 0)
    for (auto *pages : {&keys, &values})
      pages->emplace_back(static_cast<size_t>(kvHeads * headBytes()));
  int32_t bad = 0;
  for (int64_t head = 0; head < kvHeads; ++head) {
    bad |= kernels.appendK(&k[static_cast<size_t>(head * headDim)], headDim,
                           slot, keys.back().data() + head * headBytes());
    bad |= kernels.appendV(&v[static_cast<size_t>(head * headDim)], headDim,
                           slot, values.back().data() + head * headBytes());
  }
  if (bad)
    throw Error("a key or value is not finite");
}

Values AttentionCache::attend(const Values &queries) const {
  const auto scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(headDim)));
  const int64_t heads = static_cast<int64_t>(queries.size()) / headDim;
  Values result = zeros(heads * headDim);
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t offset = head / (heads / kvHeads) * headBytes();
    const float *x = &queries[static_cast<size_t>(head * headDim)];
    std::vector<uint8_t> codes(static_cast<size_t>(KvQuery::bytes(headDim)));
    if (kernels.encodeQuery && kernels.encodeQuery(x, headDim, codes.data()))
      throw Error("a query is not finite");
    const void *query =
        kernels.encodeQuery ? static_cast<void *>(codes.data()) : x;
    // M, L and O, padded as in KernelABI.h.
    Values state;
    for (size_t page = 0; page < keys.size(); ++page) {
      const int64_t n = std::min(
          kPageTokens, positions - static_cast<int64_t>(page) * kPageTokens);
      float s[kPageTokens], p[kPageTokens];
      Values of = zeros(2 * kStateQueries + headDim);
      kernels.scores(query, keys[page].data() + offset, scale, s, 1, headDim, n,
                     nullptr);
      numerics::softmaxPage(s, 1, n, p, &of[0], &of[kStateQueries]);
      kernels.values(p, values[page].data() + offset, &of[2 * kStateQueries], 1,
                     headDim, n, nullptr);
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

static Values normed(const Values &x, const Values &w, float eps) {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); i += w.size())
    numerics::rmsNormF32(&x[i], w.data(), std::ssize(w), eps, &y[i]);
  return y;
}

static Values swiGlu(const Values &gate, const Values &up) {
  Values y(gate.size());
  numerics::swiGluF32(gate.data(), up.data(), std::ssize(gate), y.data());
  return y;
}

Values ReferenceExperts::sum(const Values &x) const {
  const auto count = static_cast<size_t>(active);
  std::vector<int32_t> ids(count);
  Values weights(count), result(x.size());
  if (numerics::chooseExperts(router.times(x).data(), router.n, active,
                              ids.data(), weights.data()))
    throw Error("a router's logit is not finite");
  if (normalized) {
    float all = 0;
    for (float weight : weights)
      all = all + weight;
    for (float &weight : weights)
      weight = weight / all;
  }
  const auto add = [&](const Expert &expert, float weight) {
    const Values product =
        expert.down.times(swiGlu(expert.gate.times(x), expert.up.times(x)));
    numerics::addScaled(product.data(), weight, std::ssize(result),
                        result.data());
  };
  for (size_t i = 0; i < count; ++i)
    add(experts[static_cast<size_t>(ids[i])], weights[i]);
  if (shared)
    add(*shared, numerics::sigmoid(sharedGate.times(x).front()));
  return result;
}

ReferenceSequence::ReferenceSequence(const ReferenceModel &model)
    : model(model),
      caches(model.layers.size(), {model.cache, model.kvHeads, model.headDim}) {
  for (const ReferenceLayer &layer : model.layers) {
    DeltaState &state = states.emplace_back();
    if (!layer.delta)
      continue;
    const ReferenceDeltaRule &delta = *layer.delta;
    state.convolution = zeros((kConvolutionTaps - 1) * delta.qkv.n);
    state.heads = zeros(delta.valueHeads * delta.keyDim * delta.valueDim);
  }
}

Values ReferenceSequence::applyDeltaRule(const ReferenceDeltaRule &delta,
                                         DeltaState &state,
                                         const Values &x) const {
  const auto &[keyHeads, keyDim, heads, valueDim] =
      std::tie(delta.keyHeads, delta.keyDim, delta.valueHeads, delta.valueDim);
  Values qkv = delta.qkv.times(x);
  numerics::shortConvolution(qkv.data(), 0, delta.convolution.data(), 1,
                             std::ssize(qkv), std::ssize(qkv),
                             state.convolution.data(), qkv.data(), 0);
  Values decay = zeros(heads), beta = zeros(heads);
  numerics::deltaGates(delta.a.times(x).data(), delta.b.times(x).data(),
                       delta.rate.data(), delta.bias.data(), heads,
                       decay.data(), beta.data());
  Values o = zeros(heads * valueDim);
  const auto scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(keyDim)));
  for (int64_t column = 0; column < std::ssize(o); column += kDeltaColumns) {
    const int64_t head = column / valueDim;
    const float *q = qkv.data() + head / delta.sharing % keyHeads * keyDim;
    const float *k = q + keyHeads * keyDim;
    const float *v = qkv.data() + 2 * keyHeads * keyDim + column;
    const auto at = static_cast<size_t>(head);
    numerics::deltaRule(q, k, v, 0, &decay[at], 0, &beta[at], 0, 1, keyDim,
                        scale, state.heads.data() + column * keyDim,
                        o.data() + column, 0, nullptr);
  }
  return swiGlu(delta.z.times(x), normed(o, delta.norm, model.eps));
}

Values ReferenceSequence::attend(size_t number, const Values &x,
                                 const Rotation &rotation) {
  const ReferenceLayer &layer = model.layers[number];
  if (layer.delta)
    return applyDeltaRule(*layer.delta, states[number], x);
  const Values q = rotation.rotated(layer.q.times(x, layer.qBias), layer.qNorm);
  AttentionCache &cache = caches[number];
  cache.append(rotation.rotated(layer.k.times(x, layer.kBias), layer.kNorm),
               layer.v.times(x, layer.vBias));
  Values o = cache.attend(q);
  if (layer.attentionGate.n)
    numerics::sigmoidGate(o.data(), layer.attentionGate.times(x).data(),
                          std::ssize(o), o.data());
  return o;
}

Values ReferenceSequence::runLayer(size_t number, const Values &x, int32_t at,
                                   LayerInputs *inputs) {
  const auto half = static_cast<int64_t>(model.frequencies.size());
  Rotation rotation = {model.headDim, model.eps, zeros(half), zeros(half)};
  numerics::ropeTable(at, model.frequencies.data(), half, rotation.cos.data(),
                      rotation.sin.data());
  for (Values *values : {&rotation.cos, &rotation.sin})
    for (float &value : *values)
      value *= model.ropeScale;
  const ReferenceLayer &layer = model.layers[number];
  LayerInputs read;
  read.qkv = normed(x, layer.inputNorm, model.eps);
  read.o = attend(number, read.qkv, rotation);
  const Values y = layer.o.times(read.o, {}, x);
  read.gateUp = normed(y, layer.postNorm, model.eps);
  Values result;
  if (layer.experts) {
    result = layer.experts->sum(read.gateUp);
    numerics::addScaled(y.data(), 1, std::ssize(y), result.data());
  } else {
    read.down =
        swiGlu(layer.gate.times(read.gateUp), layer.up.times(read.gateUp));
    result = layer.down.times(read.down, {}, y);
  }
  if (inputs)
    *inputs = std::move(read);
  return result;
}

Values ReferenceDraftHead::input(int32_t id, const Values &row) const {
  const Values of =
      normed(model.embedding.output(id), embeddingNorm, model.eps);
  return hidden.times(normed(row, hiddenNorm, model.eps), {},
                      embedding.times(of));
}

Values ReferenceSequence::next(int32_t id) {
  return run(model.embedding.output(id));
}

Values ReferenceSequence::run(Values x) {
  for (size_t i = 0; i < caches.size(); ++i)
    x = runLayer(i, x, position);
  ++position;
  return normed(x, model.finalNorm, model.eps);
}
