//===- TokenizerFiles.cpp - Readers of tokenizer files --------------------===//

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Import/Checkpoint/JsonFile.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <set>
#include <string_view>

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

[[noreturn]] static void fail(const fs::path &file, const ErrorText &what) {
  throw Error(part::file(file.string()) + ": " + what);
}

/// The member `key` of `object`, or null if it is missing.
static const json &member(const json &object, const char *key) {
  static const json null;
  if (!object.is_object())
    return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

static bool readFlag(const fs::path &file, const json &object, const char *key,
                     bool byDefault) {
  const json &value = member(object, key);
  if (value.is_null())
    return byDefault;
  if (!value.is_boolean())
    fail(file, part::subject(key) + " is " + part::found(describe(value)) +
                   " where " + part::needed("true or false") + " is needed");
  return value.get<bool>();
}

static uint32_t readId(const fs::path &file, const std::string &token,
                       const json &value) {
  if (!value.is_number_integer() || value < 0 || value >= kMaxVocabSize)
    fail(file, part::subject("token " + quote(token)) + " has id " +
                   part::found(describe(value)) + " where a number from 0 to " +
                   std::to_string(kMaxVocabSize - 1) + " is needed");
  return value.get<uint32_t>();
}

static void requireNone(const fs::path &file, const json &object,
                        const std::string &where, const char *key) {
  const json &value = member(object, key);
  if (!value.is_null() && value != false && value != "" && value != 0)
    fail(file, where + " has " + key + " " + part::found(describe(value)) +
                   ", which is not supported");
}

//===----------------------------------------------------------------------===//
// Parts of the files
//===----------------------------------------------------------------------===//

static void readVocab(const fs::path &file, const json &vocab,
                      CheckpointTokenizer &result) {
  if (!vocab.is_object())
    fail(file, "the vocabulary is " + part::found(describe(vocab)) + " where " +
                   part::needed("an object") + " is needed");
  result.vocabFile = file;
  result.vocab.reserve(vocab.size());
  for (const auto &[token, id] : vocab.items())
    result.vocab.emplace(token, readId(file, token, id));
}

static void readMergesText(const fs::path &file, std::string_view text,
                           CheckpointTokenizer &result) {
  result.mergesFile = file;
  for (size_t line = 1, begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view content = text.substr(begin, end - begin);
    begin = end + 1;
    if (content.ends_with('\r'))
      content.remove_suffix(1);
    if (content.empty() || (line == 1 && content.starts_with("#version")))
      continue;
    result.addMerge(file, content, "line " + std::to_string(line));
  }
}

static void readMergesJson(const fs::path &file, const json &merges,
                           CheckpointTokenizer &result) {
  if (!merges.is_array())
    fail(file, "model.merges is " + part::found(describe(merges)) + " where " +
                   part::needed("an array") + " is needed");
  result.mergesFile = file;
  for (size_t i = 0; i < merges.size(); ++i) {
    const json &merge = merges[i];
    std::string where = "merge " + std::to_string(i);
    if (merge.is_string()) {
      result.addMerge(file, merge.get_ref<const std::string &>(),
                      std::move(where));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      result.merges.push_back({merge[0].get<std::string>(),
                               merge[1].get<std::string>(), std::move(where)});
    } else {
      fail(file, where + " is " + part::found(describe(merge)) +
                     " where two tokens are needed");
    }
  }
}

static void readAdded(const fs::path &file, uint32_t id, const json &token,
                      CheckpointTokenizer &result) {
  const json &text = member(token, "content");
  if (!text.is_string())
    fail(file, "added token " + std::to_string(id) + " is " +
                   part::found(describe(token)) + " where " +
                   part::needed("an object with its content") + " is needed");
  const bool special = readFlag(file, token, "special", false);
  uint32_t flags = 0;
  const auto set = [&](const char *key, bool byDefault, AddedTokenFlags flag) {
    if (readFlag(file, token, key, byDefault))
      flags |= flag;
  };
  set("special", false, AddedSpecial);
  set("normalized", !special, AddedNormalized);
  set("lstrip", false, AddedLstrip);
  set("rstrip", false, AddedRstrip);
  set("single_word", false, AddedSingleWord);
  result.addAdded(file, id, text.get<std::string>(), flags);
}

/// The text of a token in a config: a string, or an object with the string as
/// content.
static std::optional<std::string>
tokenText(const fs::path &file, const char *key, const json &value) {
  if (value.is_null())
    return std::nullopt;
  const json &text = value.is_object() ? member(value, "content") : value;
  if (!text.is_string())
    fail(file, part::subject(key) + " is " + part::found(describe(value)) +
                   " where " + part::needed("a token") + " is needed");
  return text.get<std::string>();
}

/// Reads the named tokens of `config` and adds the texts of special tokens to
/// `specials`.
static void readNames(const fs::path &file, const json &config,
                      CheckpointTokenizer &result,
                      std::set<std::string> &specials) {
  const std::pair<const char *, std::optional<std::string> *> names[] = {
      {"bos_token", &result.bosToken},
      {"eos_token", &result.eosToken},
      {"pad_token", &result.padToken},
  };
  for (const auto &[key, name] : names)
    if (std::optional<std::string> text =
            tokenText(file, key, member(config, key))) {
      specials.insert(*text);
      if (!*name)
        *name = std::move(text);
    }
  const json &more = member(config, "additional_special_tokens");
  if (!more.is_null() && !more.is_array())
    fail(file, "additional_special_tokens is " + part::found(describe(more)) +
                   " where " + part::needed("an array") + " is needed");
  for (const json &token : more)
    if (std::optional<std::string> text =
            tokenText(file, "additional_special_tokens", token))
      specials.insert(std::move(*text));
}

/// Reads the chat template of a config. One that cannot be read is only a
/// warning, because `generate` does not need it.
static void readTemplate(const fs::path &file, const json &value,
                         CheckpointTokenizer &result) {
  const json *source = &value;
  if (value.is_array()) {
    const auto found = std::ranges::find_if(value, [](const json &entry) {
      return member(entry, "name") == "default";
    });
    if (found != value.end())
      source = &member(*found, "template");
  }
  if (source->is_string()) {
    if (source->get_ref<const std::string &>().empty())
      return;
    result.chatTemplate = source->get<std::string>();
    result.chatTemplateFile = file;
  } else if (!value.is_null()) {
    result.warnings.push_back(
        file.string() + ": chat_template is " + describe(value) +
        " where a string, or a list with one named default, is needed; "
        "qwen-run chat will refuse the model, generate will not");
  }
}

//===----------------------------------------------------------------------===//
// tokenizer.json
//===----------------------------------------------------------------------===//

namespace {
/// An expression that splits a text into words.
struct WordPattern {
  const char *regex;
  bool marksJoinLetters;
};
} // namespace

/// Two equivalent forms of the expression of Qwen 2 and 3, and Qwen3.5's.
static constexpr WordPattern kWordPatterns[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true},
};

