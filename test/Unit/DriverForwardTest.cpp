//===- DriverForwardTest.cpp - A model on the driver ----------------------===//
//
// `forward` of random models, written in C++ with the driver's functions and
// the references as kernels: calls of several sequences by several threads give
// what each token alone gives, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"
#include "Places.h"
#include "Sampled.h"
#include "TiledProducts.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace qwen;
using namespace qwen::test;

namespace {
/// A matrix of uniform values, in a random format if none is given.
Matrix randomMatrix(int64_t n, int64_t k, WeightFormat format, Random &random) {
  const float scale = 2 / std::sqrt(static_cast<float>(k));
  return {format, n, k, random.values(n * k, scale)};
}

WeightFormat randomFormat(Random &random) {
  const auto last = static_cast<int64_t>(std::size(kWeightFormats)) - 1;
  return kWeightFormats[random.between(0, last)];
}

/// Matrices that one product multiplies with have one format.
ReferenceLayer randomLayer(int64_t hidden, int64_t heads, int64_t kvHeads,
                           int64_t headDim, bool norms, bool biases,
                           Random &random) {
  const int64_t q = heads * headDim, k = kvHeads * headDim;
  // Seldom more than a call of SwiGLU takes.
  const int64_t ffn = 32 * (random.between(0, 3)   ? random.between(1, 3)
                            : random.between(0, 7) ? 5
                                                   : 37);
  const WeightFormat qkv = randomFormat(random), pair = randomFormat(random);
  const auto some = [&](bool has, int64_t n) {
    return has ? random.values(n) : Values();
  };
  return {random.values(hidden),
          random.values(hidden),
          some(norms, headDim),
          some(norms, headDim),
          some(biases, q),
          some(biases, k),
          some(biases, k),
          randomMatrix(q, hidden, qkv, random),
          randomMatrix(k, hidden, qkv, random),
          randomMatrix(k, hidden, qkv, random),
          randomMatrix(hidden, q, randomFormat(random), random),
          randomMatrix(ffn, hidden, pair, random),
          randomMatrix(ffn, hidden, pair, random),
          randomMatrix(hidden, ffn, randomFormat(random), random)};
}

ReferenceModel randomModel(Random &random) {
  const int64_t headDim = 16 << random.between(0, 2);
  const int64_t kvHeads = random.between(1, 3);
  int64_t groupQueries = random.between(1, 4);
  // K of a product is a multiple of 32.
  if (headDim * kvHeads * groupQueries % kGroup)
    ++groupQueries;
  // Mostly small; sometimes of more than one block of activations.
  const int64_t hidden = 32 * (random.between(0, 3) ? random.between(1, 2) : 5);
  const int64_t vocab = random.between(5, 90);
  ReferenceModel model = {
      kvHeads,
      headDim,
      1e-6f,
      kKvFormats[random.between(0, std::ssize(kKvFormats) - 1)],
      frequenciesOf(headDim),
      random.values(hidden),
      randomMatrix(vocab, hidden, randomFormat(random), random),
      {},
      {},
      random.between(0, 1) ? 1.0f : 1.1f};
  if (random.between(0, 1))
    model.head = randomMatrix(vocab, hidden, randomFormat(random), random);
  const bool norms = random.between(0, 1), biases = random.between(0, 1);
  for (int64_t i = random.between(1, 3); i > 0; --i)
    model.layers.push_back(randomLayer(hidden, kvHeads * groupQueries, kvHeads,
                                       headDim, norms, biases, random));
  return model;
}

/// The activations that a product reads, in the arena.
struct Activations {
  bool quantized;
  int64_t k, place, scales, sums;

  Activations(Memory &arena, WeightFormat format, int64_t tokens, int64_t k)
      : quantized(isQuantized(format)), k(k),
        place(quantized ? arena.reserve<int8_t>(roomForCodes(tokens, k))
                        : arena.reserve(tokens * k)),
        scales(arena.reserve(roomForScales(tokens, k))),
        sums(arena.reserve<int32_t>(tokens * k / kGroup)) {}

  BlockPlace where() const { return blockPlace(place, k, scales, sums); }

