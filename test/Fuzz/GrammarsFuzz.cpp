//===- GrammarsFuzz.cpp - Grammars of requests --------------------------===//
//
// The first byte is the kind of the grammar, or the format of a call whose text
// has it, the second one says which of the allowed tokens come.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "grammar/Gbnf.h"
#include "grammar/ToolGrammar.h"

#include "qwen/Import/Tokenizer/TokenizerBlob.h"
#include "text/Unicode.h"

#include <array>

using namespace qwen;

static const Tokenizer &tokenizer() {
  static const TokenizerImport import =
      buildTokenizer(*readTokenizerFiles(QWEN_SOURCE_DIR "/models/stories"));
  static const Tokenizer made = Tokenizer::fromBlob(import.blob);
  return made;
}

static int32_t tokenOf(const char *text) {
  return *tokenizer().findAddedToken(text);
}

static const GrammarCompiler &compiler() {
  static const auto made =
      makeGrammarCompiler(tokenizer(), std::array{tokenOf("<|endoftext|>")});
  return *made;
}

/// A call of a tool whose text has this grammar.
static std::unique_ptr<Grammar> callWith(const std::string &text, bool isRegex,
                                         const CallFormat &format) {
  Tool tool{.name = "f",
            .parameters = {{"properties", {{"t", {{"type", "string"}}}}},
                           {"required", {"t"}}},
            .grammar = TextGrammar{"t", isRegex, text}};
  return makeToolGrammar(compiler(),
                         {.format = &format,
                          .tools = std::make_shared<Tools>(Tools{tool}),
                          .rules = CallRules{.isRequired = true}},
                         {tokenOf("<|im_start|>"), tokenOf("<|im_end|>")});
}

static std::unique_ptr<Grammar> grammarOf(uint8_t first,
                                          const std::string &text) {
  constexpr uint8_t kKinds = 4;
  if (const unsigned call = first % 8; call >= kKinds)
    return callWith(text, call % 2, callFormats()[call / 2 % 2]);
  const auto kind = static_cast<GrammarKind>(first % kKinds);
  const bool isOther = kind == GrammarKind::Lark && isGbnf(text);
  return compiler().compile({kind, isOther ? larkOfGbnf(text) : text});
}

/// The allowed token behind `from`, which every state has.
static int32_t tokenBehind(std::span<const uint32_t> allowed, uint32_t from) {
  const auto count = static_cast<uint32_t>(tokenizer().vocabSize());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t id = (from + i) % count;
    if (allowed[id / 32] >> id % 32 & 1)
      return static_cast<int32_t>(id);
  }
  fuzz::fail("no token is allowed");
}

/// Writes a text of a grammar.
static void write(const Grammar &grammar, uint32_t seed) {
  const auto state = grammar.start();
  for (int i = 0; i < 24 && !state->isDone(); ++i) {
    seed = seed * 1664525 + 1013904223;
    try {
      state->accept(tokenBehind(state->allowed(), seed >> 8));
    } catch (const Error &error) {
      // Its limits end an answer.
      const std::string_view message = error.what();
      fuzz::require(message.find("satisfy") == message.npos &&
                        message.find("no such token") == message.npos,
                    "an allowed token is refused");
      return;
    }
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2)
    return 0;
  const std::string text = toValidUtf8(fuzz::asText(data + 2, size - 2));
  std::unique_ptr<Grammar> grammar;
  try {
    grammar = grammarOf(data[0], text);
  } catch (const Error &error) {
    const std::string_view message = error.what();
    fuzz::require(!message.empty(), "an error without a message");
    fuzz::require(message.find("the grammar cannot be made") == message.npos,
                  "llguidance panicked");
    return 0;
  }
  write(*grammar, data[1]);
  return 0;
}