/// `step`, or the only step of a sequence, whose steps are the member `steps`.
static const json &onlyStep(const json &step, const char *steps) {
  const json *only = &step;
  for (;;) {
    const json &inner = member(*only, steps);
    if (member(*only, "type") != "Sequence" || !inner.is_array() ||
        inner.size() != 1)
      return *only;
    only = &inner[0];
  }
}

static void checkNormalizer(const fs::path &file, const json &value,
                            CheckpointTokenizer &result) {
  const json &normalizer = onlyStep(value, "normalizers");
  const bool isEmpty = member(normalizer, "type") == "Sequence" &&
                       member(normalizer, "normalizers") == json::array();
  if (normalizer.is_null() || isEmpty) {
    result.normalizesNfc = false;
    return;
  }
  if (member(normalizer, "type") != "NFC")
    fail(file, "normalizer " +
                   part::found(describe(member(normalizer, "type"))) +
                   " is not supported (NFC or none is)");
}

/// The pattern of a step that splits a text into words, or null.
static const WordPattern *wordPattern(const json &step) {
  const json &pattern = member(member(step, "pattern"), "Regex");
  const auto *found =
      std::ranges::find_if(kWordPatterns, [&](const WordPattern &known) {
        return pattern == known.regex;
      });
  const bool isSplit = member(step, "type") == "Split" &&
                       member(step, "behavior") == "Isolated" &&
                       member(step, "invert") != true;
  return isSplit && found != std::end(kWordPatterns) ? found : nullptr;
}

