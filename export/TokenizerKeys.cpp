//===- TokenizerKeys.cpp - The tokenizer of a GGUF file -------------------===//

#include "export/TokenizerKeys.h"

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"
#include "qwen/Support/Text.h"
#include "text/Tokenizer.h"

#include <algorithm>
#include <optional>

using namespace qwen;

namespace {
/// The tokens of a file, by id.
struct FileTokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
};
} // namespace

/// The tokens, with padding up to `count`. Added tokens are plain text, others
/// are in the byte-level alphabet.
static FileTokens tokensOf(const Tokenizer &tokenizer, int64_t count,
                           std::vector<std::string> &warnings) {
  FileTokens tokens;
  for (int32_t id = 0; id < tokenizer.vocabSize(); ++id) {
    tokens.texts.push_back(byteLevel(tokenizer.tokenBytes(id)));
    tokens.kinds.push_back(GgufNormal);
  }
  for (const AddedToken &added : tokenizer.addedTokens()) {
    const auto id = static_cast<int32_t>(added.id);
    tokens.texts[added.id] = tokenizer.tokenBytes(id);
    tokens.kinds[added.id] =
        (added.flags & AddedSpecial) != 0 ? GgufControl : GgufUserDefined;
    if ((added.flags & (AddedLstrip | AddedRstrip | AddedSingleWord)) != 0)
      warnings.push_back("token " + quote(tokenizer.tokenBytes(id)) +
                         " takes white space beside it or needs words apart, "
                         "which a GGUF file does not say");
  }
  for (int64_t id = tokenizer.vocabSize(); id < count; ++id) {
    tokens.texts.push_back("[PAD" + std::to_string(id) + "]");
    tokens.kinds.push_back(GgufUnused);
  }
  return tokens;
}

/// The merges "left right" in the order of their ranks.
static std::vector<std::string> mergesOf(const Tokenizer &tokenizer,
                                         const FileTokens &tokens) {
  std::vector<MergeSlot> slots;
  std::ranges::copy_if(
      tokenizer.mergeTable(), std::back_inserter(slots),
      [](const MergeSlot &slot) { return slot.rank != kNoToken; });
  std::ranges::sort(slots, {}, &MergeSlot::rank);
  std::vector<std::string> merges;
  merges.reserve(slots.size());
  for (const MergeSlot &slot : slots)
    merges.push_back(tokens.texts[slot.left] + " " + tokens.texts[slot.right]);
  return merges;
}

static void addTokens(const Tokenizer &tokenizer, int64_t vocabSize,
                      GgufHead &head, std::vector<std::string> &warnings) {
  const FileTokens tokens = tokensOf(tokenizer, vocabSize, warnings);
  const bool marks = (tokenizer.flags() & TokenizerMarksJoinLetters) != 0;
  head.addText(kGgufTokenizer, kGgufBytePairs);
  head.addText(kGgufWords, std::ranges::find(kGgufWordRules, marks,
                                             &GgufWordRule::marksJoinLetters)
                               ->name);
  head.addTexts(kGgufTokens, tokens.texts);
  head.addIntegers(kGgufTokenKinds, tokens.kinds);
  head.addTexts(kGgufMerges, mergesOf(tokenizer, tokens));
  head.addFlag(kGgufAddBos, false);
  head.addFlag(kGgufAddEos, tokenizer.appendedToken().has_value());
}

/// Adds the tokens that end an answer. A file names two of them; readers know
/// kGgufEndTokens by their text.
static void addEnds(const GenerationConfig &generation,
                    const Tokenizer *tokenizer, GgufHead &head,
                    std::vector<std::string> &warnings) {
  std::vector<int32_t> ends = generation.eosTokenIds;
  const auto putFirst = [&](int32_t id) {
    std::erase(ends, id);
    ends.insert(ends.begin(), id);
  };
  if (tokenizer && tokenizer->eosToken() &&
      std::ranges::find(ends, *tokenizer->eosToken()) != ends.end())
    putFirst(*tokenizer->eosToken());
  // Readers append the first one.
  if (tokenizer && tokenizer->appendedToken())
    putFirst(*tokenizer->appendedToken());
  size_t named = 0;
  for (int32_t id : ends) {
    const bool isKnown =
        tokenizer && id < tokenizer->vocabSize() &&
        std::ranges::find(kGgufEndTokens, tokenizer->tokenBytes(id)) !=
            std::end(kGgufEndTokens);
    if (named == 0)
      head.addInteger(kGgufEosToken, static_cast<uint32_t>(id));
    else if (isKnown)
      continue;
    else if (named == 1)
      head.addInteger(kGgufEotToken, static_cast<uint32_t>(id));
    else
      warnings.push_back("token " + std::to_string(id) +
                         " ends an answer, too, which the GGUF file does not "
                         "say");
    ++named;
  }
}

void qwen::addTokenizer(const Artifact &artifact, GgufHead &head,
                        std::vector<std::string> &warnings) {
  const Manifest &manifest = artifact.manifest();
  const GenerationConfig &generation = manifest.generation;
  std::optional<Tokenizer> tokenizer;
  if (!artifact.tokenizer().empty()) {
    tokenizer = Tokenizer::fromBlob(artifact.tokenizer());
    addTokens(*tokenizer, manifest.model.vocabSize, head, warnings);
  }
  addEnds(generation, tokenizer ? &*tokenizer : nullptr, head, warnings);
  const auto addId = [&](const char *key, std::optional<int32_t> id) {
    if (id)
      head.addInteger(key, static_cast<uint32_t>(*id));
  };
  addId(kGgufBosToken, generation.bosTokenId || !tokenizer
                           ? generation.bosTokenId
                           : tokenizer->bosToken());
  addId(kGgufPadToken,
        tokenizer ? tokenizer->padToken() : std::optional<int32_t>());
  if (!artifact.chatTemplate().empty())
    head.addText(kGgufChatTemplate, artifact.chatTemplate());
}
