//===- Mirostat.cpp - Tokens of about a wanted surprise -------------------===//
//
// Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly
// Controls Perplexity", 2020, as llama.cpp has it.
//
//===----------------------------------------------------------------------===//

#include "engine/samplers/TokenCut.h"

#include "qwen/Numerics/Doubles.h"

#include <limits>
#include <numbers>

using namespace qwen;

static double powerOfTwo(double exponent) {
  return numerics::exp(exponent * std::numbers::ln2);
}

/// The exponent of Zipf's law that fits the most likely tokens best; 0 for one
/// token.
static double zipfExponent(Candidates &candidates) {
  constexpr size_t kMost = 100;
  const size_t most = std::min(candidates.size(), kMost);
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < most; ++i) {
    const auto place = static_cast<double>(i);
    const double step = numerics::log((place + 2) / (place + 1));
    const float logit = candidates.at(i).logit();
    const float next = candidates.at(i + 1).logit();
    products += step * (logit == next ? 0 : double{logit} - next);
    squares += step * step;
  }
  return most < 2 ? 0 : products / squares;
}

/// Version 1 keeps the most likely tokens, as many as Zipf's law says.
static void cutByZipf(Candidates &candidates, const CutInputs &inputs) {
  const double exponent = zipfExponent(candidates);
  if (exponent <= 0 || exponent == 1)
    return;
  const double shift = exponent - 1;
  const double quotient =
      shift * powerOfTwo(inputs.mu) /
      (1 - numerics::pow(static_cast<double>(inputs.tokens), -shift));
  // False for NaN, too.
  if (!(quotient <= std::numeric_limits<double>::max()))
    return;
  const double count = quotient < std::numeric_limits<double>::min()
                           ? 0
                           : numerics::pow(quotient, 1 / exponent);
  if (count < static_cast<double>(candidates.size()))
    candidates.keepFirst(std::max<size_t>(1, static_cast<size_t>(count)));
}

/// Version 2 keeps tokens of at most the surprise mu.
static void cutBySurprise(Candidates &candidates, const CutInputs &inputs) {
  const double least = powerOfTwo(-inputs.mu) * candidates.mass();
  if (least > 1)
    candidates.keepFirst(1);
  else
    candidates.keepAbove(least);
}

static void cutMirostat(const SamplerOptions &options, Candidates &candidates,
                        const CutInputs &inputs) {
  if (options.mirostat == 1)
    cutByZipf(candidates, inputs);
  else
    cutBySurprise(candidates, inputs);
}

const TokenCut cut::Mirostat = {
    [](const SamplerOptions &options) { return options.mirostat != 0; },
    cutMirostat};
