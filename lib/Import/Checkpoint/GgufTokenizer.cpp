//===- GgufTokenizer.cpp - The tokenizer in a GGUF file -------------------===//

#include "qwen/Import/Checkpoint/Gguf.h"
#include "qwen/Import/Checkpoint/GgufKeys.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

using namespace qwen;

/// The rule that `value` names.
static const GgufWordRule &findWordRule(const JsonValue &value) {
  const auto *rule =
      std::ranges::find(kGgufWordRules, value.string(), &GgufWordRule::name);
  if (rule != std::end(kGgufWordRules))
    return *rule;
  std::string supported = "supported are";
  for (const GgufWordRule &known : kGgufWordRules)
    supported += (&known == kGgufWordRules ? " " : ", ") + quote(known.name);
  value.refuse(supported);
}

static bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const DecodedChar c = decodeUtf8(text);
    if (c.kind != DecodedChar::Valid)
      return false;
    text.remove_prefix(c.length);
  }
  return true;
}

[[noreturn]] static void refuseToken(const std::string &path, uint32_t id,
                                     const std::string &text,
                                     const std::string &why) {
  throw Error(part::file(path) + ": " +
              part::subject("token " + std::to_string(id)) + " " + quote(text) +
              why);
}

/// Adds the tokens, which are ordinary text if the file has no types. Unused
/// ones at the end are padding and left out.
static void addTokens(const GgufFile &gguf, const std::string &path,
                      CheckpointTokenizer &result) {
  auto tokens = ggufStrings(gguf, path, kGgufTokens);
  const auto kinds = gguf.arrays.contains(kGgufTokenKinds)
                         ? ggufIntegers(gguf, path, kGgufTokenKinds)
                         : std::vector<int64_t>(tokens.size(), GgufNormal);
  if (kinds.size() != tokens.size() || tokens.size() > kMaxVocabSize)
    throw Error(part::file(path) + ": " + part::subject(kGgufTokenKinds) +
                " has " + part::found(kinds.size()) + " values for " +
                std::to_string(tokens.size()) +
                " tokens when as many, and at "
                "most " +
                std::to_string(kMaxVocabSize) + ", are needed");
  while (!tokens.empty() && kinds[tokens.size() - 1] == GgufUnused)
    tokens.pop_back();
  result.vocab.reserve(tokens.size());
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    const std::string text(tokens[id]);
    const auto fail = [&](const std::string &why) {
      refuseToken(path, id, text, why);
    };
    if (!isUtf8(text))
      fail(" is not UTF-8");
    switch (kinds[id]) {
    case GgufNormal:
    case GgufUnused:
      if (const auto [found, isNew] = result.vocab.try_emplace(text, id);
          !isNew)
        fail(" is also token " + std::to_string(found->second));
      break;
    case GgufControl:
      result.addAdded(path, id, text, AddedSpecial);
      break;
    case GgufUserDefined:
      result.addAdded(path, id, text, 0);
      break;
    default:
      fail(" has type " + std::to_string(kinds[id]) +
           " when 1, 3, 4 or 5 is needed");
    }
  }
}

//===----------------------------------------------------------------------===//
// Tokens of the wrong type
//===----------------------------------------------------------------------===//

/// Whether `text` has the form of a special token: <|...|>, or with the wide
/// bars of DeepSeek.
static bool isSpecialForm(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<\uff5c") && text.ends_with("\uff5c>"));
}

/// The words of the vocabulary in `chat` that have the form <...>.
static std::set<std::string, std::less<>>
writtenMarkers(std::string_view chat, const CheckpointTokenizer &tokenizer) {
  // The longest of Qwen's have 22.
  constexpr size_t kMostBytes = 64;
  std::set<std::string, std::less<>> found;
  for (size_t begin = chat.find('<'); begin != chat.npos;
       begin = chat.find('<', begin + 1)) {
    const std::string_view rest = chat.substr(begin, kMostBytes);
    for (size_t end = rest.find('>'); end != rest.npos;
         end = rest.find('>', end + 1))
      if (const std::string_view text = rest.substr(0, end + 1);
          tokenizer.vocab.contains(text))
        found.emplace(text);
  }
  return found;
}