  /// The references of products do not read sums: compares them with the codes.
  void checkSums(Memory &arena, const TokenTiles &tiles, int64_t tokens) const {
    if (!quantized)
      return;
    const driver::Quantized values = {
        arena.at<int8_t>(place), arena.at(scales),
        arena.at<int32_t>(sums), k,
        tiles.layoutInfo(),      tiles.inTiles(tokens)};
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t i = 0; i < k; i += kGroup) {
        const int8_t *group = values.codeOf(token, i);
        ASSERT_EQ(values.sumsOf(token)[i / kGroup],
                  std::reduce(group, group + kGroup, 0))
            << "value " << i << " of token " << token;
      }
  }
};

/// A product with matrices of one format that lie side by side.
struct Product {
  WeightFormat format;
  int64_t k, panels = 0, weight, bias;

  Product(Memory &image, const std::vector<const Matrix *> &matrices,
          const std::vector<const Values *> &biases = {})
      : format(matrices[0]->format), k(matrices[0]->k) {
    std::vector<uint8_t> bytes;
    for (const Matrix *matrix : matrices) {
      panels += ceilDiv(matrix->n, kPanelOutputs);
      bytes.insert(bytes.end(), matrix->panels.begin(), matrix->panels.end());
    }
    weight = image.add(bytes);
    Values all;
    for (const Values *values : biases)
      all.insert(all.end(), values->begin(), values->end());
    bias = image.add(all);
  }
};

/// A layer in the image.
struct Layer {
  int64_t inputNorm, postNorm, queryNorm, keyNorm;
  Product qkv, o, gateUp, down;
  /// Activations of the products.
  Activations normed, attended, postNormed, gated;

  Layer(Memory &image, Memory &arena, const ReferenceLayer &layer,
        int64_t tokens)
      : inputNorm(image.add(layer.inputNorm)),
        postNorm(image.add(layer.postNorm)), queryNorm(image.add(layer.qNorm)),
        keyNorm(image.add(layer.kNorm)),
        qkv(image, {&layer.q, &layer.k, &layer.v},
            {&layer.qBias, &layer.kBias, &layer.vBias}),
        o(image, {&layer.o}), gateUp(image, {&layer.gate, &layer.up}),
        down(image, {&layer.down}), normed(arena, qkv.format, tokens, qkv.k),
        attended(arena, o.format, tokens, o.k),
        postNormed(arena, gateUp.format, tokens, gateUp.k),
        gated(arena, down.format, tokens, down.k) {}
};

/// A model as the driver runs it: at places of the image and the arena.
class DriverModel {
public:
  /// For calls of at most `tokens` tokens.
  DriverModel(const ReferenceModel &model, int64_t tokens, Random &random);

  /// What each thread of a call does, as the compiled function.
  void forward(const Context *context, int32_t thread) const;

  /// Checks the quantized activations of the last call.
  void checkSums(const Context &context) {
    for (const Layer &layer : layers)
      for (const auto *part :
           {&layer.normed, &layer.attended, &layer.postNormed, &layer.gated})
        part->checkSums(arena, tiled, context.tokens());
    finalNormed.checkSums(arena, tiled, context.counts[kWantedTokens].number);
  }

  int64_t ops() const { return 3 + 10 * static_cast<int64_t>(layers.size()); }
  int64_t hidden() const { return head.k; }
  int64_t resultStride() const { return head.panels * kPanelOutputs; }

  Memory image, arena;
  AttentionOps attention{};

private:
  friend struct ForwardCall;

  float eps;
  WeightFormat embeddingFormat;
  int64_t embedding, frequencies, finalNorm;
  Product head;
  Activations finalNormed;
  std::vector<Layer> layers;
  /// f32 activations: of the residual stream, of the gate and up.
  int64_t x, xStride, gates, gateStride;
  /// What products are cut by.
  std::vector<int64_t> tiles;
  /// The tokens of quantized activations that lie in tiles.
  TokenTiles tiled;
  int64_t cached, least, reused, together;
};

