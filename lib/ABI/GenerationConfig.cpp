//===- GenerationConfig.cpp - Sampling defaults of a model ----------------===//

#include "qwen/ABI/GenerationConfig.h"

#include "qwen/Support/JsonValue.h"

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

void qwen::parseSpecialTokens(const JsonValue &root, int64_t vocabSize,
                              GenerationConfig &generation) {
  const auto id = [&](const JsonValue &value) {
    return static_cast<int32_t>(value.integer(0, vocabSize - 1));
  };
  if (const auto eos = root.findValue("eos_token_id");
      eos && generation.eosTokenIds.empty()) {
    if (eos->isArray())
      for (const JsonValue &element : eos->elements())
        generation.eosTokenIds.push_back(id(element));
    else
      generation.eosTokenIds.push_back(id(*eos));
  }
  if (const auto bos = root.findValue("bos_token_id");
      bos && !generation.bosTokenId)
    generation.bosTokenId = id(*bos);
}
