//===- RequestFuzz.cpp - Bodies of HTTP requests ------------------------===//

#include "Fuzz.h"

#include "model/Turns.h"
#include "server/batch/BatchLine.h"
#include "server/http/ApiError.h"
#include "server/protocols/Fill.h"
#include "server/protocols/Rerank.h"
#include "server/protocols/Tokenize.h"
#include "server/protocols/messages/Messages.h"
#include "server/protocols/openai/Chat.h"
#include "server/protocols/openai/Completions.h"
#include "server/protocols/openai/Embeddings.h"
#include "server/protocols/responses/CustomText.h"
#include "server/protocols/responses/Responses.h"
#include "server/protocols/responses/Sealed.h"
#include "text/AnswerParser.h"
#include "text/Unicode.h"

#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;

static constexpr int64_t kVocab = 1000;

/// The events of an answer, those of one kind in a row joined.
static std::vector<AnswerEvent> parse(const Tokenizer &tokenizer,
                                      const AnswerFormat &format,
                                      const AnswerOptions &options,
                                      std::span<const int32_t> ids) {
  AnswerParser parser(tokenizer, &format, {}, options);
  AnswerEvents joined;
  size_t tokens = 0;
  const auto add = [&](const AnswerEvents &events) {
    for (const AnswerEvent &event : events) {
      tokens += event.tokens.size();
      fuzz::require(isValidUtf8(event.text), "a text of an answer is no UTF-8");
      if (joined.empty() || joined.back().kind != event.kind)
        joined.push_back({event.kind, event.text});
      else
        joined.back().text += event.text;
    }
  };
  for (int32_t id : ids)
    add(parser.push(id));
  add(parser.finish());
  fuzz::require(tokens == ids.size(), "the events have not all tokens");
  return joined;
}

/// Checks that an answer with these stop strings does not depend on tokens.
static void checkStops(const AnswerParameters &parameters,
                       std::string_view text) {
  static const TokenizerImport import =
      buildTokenizer(*readTokenizerFiles(QWEN_SOURCE_DIR "/models/stories"));
  static const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  static const AnswerFormat format(tokenizer, "<think></think>");
  static const std::vector<int32_t> byByte = [] {
    std::vector<int32_t> ids(256);
    for (int32_t id = 0; id < tokenizer.vocabSize(); ++id)
      if (const auto bytes = tokenizer.tokenBytes(id); bytes.size() == 1)
        ids[static_cast<uint8_t>(bytes[0])] = id;
    return ids;
  }();
  const AnswerOptions options = {.stops = parameters.stop,
                                 .includeStop = parameters.includeStop,
                                 .splitReasoning = parameters.splitReasoning};
  // Reasoning and text after it.
  std::string valid = "<think>" + toNfc(toValidUtf8(text));
  valid.insert(valid.size() - valid.size() / 4, "</think>");
  valid = toNfc(toValidUtf8(valid));
  std::vector<int32_t> bytes;
  for (char byte : valid)
    bytes.push_back(byByte[static_cast<uint8_t>(byte)]);
  const AnswerEvents whole =
      parse(tokenizer, format, options, tokenizer.encode(valid, false));
  const AnswerEvents parts = parse(tokenizer, format, options, bytes);
  fuzz::require(std::ranges::equal(whole, parts,
                                   [](const auto &left, const auto &right) {
                                     return left.kind == right.kind &&
                                            left.text == right.text;
                                   }),
                "tokens change the events of an answer");
}

/// Reads a body of a protocol.
template <typename Parameters> static void check(std::string_view text) {
  constexpr size_t kMostText = 512;
  Parameters parameters;
  const bool isTaken = fuzz::parses(text.size(), [&] {
    try {
      Parameters::List::parse(text, {.vocabSize = kVocab}, parameters);
    } catch (const ApiError &error) {
      fuzz::require(error.status() == 400, "an error that is not 400");
      throw;
    }
  });
  if constexpr (std::is_base_of_v<MessagesPrompt, Parameters>)
    if (isTaken)
      turnsFor({.laterSystem = false, .noUser = false},
               parameters.conversation({}).messages);
  if constexpr (std::is_base_of_v<AnswerParameters, Parameters>) {
    if (!isTaken)
      return;
    fuzz::require(parameters.choices >= 1 && parameters.topLogprobs >= 0 &&
                      parameters.maxTokens.value_or(0) >= 0,
                  "a number out of range is taken");
    checkStops(parameters, text.substr(0, kMostText));
    // The sampler takes all options that a request may have.
    Sampler(parameters.sampling, kVocab, kVocab, 0, parameters.stopTokens);
  }
}

/// Reads a line of a batch and its answer, and the text as an answer.
static void checkBatchLine(std::string_view text) {
  BatchLine line;
  fuzz::parses(text.size(), [&] { line = parseBatchLine(text, 1); });
  const AnsweredLine answered =
      parseAnswerLine(line.error.empty() ? answerLine(line, {.body = "{}"})
                                         : failureLine(line));
  fuzz::require(answered.number == 1 && answered.id == line.id &&
                    answered.isError == !line.error.empty(),
                "the answer to a line of a batch is not its answer");
  fuzz::parses(text.size(), [&] { parseAnswerLine(text); });
}

/// Reads the text of a custom tool's call from arguments in pieces, and a text
/// as sealed reasoning.
static void checkResponses(std::string_view text) {
  check<responses::ResponseParameters>(text);
  responses::CustomText whole, pieces;
  std::string joined;
  for (char byte : text)
    joined += pieces.push({&byte, 1});
  fuzz::require(whole.push(text) == joined,
                "pieces change the text of a custom tool's call");
  fuzz::require(whole.finish() == pieces.finish(),
                "pieces change the end of a custom tool's call");
  responses::unseal(text);
  if (isValidUtf8(text))
    fuzz::require(responses::unseal(responses::seal(text)) == text,
                  "a sealed text does not come back");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = fuzz::asText(data, size);
  check<ChatParameters>(text);
  check<CompletionParameters>(text);
  check<FillParameters>(text);
  check<TokenizeParameters>(text);
  check<DetokenizeParameters>(text);
  check<EmbeddingParameters>(text);
  check<RerankParameters>(text);
  checkResponses(text);
  check<MessagesParameters>(text);
  check<CountParameters>(text);
  checkBatchLine(text);
  return 0;
}