DriverModel::DriverModel(const ReferenceModel &model, int64_t tokens,
                         Random &random)
    : eps(model.eps), embeddingFormat(model.embedding.format),
      embedding(image.add(model.embedding.panels)),
      frequencies(image.add(model.frequencies)),
      finalNorm(image.add(model.finalNorm)),
      head(image, {model.head ? &*model.head : &model.embedding}),
      finalNormed(arena, head.format, tokens, head.k) {
  attention.kvHeads = model.kvHeads;
  attention.headDim = model.headDim;
  attention.groupQueries = model.layers[0].q.n / model.headDim / model.kvHeads;
  attention.cache = model.cache;
  attention.pageBytes =
      static_cast<int64_t>(model.layers.size()) * attention.layerBytes();
  attention.blockTokens = random.between(1, 9);
  attention.eps = eps;
  attention.ropeScale = model.ropeScale;
  attention.reserve(arena, tokens, 0);
  int64_t gateValues = 0;
  for (const ReferenceLayer &layer : model.layers) {
    layers.emplace_back(image, arena, layer, tokens);
    gateValues = std::max(gateValues, 2 * layer.gate.n);
  }
  xStride = hidden() + 16;
  gateStride = gateValues;
  x = arena.reserve(tokens * xStride);
  gates = arena.reserve(tokens * gateStride);
  const std::vector<int64_t> lists[] = {{1}, {4, 1}, {6, 2, 1}, {8, 4, 3, 1}};
  tiles = lists[random.between(0, 3)];
  if (random.between(0, 1))
    tiled = test::tiledTokens(16 * random.between(1, 2), random.between(1, 32),
                              random.between(0, 16));
  cached = hidden() * random.between(0, 4);
  least = random.between(1, 3);
  reused = hidden() * random.between(0, 9);
  together = random.between(1, 3);
}

/// The ops of one thread of a call, in order.
struct ForwardCall {
  const DriverModel &model;
  const Context *context;
  int32_t thread;
  int32_t op = 0;

  /// Waits for the ops before.
  void next() {
    qwenDriverBarrier(context, thread);
    ++op;
  }

  /// The arguments of a norm of the residual stream.
  RmsNormArguments norm(int64_t weight, const BlockPlace &to,
                        int64_t count) const {
    return {.in = floatPlace(model.x, model.xStride),
            .weight = weightAt(weight),
            .out = to,
            .k = Length(model.hidden()),
            .eps = model.eps,
            .gathers = Flag(count != kTokensOfCall),
            .count = CountId(count),
            .op = OpId(op)};
  }

  void normTo(const Activations &to, int64_t weight, int64_t count) const {
    const RmsNormArguments arguments = norm(weight, to.where(), count);
    std::vector<float> scratch(quantizedFloats(to.k, 1));
    if (to.quantized)
      qwenDriverRmsNormQ8(context, thread, arguments,
                          {numerics::rmsNormQ8, model.tiled, scratch.data()});
    else
      qwenDriverRmsNormF32(context, thread, arguments, {numerics::rmsNormF32});
  }

  void attendTo(const Activations &to, const Layer &layer, int64_t index) {
    // Floats are where the product reads them.
    AttentionOps attention = model.attention;
    if (!to.quantized) {
      attention.out = to.place;
      attention.outStride = to.k;
    }
    attention.append(context, thread, layer.keyNorm, index, op);
    next();
    attention.attend(context, thread, layer.queryNorm, index, op);
    if (!to.quantized)
      return;
    next();
    std::vector<float> scratch(quantizedFloats(to.k, 1));
    qwenDriverQuantize(context, thread,
                       {.in = floatPlace(attention.out, attention.outStride),
                        .out = to.where(),
                        .k = Length(to.k),
                        .count = CountId(kTokensOfCall),
                        .op = OpId(op)},
                       {numerics::quantizeQ8, model.tiled, scratch.data()});
  }

  /// `inProduct`: the tokens in tiles of the product, if it may compute the
  /// gate.
  void gateTo(const Activations &to, const TokenTiles &inProduct) const {
    const GateArguments arguments = {
        .in = floatPlace(model.gates + 4 * to.k, model.gateStride),
        .gate = floatPlace(model.gates, model.gateStride),
        .out = to.where(),
        .k = Length(to.k),
        .count = CountId(kTokensOfCall),
        .op = OpId(op)};
    if (to.quantized)
      qwenDriverSwiGluQ8(context, thread, arguments,
                         {numerics::swiGluQ8, model.tiled, inProduct});
    else
      qwenDriverSwiGluF32(context, thread, arguments, {numerics::swiGluF32});
  }

  template <KernelOp Op>
  std::vector<DriverTile<KernelFn<Op>>> tilesOf(WeightFormat format) const {
    std::vector<DriverTile<KernelFn<Op>>> tiles;
    KernelFn<Op> *kernel = numerics::reference<Op>(kernelFormat(format));
    if (model.tiled.isTiled())
      tiles.push_back(test::tiledProduct(kernel, model.tiled));
    for (int64_t m : model.tiles)
      tiles.push_back({kernel, {.multiple = Tokens(m), .least = Tokens(m)}});
    return tiles;
  }

