//===- GenerationConfig.cpp - Sampling defaults of a model ----------------===//

#include "qwen/ABI/GenerationConfig.h"

#include "qwen/Support/JsonValue.h"

using namespace qwen;

void qwen::parseSampling(const JsonValue &root, GenerationConfig &generation) {
  const auto number = [&](const char *key, double least, double most,
                          double &to) {
    if (const auto found = root.findValue(key))
      to = found->number(least, most);
  };
  if (const auto found = root.findValue("do_sample"))
    generation.doSample = found->boolean();
  number("temperature", 0, 1e6, generation.temperature);
  // Where null is not the default, it switches the limit off.
  if (const auto found = root.find("top_k"))
    generation.topK = found->isNull() ? 0 : found->integer(0, INT32_MAX);
  number("top_p", 0, 1, generation.topP);
  number("min_p", 0, 1, generation.minP);
  number("repetition_penalty", 1e-6, 1e6, generation.repetitionPenalty);
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
