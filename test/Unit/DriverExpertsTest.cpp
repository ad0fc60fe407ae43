//===- DriverExpertsTest.cpp - Experts in the driver ----------------------===//
//
// Several threads choose experts and run their products, for batches in which
// tokens share experts and for such in which they do not. Each token gets what
// the plain model gives it alone, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "DriverAttention.h"
#include "Sampled.h"
#include "TiledProducts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

using namespace qwen;
using namespace qwen::test;

namespace {
/// Sizes of a layer. If gate and up have two formats, each has an op.
struct Sizes {
  int64_t experts, active, hidden, width;
  WeightFormat gate, up, down;
  bool isNormalized, isShared;
};

/// A layer of random weights, as the plain model and as an image.
struct ExpertsLayer {
  ExpertsLayer(const Sizes &sizes, Random &random);

  const Sizes sizes;
  ReferenceExperts reference;
  Memory image;
  /// Where gate is in the image, and up and down behind it.
  int64_t weight = 0, up = 0, down = 0, stride = 0;
};

/// A call's tokens in the arena.
struct CallTokens {
  Values x, logits, shared, sharedLogits, residual;
};
} // namespace

ExpertsLayer::ExpertsLayer(const Sizes &sizes, Random &random) : sizes(sizes) {
  const auto &[experts, active, hidden, width, gateFormat, upFormat, downFormat,
               isNormalized, isShared] = sizes;
  reference = {Matrix(WeightFormat::F32, experts, hidden,
                      random.values(experts * hidden)),
               active, isNormalized};
  std::vector<uint8_t> bytes;
  for (int64_t e = 0; e < experts; ++e) {
    const auto matrix = [&](WeightFormat format, int64_t n, int64_t k) {
      return Matrix(format, n, k, random.values(n * k, 0.2f));
    };
    reference.experts.push_back({matrix(gateFormat, width, hidden),
                                 matrix(upFormat, width, hidden),
                                 matrix(downFormat, hidden, width)});
    const auto &expert = reference.experts.back();
    const auto add = [&](const Matrix &of) {
      bytes.insert(bytes.end(), of.panels.begin(), of.panels.end());
    };
    const auto align = [&] {
      bytes.resize(static_cast<size_t>(alignTo(std::ssize(bytes), 64)));
    };
    add(expert.gate);
    if (gateFormat != upFormat)
      align();
    if (e == 0)
      up = std::ssize(bytes);
    add(expert.up);
    align();
    if (e == 0)
      down = std::ssize(bytes);
    add(expert.down);
    align();
    if (e == 0)
      stride = std::ssize(bytes);
  }
  weight = image.add(bytes);
}

/// A product's kernel of any number of tokens. `tiles` must live as long.
template <typename Fn>
static ProductInstance<Fn> productOf(const std::vector<DriverTile<Fn>> &tiles) {
  return {.cached = Length(1000),
          .least = Panels(1),
          .reused = Length(0),
          .together = Panels(1),
          .tiles = tiles.data(),
          .tileCount = std::ssize(tiles)};
}

template <KernelOp Op> static auto tilesOf(WeightFormat format) {
  const auto kernel = numerics::reference<Op>(kernelFormat(format));
  return std::vector<DriverTile<KernelFn<Op>>>{
      test::tiledProduct(kernel, test::tiledTokens(16, 7, 3)),
      {kernel, {.multiple = Tokens(3), .least = Tokens(3)}},
      {kernel, {.multiple = Tokens(1), .least = Tokens(1)}}};
}

namespace {
/// A call of the ops.
class ExpertsCall {
public:
  ExpertsCall(ExpertsLayer &layer, const CallTokens &tokens,
              std::vector<uint32_t> shares);

  void run();
  /// The result of a token.
  const float *result(int64_t token) {
    return arena.at(out) + token * layer.sizes.hidden;
  }
  const std::vector<uint32_t> &flags() const { return call.flags; }
  /// The number of experts that have tokens: as the route says, and by the ids.
  uint32_t saidExperts() const { return call.context.taken[0]; }
  size_t usedExperts() {
    const int32_t *begin = arena.at<int32_t>(ids);
    return std::set(begin, begin + count * layer.sizes.active).size();
  }

private:
  void quantize(int32_t thread);
  void route(int32_t thread);
  /// The product with the matrices of `format` at `weight` behind the first
  /// one: with SwiGLU if `to` is `hidden`.
  void multiply(int32_t thread, OpId op, WeightFormat format, int64_t weight,
                FloatPlace gatePlace, const BlockPlace &to);
  void down(int32_t thread);