/// Some converters give every token the type of ordinary text. Makes added
/// tokens of those words of the vocabulary that are certainly none: words of
/// the form of special tokens that the chat template writes or a key names, and
/// other words <...> that the template writes and no merge makes.
static void addMistypedTokens(std::span<const std::string> named,
                              const std::string &path,
                              CheckpointTokenizer &result) {
  auto words = writtenMarkers(result.chatTemplate, result);
  for (const std::string &text : named)
    if (isSpecialForm(text) && result.vocab.contains(text))
      words.insert(text);
  for (const CheckpointTokenizer::Merge &merge : result.merges)
    if (const auto made = words.find(merge.left + merge.right);
        made != words.end() && !isSpecialForm(*made))
      words.erase(made);
  for (const bool special : {true, false}) {
    std::string warning = path + ": tokens of ordinary text in "
                                 "tokenizer.ggml.token_type, which the chat "
                                 "template or a key names:";
    const size_t before = warning.size();
    for (const std::string &text : words) {
      if (isSpecialForm(text) != special)
        continue;
      warning += (warning.size() == before ? " " : ", ") + quote(text);
      result.addAdded(path, result.vocab.at(text), text,
                      special ? AddedSpecial : 0);
    }
    if (warning.size() == before)
      continue;
    warning += special ? "; they count as special"
                       : "; they count as tokens of their own";
    result.warnings.push_back(std::move(warning));
  }
}

//===----------------------------------------------------------------------===//
// All keys
//===----------------------------------------------------------------------===//

/// The texts of the tokens that keys name.
static std::vector<std::string> namedTokens(const GgufFile &gguf,
                                            const std::string &path,
                                            const JsonValue &root) {
  const auto tokens = ggufStrings(gguf, path, kGgufTokens);
  std::vector<std::string> named;
  for (const char *key :
       {kGgufBosToken, kGgufEosToken, kGgufEotToken, kGgufPadToken})
    if (const auto value = root.findValue(key))
      if (const auto id =
              static_cast<size_t>(value->integer(0, kMaxVocabSize - 1));
          id < tokens.size())
        named.emplace_back(tokens[id]);
  return named;
}

std::optional<CheckpointTokenizer>
qwen::readGgufTokenizer(const GgufFile &gguf,
                        const std::filesystem::path &file) {
  const std::string path = file.string();
  const JsonSource source = JsonSource::ofFile(path);
  const JsonValue root(gguf.values, source);
  const auto model = root.findValue(kGgufTokenizer);
  if (!model || model->string() == kGgufNoTokenizer)
    return std::nullopt;
  if (model->string() != kGgufBytePairs)
    model->refuse("supported are " + quote(kGgufBytePairs) + " and " +
                  quote(kGgufNoTokenizer));
  const JsonValue words = root.at(kGgufWords);

  CheckpointTokenizer result;
  result.marksJoinLetters = findWordRule(words).marksJoinLetters;
  result.checkpoint = result.vocabFile = result.mergesFile =
      result.chatTemplateFile = file;
  addTokens(gguf, path, result);
  const auto merges = ggufStrings(gguf, path, kGgufMerges);
  for (size_t i = 0; i < merges.size(); ++i)
    result.addMerge(file, merges[i], "merge " + std::to_string(i));

  if (const auto chat = root.findValue(kGgufChatTemplate)) {
    result.chatTemplate = chat->string();
    if (!isUtf8(result.chatTemplate))
      chat->error("is not UTF-8");
  } else if (gguf.arrays.contains("tokenizer.chat_templates")) {
    result.warnings.push_back(
        path + ": tokenizer.chat_templates has no template named default; "
               "qwen-run chat will refuse the model, generate will not");
  }
  addMistypedTokens(namedTokens(gguf, path, root), path, result);

  const std::pair<const char *, std::optional<std::string> *> names[] = {
      {kGgufBosToken, &result.bosToken},
      {kGgufEosToken, &result.eosToken},
      {kGgufPadToken, &result.padToken},
  };
  for (const auto &[key, name] : names)
    if (const auto id = root.findValue(key))
      if (const auto added = result.added.find(
              static_cast<uint32_t>(id->integer(0, kMaxVocabSize - 1)));
          added != result.added.end())
        *name = added->second.text;
  if (const auto add = root.findValue(kGgufAddEos); add && add->boolean())
    result.appendedToken = result.eosToken;
  if (const auto add = root.findValue(kGgufAddBos); add && add->boolean())
    result.warnings.push_back(path +
                              ": tokenizer.ggml.add_bos_token is ignored: no "
                              "token is put around a text");
  return result;
}
