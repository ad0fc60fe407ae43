//===- CheckpointTokenizer.cpp - The tokenizer of a checkpoint ------------===//

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <array>

using namespace qwen;
namespace fs = std::filesystem;

[[noreturn]] static void failIn(const fs::path &file, const std::string &what) {
  throw Error(part::file(file.string()) + ": " + what);
}

char32_t qwen::byteCharacter(uint8_t byte) {
  static const auto kAlphabet = [] {
    std::array<char32_t, 256> alphabet;
    char32_t next = 0x100;
    for (char32_t i = 0; i < 256; ++i) {
      const bool isPrintable =
          (i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i != 0xad);
      alphabet[i] = isPrintable ? i : next++;
    }
    return alphabet;
  }();
  return kAlphabet[byte];
}

std::string qwen::byteLevel(std::string_view bytes) {
  std::string text;
  for (char byte : bytes) {
    // All are below U+0800.
    const char32_t c = byteCharacter(static_cast<uint8_t>(byte));
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += static_cast<char>(0xc0 | c >> 6);
      text += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return text;
}

void CheckpointTokenizer::addMerge(const fs::path &file, std::string_view text,
                                   std::string where) {
  const size_t space = text.find(' ');
  if (space == text.npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != text.npos)
    failIn(file, where + " is " + quote(text) +
                     " where two tokens with a space between are needed");
  merges.push_back({std::string(text.substr(0, space)),
                    std::string(text.substr(space + 1)), std::move(where)});
}

void CheckpointTokenizer::addAdded(const fs::path &file, uint32_t id,
                                   const std::string &text, uint32_t flags) {
  if (text.empty())
    failIn(file, "added token " + std::to_string(id) + " has no text");
  const uint32_t idOfText = addedIds.try_emplace(text, id).first->second;
  added.try_emplace(id, Added{text, flags});
  const uint32_t other = idOfText != id ? idOfText : id;
  if (const std::string &otherText = added.at(other).text;
      other != id || otherText != text)
    failIn(file, "added token " + quote(text) + " with id " +
                     std::to_string(id) + " contradicts " + quote(otherText) +
                     " with id " + std::to_string(other));
  if (added.size() > kMaxAddedTokens)
    failIn(file,
           "more than " + std::to_string(kMaxAddedTokens) + " added tokens");
}