  /// The place of `number` times `k` values in int8.
  BlockPlace reserveBlocks(int64_t number, int64_t k) {
    return blockPlace(arena.reserve<int8_t>(roomForCodes(number, k)), k,
                      arena.reserve(roomForScales(number, k)),
                      arena.reserve<int32_t>(number * k / kGroup));
  }

  ExpertsLayer &layer;
  const int64_t count;
  Memory arena;
  int64_t logits, sharedLogits, shared, residual, weights, ids, order, first,
      out;
  BlockPlace floats, blocks, gates, hidden;
  /// The tokens of `blocks` that lie in tiles.
  TokenTiles inTiles;
  DriverCall call;
};
} // namespace

ExpertsCall::ExpertsCall(ExpertsLayer &layer, const CallTokens &tokens,
                         std::vector<uint32_t> shares)
    : layer(layer), count(std::ssize(tokens.x) / layer.sizes.hidden),
      call(std::move(shares), count, 4) {
  const Sizes &sizes = layer.sizes;
  logits = arena.add(tokens.logits);
  sharedLogits = arena.add(tokens.sharedLogits);
  shared = arena.add(tokens.shared);
  residual = arena.add(tokens.residual);
  weights = arena.reserve(count * (sizes.active + 1));
  ids = arena.reserve<int32_t>(count * sizes.active);
  order = arena.reserve<int32_t>(count * sizes.active);
  first = arena.reserve<int32_t>(sizes.experts + 1);
  out = arena.reserve(count * sizes.hidden);
  floats = blockPlace(arena.add(tokens.x), sizes.hidden);
  blocks = reserveBlocks(count, sizes.hidden);
  if (count % 2 == 0)
    inTiles = test::tiledTokens(32, 5, 9);
  const int64_t choices = count * sizes.active;
  gates = blockPlace(arena.reserve(choices * sizes.width), sizes.width);
  hidden = isQuantized(sizes.down)
               ? reserveBlocks(choices, sizes.width)
               : blockPlace(arena.reserve(choices * sizes.width), sizes.width);
  call.context.arena = arena.at<uint8_t>(0);
  call.context.images = layer.image.images();
}

void ExpertsCall::quantize(int32_t thread) {
  const int64_t k = layer.sizes.hidden;
  Values scratch(static_cast<size_t>(quantizedFloats(k, 1)));
  qwenDriverQuantize(&call.context, thread,
                     {.in = floatPlace(floats.at, k),
                      .out = blocks,
                      .k = Length(k),
                      .count = CountId(kTokensOfCall),
                      .op = OpId(0)},
                     {numerics::quantizeQ8, inTiles, scratch.data()});
}

void ExpertsCall::route(int32_t thread) {
  const Sizes &sizes = layer.sizes;
  qwenDriverRoute(
      &call.context, thread,
      {.logits = floatPlace(logits, sizes.experts),
       .shared = floatPlace(sharedLogits, 1),
       .weights = floatPlace(weights, sizes.active + 1),
       .ids = ArenaOffset(ids),
       .order = ArenaOffset(order),
       .first = ArenaOffset(first),
       .normalized = Flag(sizes.isNormalized),
       .count = CountId(kTokensOfCall),
       .op = OpId(0)},
      {.experts = Experts(sizes.experts),
       .chosen = Experts(sizes.active),
       .choose = numerics::chooseExperts,
       .sigmoid = sizes.isShared ? numerics::sigmoidValues : nullptr});
}

