//===- GrammarsFuzz.cpp - Grammars of requests --------------------------===//
//
// The first byte is the kind of the grammar, the second one says which of the
// allowed tokens come.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "grammar/Gbnf.h"
#include "grammar/Grammar.h"

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

static const GrammarCompiler &compiler() {
  static const auto made = makeGrammarCompiler(
      tokenizer(), std::array{*tokenizer().findAddedToken("<|endoftext|>")});
  return *made;
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
  for (int i = 0; i < 12 && !state->isDone(); ++i) {
    seed = seed * 1664525 + 1013904223;
    try {
      state->accept(tokenBehind(state->allowed(), seed >> 8));
    } catch (const Error &error) {
      // Its limits end an answer.
      fuzz::require(std::string_view(error.what()).find("satisfy") ==
                        std::string_view::npos,
                    "an allowed token is refused");
      return;
    }
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2)
    return 0;
  const GrammarCompiler &with = compiler();
  const std::string text = toValidUtf8(fuzz::asText(data + 2, size - 2));
  std::unique_ptr<Grammar> grammar;
  try {
    const auto kind = static_cast<GrammarKind>(data[0] % 4);
    const bool isOther = kind == GrammarKind::Lark && isGbnf(text);
    grammar = with.compile({kind, isOther ? larkOfGbnf(text) : text});
  } catch (const Error &error) {
    const std::string_view message = error.what();
    fuzz::require(!message.empty(), "an error without a message");
    fuzz::require(message != "the grammar cannot be made",
                  "llguidance panicked");
    return 0;
  }
  write(*grammar, data[1]);
  return 0;
}
