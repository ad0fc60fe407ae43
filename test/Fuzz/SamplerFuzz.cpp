//===- SamplerFuzz.cpp - Options and logits of the sampler --------------===//

#include "Fuzz.h"

#include "engine/Sampler.h"
#include "engine/samplers/DryBreakers.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <memory>

using namespace qwen;

static constexpr int32_t kIdLimit = 40;

/// A number in the range of requests, or any.
template <typename Type>
static Type number(FuzzedDataProvider &input, Type least, Type most) {
  const bool isAny = input.ConsumeIntegralInRange(0, 7) == 0;
  if constexpr (std::is_integral_v<Type>)
    return isAny ? input.ConsumeIntegral<Type>()
                 : input.ConsumeIntegralInRange<Type>(
                       least, std::min<Type>(most, kIdLimit));
  else
    return isAny ? input.ConsumeFloatingPoint<Type>()
                 : input.ConsumeFloatingPointInRange<Type>(least, most);
}

static std::vector<int32_t> sequence(FuzzedDataProvider &input, size_t least) {
  std::vector<int32_t> ids(input.ConsumeIntegralInRange<size_t>(least, 3));
  for (int32_t &id : ids)
    id = input.ConsumeIntegralInRange(0, 3);
  return ids;
}

/// Some samplers, each at most once.
static std::vector<SamplerKind> order(FuzzedDataProvider &input) {
  std::vector<std::string> names;
  for (std::string_view name : samplerNames())
    if (input.ConsumeBool())
      names.emplace(names.begin() +
                        input.ConsumeIntegralInRange<std::ptrdiff_t>(
                            0, std::ssize(names)),
                    name);
  return parseSamplers(names);
}

static SamplerOptions optionsOf(FuzzedDataProvider &input) {
  SamplerOptions options;
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, ...)            \
  if (input.ConsumeBool())                                                     \
    options.Field = number<Type>(input, static_cast<Type>(Least),              \
                                 static_cast<Type>(Most));
#include "qwen/ABI/SamplerOptions.def"
  while (input.ConsumeIntegralInRange(0, 3) == 3)
    options.logitBias.push_back(
        {input.ConsumeIntegralInRange<int32_t>(-1, kIdLimit),
         number<float>(input, -100, 100)});
  options.seed = input.ConsumeIntegral<uint64_t>();
  if (input.ConsumeBool())
    options.samplers = order(input);
  while (input.ConsumeIntegralInRange(0, 3) == 3)
    options.badWords.push_back(sequence(input, 1));
  const auto breakers = std::make_shared<DryBreakers>(kIdLimit);
  while (input.ConsumeIntegralInRange(0, 3) == 3)
    breakers->add(sequence(input, 1).front(), sequence(input, 0));
  options.dryBreakers = breakers;
  return options;
}

static float logit(FuzzedDataProvider &input) {
  switch (input.ConsumeIntegralInRange(0, 7)) {
  case 0:
    return -INFINITY;
  case 1:
    return input.ConsumeFloatingPoint<float>();
  default:
    // Few numbers, so that there are ties.
    return static_cast<float>(input.ConsumeIntegral<int8_t>()) / 8;
  }
}

/// Draws a token. Nothing is left to draw if both ways say so.
static void draw(Sampler &sampler, const std::vector<float> &logits,
                 size_t tokens, uint64_t position) {
  std::vector<int32_t> kept;
  bool fails = false;
  try {
    kept = sampler.keptTokens(logits, position);
    fuzz::require(!kept.empty(), "nothing is kept");
  } catch (const Error &) {
    fails = true;
  }
  try {
    Sampler copy = sampler;
    const int32_t id = sampler.sample(logits, position);
    fuzz::require(!fails && std::ranges::count(kept, id) == 1,
                  "a token is drawn that is not kept");
    fuzz::require(static_cast<size_t>(id) < tokens &&
                      logits[static_cast<size_t>(id)] > -INFINITY,
                  "a token is drawn that cannot be");
    fuzz::require(copy.sample(logits, position) == id &&
                      sampler.sample(logits, position) == id,
                  "a second draw differs");
    sampler.acceptDrawn(id);
  } catch (const Error &) {
    fuzz::require(fails, "no token is drawn of those that are kept");
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider input(data, size);
  const SamplerOptions options = optionsOf(input);
  const auto tokens = input.ConsumeIntegralInRange<int32_t>(1, kIdLimit);
  const int32_t vocab = tokens + input.ConsumeIntegralInRange(0, 3);
  const int32_t ends[] = {input.ConsumeIntegralInRange(-1, vocab), 0};
  std::vector<Sampler> samplers;
  if (!fuzz::parses(size, [&] {
        samplers.emplace_back(options, vocab, tokens, 0, ends);
      }))
    return 0;
  Sampler &sampler = samplers.front();
  for (int i = input.ConsumeIntegralInRange(0, 20); i-- > 0;)
    sampler.acceptPrompt(input.ConsumeIntegralInRange(0, vocab - 1));
  for (uint64_t position = 0; position < 4; ++position) {
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float &value : logits)
      value = logit(input);
    draw(sampler, logits, static_cast<size_t>(tokens), position);
  }
  return 0;
}