void ExpertsCall::multiply(int32_t thread, OpId op, WeightFormat format,
                           int64_t weight, FloatPlace gatePlace,
                           const BlockPlace &to) {
  const Sizes &sizes = layer.sizes;
  const ExpertsUpArguments arguments = {
      .in = isQuantized(format) ? blocks : floats,
      .order = ArenaOffset(order),
      .first = ArenaOffset(first),
      .weight = weightAt(layer.weight + weight),
      .gates = gatePlace,
      .out = to,
      .count = CountId(kTokensOfCall),
      .op = op};
  Values scratch(
      static_cast<size_t>(expertsScratch(sizes.hidden, isQuantized(format))));
  const bool isUp = &to == &hidden, isInBlocks = isQuantized(sizes.down);
  const auto constants = [&]<typename Instance>(const auto &product,
                                                Instance) -> Instance {
    return {.experts = Experts(sizes.experts),
            .chosen = Experts(sizes.active),
            .k = Length(sizes.hidden),
            .width = Length(sizes.width),
            .stride = Bytes(layer.stride),
            .panelBytes = Bytes(panelBytes(format, sizes.hidden)),
            .scratch = scratch.data(),
            .product = product,
            .swiGluF32 = isUp && !isInBlocks ? numerics::swiGluF32 : nullptr,
            .swiGluQ8 = isUp && isInBlocks ? numerics::swiGluQ8 : nullptr,
            .inTiles = isQuantized(format) ? inTiles : TokenTiles()};
  };
  if (isQuantized(format)) {
    const auto tiles = tilesOf<KernelOp::LinearQ8>(format);
    qwenDriverExpertsUpQ8(&call.context, thread, arguments,
                          constants(productOf(tiles), ExpertsUpQ8Instance()));
  } else {
    const auto tiles = tilesOf<KernelOp::LinearF32>(format);
    qwenDriverExpertsUpF32(&call.context, thread, arguments,
                           constants(productOf(tiles), ExpertsUpF32Instance()));
  }
}

void ExpertsCall::down(int32_t thread) {
  const Sizes &sizes = layer.sizes;
  const ExpertsDownArguments arguments = {
      .in = hidden,
      .weights = floatPlace(weights, sizes.active + 1),
      .order = ArenaOffset(order),
      .first = ArenaOffset(first),
      .weight = weightAt(layer.weight + layer.down),
      .addend = floatPlace(shared, sizes.hidden),
      .isScaled = Flag(sizes.isShared),
      .last = floatPlace(residual, sizes.hidden),
      .out = floatPlace(out, sizes.hidden),
      .count = CountId(kTokensOfCall),
      .op = OpId(3)};
  Values scratch(static_cast<size_t>(
      expertsScratch(sizes.width, isQuantized(sizes.down))));
  const auto constants = [&]<typename Instance>(const auto &product,
                                                Instance) -> Instance {
    return {.experts = Experts(sizes.experts),
            .chosen = Experts(sizes.active),
            .k = Length(sizes.width),
            .width = Length(sizes.hidden),
            .stride = Bytes(layer.stride),
            .panelBytes = Bytes(panelBytes(sizes.down, sizes.width)),
            .scratch = scratch.data(),
            .product = product,
            .addScaled = numerics::addScaled};
  };
  if (isQuantized(sizes.down)) {
    const auto tiles = tilesOf<KernelOp::LinearQ8>(sizes.down);
    qwenDriverExpertsDownQ8(
        &call.context, thread, arguments,
        constants(productOf(tiles), ExpertsDownQ8Instance()));
  } else {
    const auto tiles = tilesOf<KernelOp::LinearF32>(sizes.down);
    qwenDriverExpertsDownF32(
        &call.context, thread, arguments,
        constants(productOf(tiles), ExpertsDownF32Instance()));
  }
}

void ExpertsCall::run() {
  call.run([&](int32_t thread) {
    quantize(thread);
    route(thread);
    qwenDriverBarrier(&call.context, thread);
    const Sizes &sizes = layer.sizes;
    const FloatPlace none = floatPlace(-1, 0);
    if (sizes.gate == sizes.up) {
      multiply(thread, OpId(1), sizes.up, 0, none, hidden);
    } else {
      multiply(thread, OpId(1), sizes.gate, 0, none, gates);
      qwenDriverBarrier(&call.context, thread);
      multiply(thread, OpId(2), sizes.up, layer.up,
               floatPlace(gates.at, sizes.width), hidden);
    }
    qwenDriverBarrier(&call.context, thread);
    down(thread);
  });
}

