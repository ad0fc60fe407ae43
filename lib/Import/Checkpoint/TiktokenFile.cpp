//===- TiktokenFile.cpp - The tokenizer of Qwen 1 -------------------------===//
//
// A line of qwen.tiktoken has the bytes of a token in base64, and its id. The
// order of ids is the order of merges.
//
//===----------------------------------------------------------------------===//

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Support/Base64.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <unordered_map>

using namespace qwen;

/// A turn as in Qwen 1's own code, which no file of the checkpoint has.
static constexpr const char *kChatTemplate =
    R"({% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant.<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %})";

/// Tokens of Qwen 1 for any use, behind the tokens of texts and ChatML.
static constexpr int kExtraTokens = 205;

/// The line of a token, in errors and as the place of a merge.
static std::string lineOf(size_t id) {
  return "line " + std::to_string(id + 1);
}

[[noreturn]] static void fail(const std::filesystem::path &file, size_t id,
                              const std::string &what) {
  throw Error(part::file(file.string()) + " " + part::subject(lineOf(id)) +
              what);
}

/// The two tokens that the last merge of `token` joins, if tokens before `id`
/// merge in the order of their ids.
static std::optional<std::pair<std::string, std::string>>
lastMerge(const std::unordered_map<std::string, uint32_t> &ids,
          const std::string &token, uint32_t id) {
  std::vector<std::string> parts;
  for (char byte : token)
    parts.emplace_back(1, byte);
  // The id of each part joined with the next one.
  std::vector<uint32_t> joined(parts.size() - 1);
  const auto join = [&](size_t i) {
    const auto found = ids.find(parts[i] + parts[i + 1]);
    joined[i] = found == ids.end() ? kNoToken : found->second;
  };
  for (size_t i = 0; i < joined.size(); ++i)
    join(i);
  while (parts.size() > 2) {
    const auto least = std::ranges::min_element(joined);
    if (*least >= id)
      return std::nullopt;
    const auto at = least - joined.begin();
    parts[static_cast<size_t>(at)] += parts[static_cast<size_t>(at) + 1];
    parts.erase(parts.begin() + at + 1);
    joined.erase(least);
    for (auto i = static_cast<size_t>(std::max<ptrdiff_t>(at - 1, 0));
         i <= static_cast<size_t>(at) && i < joined.size(); ++i)
      join(i);
  }
  return std::pair(parts[0], parts[1]);
}

/// The tokens of `text` by their ids, which have no holes.
static std::vector<std::string> tokensById(const std::filesystem::path &file,
                                           std::string_view text) {
  // The longest of Qwen 1 has 128.
  constexpr size_t kMostBytes = 256;
  std::vector<std::string> tokens;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t space = std::min(line.find(' '), line.size());
    const auto bytes = fromBase64(line.substr(0, space));
    const std::string_view number =
        line.substr(std::min(space + 1, line.size()));
    if (!bytes || bytes->empty() || bytes->size() > kMostBytes ||
        number != std::to_string(tokens.size()))
      fail(file, tokens.size(),
           " is " + quote(line) + " when a token of 1 to " +
               std::to_string(kMostBytes) + " bytes in base64 and its id, " +
               std::to_string(tokens.size()) + ", are needed");
    tokens.push_back(*bytes);
  }
  return tokens;
}

CheckpointTokenizer qwen::readTiktoken(const std::filesystem::path &file,
                                       std::string_view text) {
  CheckpointTokenizer result;
  result.vocabFile = result.mergesFile = result.chatTemplateFile = file;
  const std::vector<std::string> tokens = tokensById(file, text);
  std::unordered_map<std::string, uint32_t> ids;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (!ids.emplace(tokens[id], id).second)
      fail(file, id, " repeats the token " + quote(tokens[id]));
    result.vocab.emplace(byteLevel(tokens[id]), id);
    if (tokens[id].size() == 1)
      continue;
    const auto merge = lastMerge(ids, tokens[id], id);
    if (!merge)
      fail(file, id,
           ": no tokens before " + quote(tokens[id]) + " merge to it");
    result.merges.push_back(
        {byteLevel(merge->first), byteLevel(merge->second), lineOf(id)});
  }
  auto next = static_cast<uint32_t>(tokens.size());
  const auto add = [&](const std::string &special) {
    result.addAdded(file, next++, special, AddedSpecial);
  };
  for (const char *special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    add(special);
  for (int i = 0; i < kExtraTokens; ++i)
    add("<|extra_" + std::to_string(i) + "|>");
  result.eosToken = "<|endoftext|>";
  result.chatTemplate = kChatTemplate;
  return result;
}