  template <KernelOp Op>
  ProductInstance<KernelFn<Op>>
  cut(const std::vector<DriverTile<KernelFn<Op>>> &tiles) const {
    return {.cached = Length(model.cached),
            .least = Panels(model.least),
            .reused = Length(model.reused),
            .together = Panels(model.together),
            .tiles = tiles.data(),
            .tileCount = std::ssize(tiles)};
  }

  LinearArguments arguments(const Product &product, const Activations &in,
                            int64_t residual, FloatPlace out,
                            int64_t count = kTokensOfCall) const {
    return {.in = in.where(),
            .weight = weightAt(product.weight),
            .bias = weightAt(product.bias),
            .out = out,
            .k = Length(product.k),
            .panels = Panels(product.panels),
            .residual = ArenaOffset(residual),
            .count = CountId(count),
            .op = OpId(op)};
  }

  /// The product of `in`, plus what is at `residual` if that is not -1.
  void multiply(const Product &product, const Activations &in, int64_t residual,
                int64_t out, int64_t stride) const {
    const LinearArguments of =
        arguments(product, in, residual, floatPlace(out, stride));
    if (in.quantized) {
      const auto tiles = tilesOf<KernelOp::LinearQ8>(product.format);
      qwenDriverLinearQ8(context, thread, of, {cut<KernelOp::LinearQ8>(tiles)});
    } else {
      const auto tiles = tilesOf<KernelOp::LinearF32>(product.format);
      qwenDriverLinearF32(context, thread, of,
                          {cut<KernelOp::LinearF32>(tiles)});
    }
  }

  /// The product with gate and up of `in`, and of some calls also `to`.
  void multiplyGate(const Product &product, const Activations &in,
                    const Activations &to) const {
    const auto tiles = tilesOf<KernelOp::LinearQ8>(product.format);
    std::vector<float> scratch(gateScratch(context->tokens()));
    qwenDriverLinearSwiGluQ8(
        context, thread,
        {.product = arguments(product, in, -1,
                              floatPlace(model.gates, model.gateStride)),
         .gated = to.where(),
         .panelBytes = Bytes(panelBytes(product.format, product.k)),
         .gateOp = OpId(op + 1)},
        {.product = cut<KernelOp::LinearQ8>(tiles),
         .swiGlu = numerics::swiGluQ8,
         .tiles = model.tiled,
         .scratch = scratch.data()});
  }

  void logits() const {
    const Product &head = model.head;
    const Activations &in = model.finalNormed;
    const LinearArguments of = arguments(
        head, in, -1, floatPlace(-1, model.resultStride()), kWantedTokens);
    if (in.quantized) {
      const auto tiles = tilesOf<KernelOp::LinearQ8>(head.format);
      qwenDriverLmHeadQ8(
          context, thread, of,
          {cut<KernelOp::LinearQ8>(tiles), numerics::checkFinite});
    } else {
      const auto tiles = tilesOf<KernelOp::LinearF32>(head.format);
      qwenDriverLmHeadF32(
          context, thread, of,
          {cut<KernelOp::LinearF32>(tiles), numerics::checkFinite});
    }
  }
};

void DriverModel::forward(const Context *context, int32_t thread) const {
  ForwardCall call = {*this, context, thread};
  qwenDriverEmbedding(
      context, thread,
      {.weight = weightAt(embedding),
       .out = floatPlace(x, xStride),
       .k = Length(hidden()),
       .op = OpId(call.op)},
      {numerics::reference<KernelOp::Embed>(kernelFormat(embeddingFormat))});
  attention.makeTable(context, thread, frequencies);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = layers[i];
    call.next();
    call.normTo(layer.normed, layer.inputNorm, kTokensOfCall);
    call.next();
    call.multiply(layer.qkv, layer.normed, -1, attention.projected,
                  attention.stride);
    call.next();
    call.attendTo(layer.attended, layer, static_cast<int64_t>(i));
    call.next();
    call.multiply(layer.o, layer.attended, x, x, xStride);
    call.next();
    call.normTo(layer.postNormed, layer.postNorm, kTokensOfCall);
    call.next();
    const bool joinsGate = layer.postNormed.quantized && layer.gated.quantized;
    if (joinsGate)
      call.multiplyGate(layer.gateUp, layer.postNormed, layer.gated);
    else
      call.multiply(layer.gateUp, layer.postNormed, -1, gates, gateStride);
    call.next();
    call.gateTo(layer.gated, joinsGate ? tiled : TokenTiles());
    call.next();
    call.multiply(layer.down, layer.gated, x, x, xStride);
  }
  call.next();
  qwenDriverHiddenRows(context, thread,
                       call.norm(finalNorm, blockPlace(-1, 0), kHiddenTokens),
                       {numerics::rmsNormF32, numerics::checkFinite});
  call.normTo(finalNormed, finalNorm, kWantedTokens);
  call.next();
  call.logits();
}