/// `count` tokens. With `overlap`, all of them have almost the same logits.
static CallTokens randomTokens(const ExpertsLayer &layer, int64_t count,
                               bool overlap, Random &random) {
  const Sizes &sizes = layer.sizes;
  CallTokens tokens;
  tokens.x = random.values(count * sizes.hidden);
  if (overlap)
    for (size_t i = static_cast<size_t>(sizes.hidden); i < tokens.x.size(); ++i)
      tokens.x[i] = tokens.x[i] * 0x1p-8f +
                    tokens.x[i % static_cast<size_t>(sizes.hidden)];
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = tokens.x.begin() + i * sizes.hidden;
    const Values of =
        layer.reference.router.times({begin, begin + sizes.hidden});
    tokens.logits.insert(tokens.logits.end(), of.begin(), of.end());
  }
  tokens.residual = random.values(count * sizes.hidden);
  if (sizes.isShared) {
    tokens.shared = random.values(count * sizes.hidden);
    tokens.sharedLogits = random.values(count, 4);
  }
  return tokens;
}

/// What a token gets alone.
static Values expectedOf(const ExpertsLayer &layer, const CallTokens &tokens,
                         int64_t token) {
  const int64_t hidden = layer.sizes.hidden;
  const auto rowOf = [&](const Values &of) {
    const auto begin = of.begin() + token * hidden;
    return Values(begin, begin + hidden);
  };
  Values y = layer.reference.sum(rowOf(tokens.x));
  if (layer.sizes.isShared) {
    float w;
    numerics::sigmoidValues(&tokens.sharedLogits[static_cast<size_t>(token)], 1,
                            &w);
    numerics::addScaled(rowOf(tokens.shared).data(), w, hidden, y.data());
  }
  numerics::addScaled(rowOf(tokens.residual).data(), 1, hidden, y.data());
  return y;
}

static constexpr Sizes kSizes[] = {
    {7, 3, 96, 64, WeightFormat::Q4_0, WeightFormat::Q4_0, WeightFormat::Q4_0,
     true, false},
    {5, 1, 64, 160, WeightFormat::Q8_0, WeightFormat::Q8_0, WeightFormat::Q6_K,
     false, true},
    {4, 4, 160, 288, WeightFormat::F32, WeightFormat::F32, WeightFormat::BF16,
     true, true},
    {9, 2, 64, 32, WeightFormat::F32, WeightFormat::F32, WeightFormat::Q4_0,
     false, false},
    {6, 3, 96, 128, WeightFormat::Q4_0, WeightFormat::Q4_0, WeightFormat::F32,
     true, false},
    {40, 8, 32, 1184, WeightFormat::Q4_0, WeightFormat::Q4_0,
     WeightFormat::Q4_0, true, true},
    {6, 2, 96, 160, WeightFormat::Q4_0, WeightFormat::Q8_0, WeightFormat::Q4_0,
     true, false},
    {5, 3, 64, 288, WeightFormat::Q8_0, WeightFormat::F32, WeightFormat::F32,
     false, true}};

TEST(Experts, GiveATokenWhatItGetsAlone) {
  uint32_t seed = 0;
  for (const Sizes &sizes : kSizes) {
    Random random(++seed);
    ExpertsLayer layer(sizes, random);
    for (int64_t count : {1, 2, 5, 33, 70}) {
      for (const bool overlap : {false, true}) {
        // Half of the long calls, and some of their tokens.
        const bool sampled = test::isSampled() && count > 5;
        if (sampled && overlap == (count > 33))
          continue;
        const CallTokens tokens = randomTokens(layer, count, overlap, random);
        ExpertsCall call(layer, tokens,
                         randomShares(random.between(1, 5), random));
        call.run();
        EXPECT_EQ(call.saidExperts(), call.usedExperts());
        for (int64_t i = 0; i < count; i += sampled ? 7 : 1) {
          ASSERT_TRUE(isSame(call.result(i), expectedOf(layer, tokens, i)))
              << "layer " << seed << ", token " << i << " of " << count;
          ASSERT_EQ(call.flags()[static_cast<size_t>(i)], kNoFlag);
        }
      }
    }
  }
}

/// Other tokens of the call have their results.
TEST(Experts, FlagATokenWhoseLogitIsNotFinite) {
  Random random(7);
  ExpertsLayer layer(kSizes[0], random);
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    CallTokens tokens = randomTokens(layer, 6, true, random);
    tokens.logits[static_cast<size_t>(2 * layer.sizes.experts + 5)] = bad;
    ExpertsCall call(layer, tokens, equalShares(3));
    call.run();
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(call.flags()[static_cast<size_t>(i)], i == 2 ? 0 : kNoFlag);
      if (i != 2)
        EXPECT_TRUE(isSame(call.result(i), expectedOf(layer, tokens, i))) << i;
    }
  }
}
