//===- RequestFuzz.cpp - Bodies of HTTP requests ------------------------===//

#include "Fuzz.h"

#include "server/AnswerText.h"
#include "server/ApiError.h"
#include "server/Parameters.h"

using namespace qwen;
using namespace qwen::server;

static constexpr int64_t kVocab = 1000;

/// Checks that an answer with these stop strings does not depend on tokens.
static void checkStops(const Parameters &parameters, std::string_view text) {
  AnswerText whole(parameters.stop), bytes(parameters.stop);
  std::string expected = whole.push(text);
  expected += whole.finish();
  std::string joined;
  for (char byte : text)
    joined += bytes.push({&byte, 1});
  joined += bytes.finish();
  fuzz::require(joined == expected, "tokens change the text of an answer");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = fuzz::asText(data, size);
  for (ParameterSet set :
       {kChatParameters, kCompletionParameters, kTokenizeParameters,
        kDetokenizeParameters, kEmbeddingParameters, kRerankParameters}) {
    Parameters parameters{SamplerOptions()};
    const bool isTaken = fuzz::parses(size, [&] {
      try {
        parseParameters(text, set, {.vocabSize = kVocab}, parameters);
      } catch (const ApiError &error) {
        fuzz::require(error.status() == 400, "an error that is not 400");
        throw;
      }
    });
    fuzz::require(!isTaken ||
                      (parameters.choices >= 1 && parameters.topLogprobs >= 0 &&
                       parameters.maxTokens.value_or(0) >= 0),
                  "a number out of range is taken");
    constexpr size_t kMostText = 512;
    if (!isTaken)
      continue;
    checkStops(parameters, text.substr(0, kMostText));
    // The sampler takes all options that a request may have.
    Sampler(parameters.sampling, kVocab, kVocab, 0, parameters.stopTokens);
  }
  return 0;
}