static bool isPlainByteLevel(const json &step) {
  return member(step, "type") == "ByteLevel" &&
         member(step, "add_prefix_space") == false &&
         member(step, "use_regex") == false;
}

static void readPreTokenizer(const fs::path &file, const json &whole,
                             CheckpointTokenizer &result) {
  constexpr const char *kSteps = "pretokenizers";
  const json &value = onlyStep(whole, kSteps);
  const json &steps = member(value, kSteps);
  if (member(value, "type") == "Sequence" && steps.is_array() &&
      steps.size() == 2 && isPlainByteLevel(onlyStep(steps[1], kSteps)))
    if (const WordPattern *pattern = wordPattern(onlyStep(steps[0], kSteps))) {
      result.marksJoinLetters = pattern->marksJoinLetters;
      return;
    }
  std::string found = describe(member(value, "type"));
  if (steps.is_array()) {
    found += " of";
    for (const json &step : steps) {
      found += " " + describe(member(step, "type"));
      const json &pattern = member(member(step, "pattern"), "Regex");
      if (!pattern.is_null())
        found += " " + describe(pattern);
    }
  }
  fail(file, "pre_tokenizer " + found +
                 " is not supported (a sequence of Split by Qwen's expression "
                 "and ByteLevel without prefix space or regex is)");
}

/// The token that `processor` appends to a text, if that is all it does.
static std::optional<std::string> appendedToken(const json &processor) {
  const json &pieces = member(processor, "single");
  if (member(processor, "type") != "TemplateProcessing" || !pieces.is_array() ||
      pieces.size() != 2 || member(member(pieces[0], "Sequence"), "id") != "A")
    return std::nullopt;
  const json &token = member(member(pieces[1], "SpecialToken"), "id");
  return token.is_string() ? std::optional(token.get<std::string>())
                           : std::nullopt;
}

/// Reads the token that is appended to texts. Warns about other steps that put
/// tokens around a text.
static void readPostProcessor(const fs::path &file, const json &value,
                              CheckpointTokenizer &result) {
  const json &steps = member(value, "processors");
  for (const json &step : steps.is_array() ? steps : json::array({value})) {
    const json &type = member(step, "type");
    if (type.is_null() || type == "ByteLevel")
      continue;
    if (const auto token = appendedToken(step))
      result.appendedToken = token;
    else
      result.warnings.push_back(file.string() + ": post_processor " +
                                describe(type) +
                                " is ignored: no token is put around a text");
  }
}

static void readTokenizerJson(const fs::path &file, const json &tokenizer,
                              CheckpointTokenizer &result) {
  const json &model = member(tokenizer, "model");
  if (member(model, "type") != "BPE")
    fail(file, "model type " + part::found(describe(member(model, "type"))) +
                   " is not supported (BPE is)");
  for (const char *key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
        "byte_fallback", "ignore_merges"})
    requireNone(file, model, "model", key);
  checkNormalizer(file, member(tokenizer, "normalizer"), result);
  readPreTokenizer(file, member(tokenizer, "pre_tokenizer"), result);
  const json &decoder =
      member(onlyStep(member(tokenizer, "decoder"), "decoders"), "type");
  if (decoder != "ByteLevel")
    fail(file, "decoder " + part::found(describe(decoder)) +
                   " is not supported (ByteLevel is)");
  readPostProcessor(file, member(tokenizer, "post_processor"), result);
  for (const char *key : {"truncation", "padding"})
    if (!member(tokenizer, key).is_null())
      result.warnings.push_back(file.string() + ": " + key +
                                " is ignored: a text keeps its length");
  readVocab(file, member(model, "vocab"), result);
  readMergesJson(file, member(model, "merges"), result);
  result.unknownToken =
      tokenText(file, "unk_token", member(model, "unk_token"));
  result.joinsUnknown = readFlag(file, model, "fuse_unk", false);

  const json &added = member(tokenizer, "added_tokens");
  if (!added.is_null() && !added.is_array())
    fail(file, "added_tokens is " + part::found(describe(added)) + " where " +
                   part::needed("an array") + " is needed");
  for (const json &token : added)
    readAdded(
        file,
        readId(file, describe(member(token, "content")), member(token, "id")),
        token, result);
}

