//===- SamplerTexts.cpp - Texts of samplers as tokens ---------------------===//

#include "model/SamplerTexts.h"

#include "engine/samplers/DryBreakers.h"

#include "qwen/Support/Error.h"

using namespace qwen;

static bool usesDry(const SamplerOptions &options) {
  return options.dryMultiplier > 0 && options.dryLastN != 0;
}

bool qwen::hasTexts(const SamplerOptions &options) {
  return !options.texts.badWords.empty() || usesDry(options);
}

/// The tokens of a word, as vLLM has it: without a space before it, and with
/// one if that gives another first token and as many tokens.
static void addBadWord(const Tokenizer &tokenizer, std::string_view word,
                       std::vector<std::vector<int32_t>> &to) {
  const size_t begin = word.find_first_not_of(" \t\n\v\f\r");
  if (begin == std::string_view::npos) {
    to.push_back(tokenizer.encode(word));
    return;
  }
  const std::string_view bare = word.substr(begin);
  to.push_back(tokenizer.encode(bare));
  std::vector<int32_t> spaced = tokenizer.encode(" " + std::string(bare));
  if (spaced.size() == to.back().size() && spaced[0] != to.back()[0])
    to.push_back(std::move(spaced));
}

/// Adds the tokens that have a text, or begin it and so need others.
static void addBreaker(const Tokenizer &tokenizer, std::string_view text,
                       DryBreakers &to) {
  for (int32_t id = 0; id < tokenizer.vocabSize(); ++id) {
    const std::string_view bytes = tokenizer.tokenBytes(id);
    if (bytes.find(text) != std::string_view::npos) {
      to.add(id, {});
      continue;
    }
    for (size_t at = bytes.find(text[0]); at != std::string_view::npos;
         at = bytes.find(text[0], at + 1))
      if (text.starts_with(bytes.substr(at)))
        to.add(id, tokenizer.encode(text.substr(bytes.size() - at),
                                    /*allowSpecial=*/false));
  }
}

void qwen::resolveTexts(const Tokenizer &tokenizer, SamplerOptions &options) {
  const auto need = [](const std::string &text, const char *what) {
    if (text.empty())
      throw Error(std::string(what) + " has an empty text when one of at least "
                                      "a byte is needed");
  };
  options.badWords.clear();
  for (const std::string &word : options.texts.badWords) {
    need(word, "bad-words");
    addBadWord(tokenizer, word, options.badWords);
  }
  options.dryBreakers.reset();
  if (!usesDry(options))
    return;
  auto breakers =
      std::make_shared<DryBreakers>(static_cast<size_t>(tokenizer.vocabSize()));
  for (const std::string &text : options.texts.breakers()) {
    need(text, "dry-sequence-breakers");
    addBreaker(tokenizer, text, *breakers);
  }
  options.dryBreakers = std::move(breakers);
}
