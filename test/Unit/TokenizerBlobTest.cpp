//===- TokenizerBlobTest.cpp - Damaged tokenizers of artifacts ------------===//

#include "TokenizerFiles.h"

#include "qwen/ABI/TokenizerFormat.h"

#include <cstring>
#include <random>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

TEST_F(TokenizerFilesTest, RefusesDamagedBlobs) {
  write("tokenizer.json", wholeFile().dump());
  const std::vector<uint8_t> good =
      buildTokenizer(*readTokenizerFiles(dir)).blob;
  const auto expect = [&](const std::vector<uint8_t> &blob,
                          const std::string &part) {
    try {
      Tokenizer::fromBlob(blob);
      ADD_FAILURE() << "no error for " << part;
    } catch (const Error &error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what();
    }
  };
  const auto expectAt = [&](size_t offset, uint32_t value,
                            const std::string &part) {
    std::vector<uint8_t> blob = good;
    std::memcpy(blob.data() + offset, &value, sizeof(value));
    expect(blob, part);
  };
  expect({}, "ends");
  for (size_t size = 0; size < good.size(); size += 7)
    expect({good.begin(), good.begin() + ptrdiff_t(size)}, "damaged tokenizer");
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  expect(longer, "bytes of tokens");
  expectAt(0, 0, "magic");
  expectAt(offsetof(TokenizerHeader, version), 9, "format version 9");
  expectAt(offsetof(TokenizerHeader, flags), 32, "unknown flags");
  expectAt(offsetof(TokenizerHeader, unknownToken), 300, "without a token");
  expectAt(offsetof(TokenizerHeader, vocabSize), 0, "vocabulary size is 0");
  expectAt(offsetof(TokenizerHeader, vocabSize), ~0u, "vocabulary size");
  expectAt(offsetof(TokenizerHeader, vocabSize), 1 << 24, "ends");
  expectAt(offsetof(TokenizerHeader, addedCount), 1 << 20, "added tokens");
  expectAt(offsetof(TokenizerHeader, mergeSlots), 3, "merge table");
  expectAt(offsetof(TokenizerHeader, mergeSlots), 1 << 30, "merge table");
  expectAt(offsetof(TokenizerHeader, bosToken), 300, "named token");
  expectAt(offsetof(TokenizerHeader, byteTokens), 300, "token of byte 0");
  expectAt(offsetof(TokenizerHeader, byteTokens), 1, "token of byte 0");
  TokenizerHeader header;
  std::memcpy(&header, good.data(), sizeof(header));
  const size_t merges = sizeof(TokenizerHeader);
  const size_t added = merges + header.mergeSlots * sizeof(MergeSlot);
  const size_t offsets = added + header.addedCount * sizeof(AddedToken);
  for (size_t slot = 0; slot < header.mergeSlots; ++slot)
    expectAt(merges + slot * sizeof(MergeSlot) + 4, 300, "a merge names");
  std::vector<uint8_t> full = good;
  std::memset(full.data() + merges, 0, added - merges);
  expect(full, "no free slot");
  expectAt(added, 300, "id 300 of an added token");
  expectAt(added, 259, "id 259 of an added token");
  expectAt(added, 0x80, "added token 128 has no text");
  expectAt(added + 4, 32, "unknown flags of added token");
  expectAt(offsets, 1, "offsets");
  expectAt(offsets + 40, ~0u, "offsets");
  std::vector<uint8_t> shifted(good.size() + 32);
  uint8_t *start = shifted.data();
  while (reinterpret_cast<uintptr_t>(start) % kTokenizerAlign != 4)
    ++start;
  std::memcpy(start, good.data(), good.size());
  EXPECT_THROW(Tokenizer::fromBlob({start, good.size()}), Error);
}

TEST_F(TokenizerFilesTest, AnyDamageIsHarmless) {
  write("tokenizer.json", wholeFile().dump());
  const std::vector<uint8_t> good =
      buildTokenizer(*readTokenizerFiles(dir)).blob;
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> blob = good;
    for (unsigned i = random() % 4; i < 4; ++i)
      blob[random() % blob.size()] ^= uint8_t(1u << random() % 8);
    try {
      const Tokenizer tokenizer = Tokenizer::fromBlob(blob);
      const std::vector<int32_t> ids =
          tokenizer.encode("abc <s> abcab \u00e9e\u0301<tag>one");
      tokenizer.decode(ids);
    } catch (const Error &) {
    }
  }
}