//===----------------------------------------------------------------------===//
// All files of a directory
//===----------------------------------------------------------------------===//

static uint32_t parseId(const fs::path &file, const std::string &key) {
  if (key.empty() || key.size() > 9 ||
      key.find_first_not_of("0123456789") != key.npos)
    fail(file, "added_tokens_decoder has the key " + quote(key) + " where " +
                   part::needed("an id") + " is needed");
  return readId(file, key, json(std::stoul(key)));
}

/// tokenizer_config.json, special_tokens_map.json, added_tokens.json and the
/// files of chat templates.
static void readConfigs(const fs::path &dir, CheckpointTokenizer &result) {
  std::set<std::string> specials;
  const fs::path templateFile = dir / "chat_template.jinja";
  const std::optional<std::string> source = readSmallFile(templateFile);
  const fs::path configFile = dir / "tokenizer_config.json";
  if (const std::optional<json> config = readJsonObject(configFile)) {
    requireNone(configFile, *config, "it", "add_prefix_space");
    readNames(configFile, *config, result, specials);
    const json &added = member(*config, "added_tokens_decoder");
    if (!added.is_null() && !added.is_object())
      fail(configFile, "added_tokens_decoder is " +
                           part::found(describe(added)) + " where " +
                           part::needed("an object") + " is needed");
    for (const auto &[id, token] : added.items())
      readAdded(configFile, parseId(configFile, id), token, result);
    if (!source)
      readTemplate(configFile, member(*config, "chat_template"), result);
  }
  const fs::path mapFile = dir / "special_tokens_map.json";
  if (const std::optional<json> map = readJsonObject(mapFile))
    readNames(mapFile, *map, result, specials);
  const fs::path addedFile = dir / "added_tokens.json";
  if (const std::optional<json> added = readJsonObject(addedFile))
    for (const auto &[text, id] : added->items())
      result.addAdded(addedFile, readId(addedFile, text, id), text,
                      specials.count(text) ? AddedSpecial : 0);
  if (source) {
    result.chatTemplate = *source;
    result.chatTemplateFile = templateFile;
    return;
  }
  // Older versions of transformers wrote a processor's template here.
  const fs::path processorFile = dir / "chat_template.json";
  if (result.chatTemplate.empty())
    if (const std::optional<json> processor = readJsonObject(processorFile))
      readTemplate(processorFile, member(*processor, "chat_template"), result);
}

std::optional<CheckpointTokenizer>
qwen::readTokenizerFiles(const fs::path &dir) {
  CheckpointTokenizer result;
  const fs::path whole = dir / "tokenizer.json";
  const fs::path vocabFile = dir / "vocab.json";
  const fs::path mergesFile = dir / "merges.txt";
  const fs::path tiktokenFile = dir / "qwen.tiktoken";
  if (const std::optional<json> tokenizer = readJsonObject(whole)) {
    readTokenizerJson(whole, *tokenizer, result);
  } else {
    const std::optional<json> vocab = readJsonObject(vocabFile);
    const std::optional<std::string> merges = readSmallFile(mergesFile);
    if (!vocab && !merges) {
      const std::optional<std::string> tiktoken = readSmallFile(tiktokenFile);
      if (!tiktoken)
        return std::nullopt;
      result = readTiktoken(tiktokenFile, *tiktoken);
    } else if (!vocab || !merges) {
      fail(vocab ? mergesFile : vocabFile,
           "is missing (" + (vocab ? vocabFile : mergesFile).string() +
               " needs it)");
    } else {
      readVocab(vocabFile, *vocab, result);
      readMergesText(mergesFile, *merges, result);
    }
  }
  result.checkpoint = dir;
  readConfigs(dir, result);
  return result;
}