/// The ids of a sequence, and the hidden values of each token.
struct Sequence {
  std::vector<int32_t> ids;
  std::vector<Values> hidden;
};

/// Runs a batch and compares the rows of wanted tokens.
void checkCall(const ReferenceModel &reference, DriverModel &model,
               const std::vector<Sequence> &sequences, const Batch &batch,
               Pages &pages, int64_t threads, Random &random) {
  std::vector<int32_t> ids, wanted, hidden;
  std::vector<const Values *> expected, expectedHidden;
  const auto count = static_cast<int64_t>(batch.positions.size());
  const int64_t scarcity = random.between(1, 8);
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    const Sequence &sequence =
        sequences[static_cast<size_t>(batch.sequences[i])];
    const auto position = static_cast<size_t>(batch.positions[i]);
    ids.push_back(sequence.ids[position]);
    if (random.between(1, scarcity) > 1)
      continue;
    const bool isHidden = random.between(0, 3) == 0;
    (isHidden ? hidden : wanted).push_back(static_cast<int32_t>(i));
    (isHidden ? expectedHidden : expected)
        .push_back(&sequence.hidden[position]);
  }
  DriverCall call(randomShares(threads, random), count, model.ops());
  Context &context = call.context;
  bind(context, batch, pages, model.arena, model.image);
  context.tokenIds = ids.data();
  call.select(kWantedTokens, wanted);
  call.select(kHiddenTokens, hidden);
  Values result(wanted.size() * static_cast<size_t>(model.resultStride()));
  Values hiddenResult(hidden.size() * static_cast<size_t>(model.hidden()));
  context.result = result.data();
  context.hidden = hiddenResult.data();
  call.run([&](int32_t thread) { model.forward(&context, thread); });
  const auto nameOf = [&](int32_t token) {
    const auto i = static_cast<size_t>(token);
    return "position " + std::to_string(batch.positions[i]) + " of sequence " +
           std::to_string(batch.sequences[i]);
  };
  const float *logits = result.data(), *values = hiddenResult.data();
  for (size_t i = 0; i < wanted.size(); ++i, logits += model.resultStride())
    ASSERT_TRUE(isSame(logits, reference.logits(*expected[i])))
        << "logits of " << nameOf(wanted[i]);
  for (size_t i = 0; i < hidden.size(); ++i, values += model.hidden())
    ASSERT_TRUE(isSame(values, *expectedHidden[i]))
        << "hidden values of " << nameOf(hidden[i]);
  model.checkSums(context);
  for (uint32_t flag : call.flags)
    ASSERT_EQ(flag, kNoFlag);
}

void checkForward(uint32_t seed) {
  Random random(seed);
  const ReferenceModel reference = randomModel(random);
  std::vector<int64_t> lengths;
  std::vector<Sequence> sequences;
  int64_t tokens = 0;
  for (int64_t s = random.between(1, 3); s > 0; --s) {
    lengths.push_back(random.between(1, random.between(0, 2) ? 30 : 80));
    tokens += lengths.back();
    Sequence sequence;
    ReferenceSequence run(reference);
    for (int64_t i = 0; i < lengths.back(); ++i) {
      sequence.ids.push_back(
          static_cast<int32_t>(random.between(0, reference.embedding.n - 1)));
      sequence.hidden.push_back(run.next(sequence.ids.back()));
    }
    sequences.push_back(std::move(sequence));
  }
  DriverModel model(reference, tokens, random);
  Pages pages(model.attention.pageBytes, lengths, random);
  for (const Batch &batch : randomBatches(lengths, random)) {
    checkCall(reference, model, sequences, batch, pages, seed % 8 + 1, random);
    if (testing::Test::HasFatalFailure())
      return;
  }
}
} // namespace

TEST(Forward, IsThatOfEachTokenAlone) {
  for (uint32_t seed = 0; seed < (test::isSampled() ? 8 : 24); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    checkForward(seed);
    if (testing::Test::HasFatalFailure())
      return;
  }
}
