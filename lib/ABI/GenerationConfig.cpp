//===- GenerationConfig.cpp - Sampling defaults of a model ----------------===//

#include "qwen/ABI/GenerationConfig.h"

#include "qwen/Support/JsonValue.h"

#include <algorithm>

using namespace qwen;

void qwen::parseSampling(const JsonValue &root, GenerationConfig &generation) {
  for (const Fact<GenerationConfig> &fact : kSamplingFacts)
    if (const auto found = root.findValue(fact.key))
      found->read(fact, generation);
  // Where null is not the default, it switches the limit off.
#define QWEN_MODEL_SAMPLING(Type, Field, Name, Default, ...)                   \
  if (const auto value = root.find(#Name); value && value->isNull())           \
    generation.Field = Default;
#include "qwen/ABI/SamplerOptions.def"
}

std::optional<int32_t> qwen::parseSpecialToken(const JsonValue &value,
                                               int64_t vocabSize,
                                               std::set<std::string> *beyond) {
  if (!beyond)
    return static_cast<int32_t>(value.integer(0, vocabSize - 1));
  const int64_t id = value.integer(INT64_MIN, INT64_MAX);
  if (id >= 0 && id < vocabSize)
    return static_cast<int32_t>(id);
  beyond->insert(value.name() + " " + std::to_string(id));
  return std::nullopt;
}

void qwen::parseSpecialTokens(const JsonValue &root, int64_t vocabSize,
                              GenerationConfig &generation,
                              std::set<std::string> *beyond) {
  const auto addEnd = [&](const JsonValue &value) {
    if (const auto id = parseSpecialToken(value, vocabSize, beyond))
      generation.eosTokenIds.push_back(*id);
  };
  if (const auto eos = root.findValue("eos_token_id");
      eos && generation.eosTokenIds.empty()) {
    if (eos->isArray())
      std::ranges::for_each(eos->elements(), addEnd);
    else
      addEnd(*eos);
  }
  if (const auto bos = root.findValue("bos_token_id");
      bos && !generation.bosTokenId)
    generation.bosTokenId = parseSpecialToken(*bos, vocabSize, beyond);
}
