//===- PageFileFuzz.cpp - Files of cached prompts -------------------------===//
//
// The first part of the input is the name of a file, the rest its bytes.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "store/PageFile.h"
#include "store/PromptFolder.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>

using namespace qwen;

/// The content that a head tells of has that head.
static void comesBack(const PageRecord &record,
                      std::span<const uint8_t> front) {
  const PageContent content = {record.root, record.before, record.media,
                               record.ids};
  const std::vector<uint8_t> expected =
      pageFileHead(record.name, content, record.payloadBytes);
  fuzz::require(expected.size() == record.headBytes,
                "a head comes back with another size");
  std::vector<uint8_t> head(front.begin(),
                            front.begin() + std::ssize(expected));
  std::vector<uint8_t> payload(static_cast<size_t>(record.payloadBytes));
  const std::span<uint8_t> part = payload;
  if (isPageFile(head, {&part, 1}, expected))
    fuzz::require(std::ranges::equal(head, expected),
                  "a head that differs is taken");
  // With its checksum it is taken.
  head = expected;
  sealPageFile(head, payload);
  fuzz::require(isPageFile(head, {&part, 1}, expected),
                "a head that was sealed is not taken");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view input = fuzz::asText(data, size);
  const std::vector<std::string_view> parts = fuzz::splitParts(input, 2);
  if (const auto file = PromptFile::named(parts[0])) {
    fuzz::require(file->fileName() == parts[0], "a name comes back otherwise");
    fuzz::require(!file->place || file->place->tokens < kPageTokens,
                  "a state lies behind a whole page");
  }
  const std::vector<uint8_t> bytes =
      fuzz::copyOf(data + (size - parts[1].size()), parts[1].size());
  const std::span<const uint8_t> front =
      std::span(bytes).first(std::min(bytes.size(), kMostHeadBytes));
  fuzz::parses(size,
               [&] { comesBack(parsePageFile(front, bytes.size()), front); });
  return 0;
}
