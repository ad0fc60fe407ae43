//===- TextGradients.cpp - Gradients of a model over a text ---------------===//

#include "calibration/TextGradients.h"

#include "qwen/Gradients/Gradients.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>

using namespace qwen;

/// Tokens of a backward run, in whole windows: enough for the products' full
/// speed.
static constexpr int64_t kRunTokens = 1024;

/// SplitMix64 (https://doi.org/10.1145/2714064.2660195) of the seed `number`.
static double uniformOf(uint64_t number) {
  uint64_t z = (number + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

int32_t qwen::drawNext(size_t number, std::span<const float> logits) {
  return gradients::drawToken(logits, uniformOf(number));
}

TextGradients::TextGradients(mlir::ModuleOp module,
                             const WeightSources &sources,
                             std::vector<const Sublayer *> sublayers,
                             TextRun &stream, unsigned threads, Place place,
                             DrawFn *draw)
    : weights(module, sources, threads), chain(std::move(sublayers)),
      stream(stream), draw(draw),
      kept(bytesFor(chain.size(), stream.rows().size_bytes()), place,
           "the rows of the gradients' text") {}

std::span<const float> TextGradients::rows(size_t number) const {
  const size_t size = stream.rows().size();
  return {kept.as<float>() + number * size, size};
}

std::span<float> TextGradients::gradient() {
  const size_t size = stream.rows().size();
  return {kept.as<float>() + chain.size() * size, size};
}

bool TextGradients::isFinite() {
  return llvm::all_of(gradient(),
                      [](float value) { return std::isfinite(value); });
}

void TextGradients::runForward(EmbeddingOp embedding, size_t end,
                               const std::function<void(size_t)> &done) {
  const auto keep = [&](size_t number) {
    std::ranges::copy(stream.rows(),
                      kept.as<float>() + number * stream.rows().size());
  };
  stream.embed(embedding);
  keep(0);
  for (size_t i = 0; i < end; ++i) {
    stream.run(*chain[i], [](const ReadRows &) {});
    keep(i + 1);
    done(i);
  }
}

std::vector<float> TextGradients::lossGradient(size_t first,
                                               std::span<const float> rows) {
  const Sublayer &head = *chain.back();
  const auto width =
      static_cast<size_t>(widthOf(opsOf(head).back()->getResult(0)));
  const std::span<const float> logits = stream.logits(head, rows);
  const auto stride = static_cast<size_t>(stream.headWidth());
  const size_t tokens = logits.size() / stride;
  std::vector<float> result(tokens * width);
  parallelFor(tokens, weights.threadCount(), [&](size_t i, unsigned) {
    const std::span<const float> row = logits.subspan(i * stride, width);
    gradients::logLikelihood(row, draw(first + i, row),
                             result.data() + i * width);
  });
  return result;
}

void TextGradients::runBackward(size_t number, const ReceiveFn &receive) {
  const Sublayer &sublayer = *chain[number];
  const bool isHead = number + 1 == chain.size();
  const auto width = static_cast<size_t>(stream.rowWidth());
  const size_t total = gradient().size() / width;
  const auto window = static_cast<size_t>(stream.windowTokens());
  const size_t most = isHead
                          ? TextRun::kHeadRows
                          : std::max<size_t>(1, kRunTokens / window) * window;
  weights.clear();
  for (size_t first = 0; first < total; first += most) {
    const size_t tokens = std::min(most, total - first);
    const std::span<const float> read =
        rows(number).subspan(first * width, tokens * width);
    const std::span<float> own =
        gradient().subspan(first * width, tokens * width);
    std::vector<float> slopes =
        isHead ? lossGradient(first, read)
               : std::vector<float>(own.begin(), own.end());
    BackwardPass pass(weights, static_cast<int64_t>(tokens),
                      static_cast<int64_t>(window));
    pass.run(sublayer, read, slopes, [&](const ProductGradient &gradient) {
      receive(first, gradient);
    });
    std::ranges::copy(slopes, own.begin());
  }
}
