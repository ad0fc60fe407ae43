//===- TokenizerFiles.h - Small tokenizers --------------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_TOKENIZERFILES_H
#define QWEN_TEST_UNIT_TOKENIZERFILES_H

#include "TempDir.h"
#include "text/Tokenizer.h"

#include "qwen/Import/Tokenizer/TokenizerBlob.h"
#include "qwen/Support/Error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace qwen::test {

using nlohmann::json;

/// The files of a tokenizer with 258 tokens, to be changed and written.
class TokenizerFilesTest : public testing::Test {
protected:
  void SetUp() override {
    for (int byte = 0, next = 0x100; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      vocab[utf8(printable ? byte : next++)] = byte;
    }
    vocab["ab"] = 256;
    vocab["abc"] = 257;
  }

  static std::string utf8(int c) {
    if (c < 0x80)
      return {char(c)};
    return {char(0xc0 | c >> 6), char(0x80 | (c & 0x3f))};
  }

  void write(const char *name, const std::string &text) {
    temporary.write(name, text);
  }
  void writePair() {
    write("vocab.json", vocab.dump());
    write("merges.txt", merges);
  }

  json wholeFile() const {
    const char *pattern =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    return {{"added_tokens",
             {{{"id", 258}, {"content", "<s>"}, {"special", true}},
              {{"id", 259},
               {"content", "<tag>"},
               {"special", false},
               {"normalized", false}}}},
            {"normalizer", {{"type", "NFC"}}},
            {"pre_tokenizer",
             {{"type", "Sequence"},
              {"pretokenizers",
               {{{"type", "Split"},
                 {"pattern", {{"Regex", pattern}}},
                 {"behavior", "Isolated"},
                 {"invert", false}},
                {{"type", "ByteLevel"},
                 {"add_prefix_space", false},
                 {"use_regex", false}}}}}},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model",
             {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
  }

  std::vector<int32_t> encode(const char *text, bool allowSpecial = true) {
    const TokenizerImport import = buildTokenizer(*readTokenizerFiles(dir));
    return Tokenizer::fromBlob(import.blob).encode(text, allowSpecial);
  }

  /// Message of the Error that importing throws.
  std::string importError() {
    try {
      buildTokenizer(*readTokenizerFiles(dir));
    } catch (const Error &error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }
  void expectError(const std::string &part) {
    const std::string found = importError();
    EXPECT_NE(found.find(part), std::string::npos) << found;
    EXPECT_NE(found.find(dir.string()), std::string::npos) << found;
  }

  const TempDir temporary;
  const std::filesystem::path &dir = temporary.path();
  json vocab = json::object();
  std::string merges = "#version: 0.2\na b\nab c\n";
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_TOKENIZERFILES_H
