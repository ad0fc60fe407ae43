//===- PageFile.cpp - A page or a snapshot as a file ----------------------===//

#include "store/PageFile.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <array>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

namespace {
/// The first bytes of a file. All numbers are little-endian.
struct FixedHead {
  char magic[8];
  uint32_t version;
  /// Bytes of the head: of this, the texts, the media, the ids and padding.
  uint32_t headBytes;
  uint64_t payloadBytes;
  /// XXH3-64 of head, with 0 in this place, and bytes.
  uint64_t checksum;
  PageName name, before;
  /// Bytes of the texts of the root.
  uint32_t textBytes[4];
  uint32_t media, ids;
};

/// A medium as the file has it.
struct FileMedium {
  int64_t position, count, rows;
  std::array<uint8_t, 32> digest;
};
} // namespace

static_assert(sizeof(FixedHead) == 120 && sizeof(FileMedium) == 56);

static constexpr char kMagic[9] = "QwenPage";
static constexpr uint32_t kVersion = 1;
/// Heads have a multiple of these bytes.
static constexpr size_t kHeadAlignment = 8;
static constexpr uint64_t kMostPayloadBytes = uint64_t{1} << 40;

static std::array<const std::string *, 4> textsOf(const Root &root) {
  return {&root.artifact, &root.adapter, &root.key, &root.salt};
}

std::vector<uint8_t> qwen::pageFileHead(const PageName &name,
                                        const PageContent &content,
                                        uint64_t payloadBytes) {
  FixedHead fixed = {};
  memcpy(fixed.magic, kMagic, sizeof(fixed.magic));
  fixed.version = kVersion;
  fixed.payloadBytes = payloadBytes;
  fixed.name = name;
  fixed.before = content.before;
  size_t size = sizeof(fixed);
  const auto texts = textsOf(content.root);
  for (size_t i = 0; i < texts.size(); ++i) {
    fixed.textBytes[i] = static_cast<uint32_t>(
        std::min<size_t>(texts[i]->size(), kMostHeadBytes));
    size += fixed.textBytes[i];
  }
  fixed.media = static_cast<uint32_t>(content.media.size());
  fixed.ids = static_cast<uint32_t>(content.ids.size());
  size += content.media.size() * sizeof(FileMedium) + content.ids.size_bytes();
  size = (size + kHeadAlignment - 1) / kHeadAlignment * kHeadAlignment;
  if (size > kMostHeadBytes || content.ids.size() > kPageTokens)
    return {};
  fixed.headBytes = static_cast<uint32_t>(size);

  std::vector<uint8_t> head(size);
  size_t at = 0;
  const auto put = [&](const void *data, size_t bytes) {
    if (bytes)
      memcpy(head.data() + at, data, bytes);
    at += bytes;
  };
  put(&fixed, sizeof(fixed));
  for (const std::string *text : texts)
    put(text->data(), text->size());
  for (const Medium &medium : content.media) {
    const FileMedium in = {medium.position, medium.count, medium.rows,
                           medium.digest};
    put(&in, sizeof(in));
  }
  put(content.ids.data(), content.ids.size_bytes());
  return head;
}

/// The place of the checksum in a head.
static uint8_t *checksumOf(std::span<uint8_t> head) {
  return head.data() + offsetof(FixedHead, checksum);
}

/// The checksum of a head, which has 0 in its place, and bytes.
template <typename Parts>
static uint64_t checksum(std::span<const uint8_t> head, const Parts &payload) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, head.data(), head.size());
  for (const std::span<const uint8_t> part : payload)
    XXH3_64bits_update(&state, part.data(), part.size());
  return XXH3_64bits_digest(&state);
}

void qwen::sealPageFile(std::span<uint8_t> head,
                        std::span<const uint8_t> payload) {
  const uint64_t sum = checksum(head, std::array{payload});
  memcpy(checksumOf(head), &sum, sizeof(sum));
}

bool qwen::isPageFile(std::span<uint8_t> head, PageParts payload,
                      std::span<const uint8_t> expected) {
  if (head.size() != expected.size() || head.size() < sizeof(FixedHead))
    return false;
  uint64_t sum;
  memcpy(&sum, checksumOf(head), sizeof(sum));
  memset(checksumOf(head), 0, sizeof(sum));
  return std::ranges::equal(head, expected) && checksum(head, payload) == sum;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

[[noreturn]] static void refuse(const ErrorText &why) {
  throw Error("is no file of this version's prompt cache: " + why);
}

/// Throws Error unless a number that the file has is at most `most`.
static void requireMost(const char *what, uint64_t found, uint64_t most) {
  if (found > most)
    refuse("it has " + part::found(found) + " " + what + " when at most " +
           part::needed(most) + " are possible");
}

/// The front of a file, with all its numbers checked.
static FixedHead readFixed(std::span<const uint8_t> front, uint64_t fileBytes) {
  FixedHead fixed;
  if (front.size() < sizeof(fixed))
    refuse("it has " + part::found(front.size()) + " bytes when its head has " +
           part::needed(sizeof(fixed)) + " or more");
  memcpy(&fixed, front.data(), sizeof(fixed));
  if (memcmp(fixed.magic, kMagic, sizeof(fixed.magic)) != 0)
    refuse("it does not begin as one");
  if (fixed.version != kVersion)
    refuse("it has version " + part::found(fixed.version) + " when version " +
           part::needed(kVersion) + " is needed");
  requireMost("tokens", fixed.ids, kPageTokens);
  requireMost("media", fixed.media, kPageTokens);
  requireMost("bytes in its head", fixed.headBytes,
              std::min<uint64_t>(front.size(), kMostHeadBytes));
  requireMost("bytes behind its head", fixed.payloadBytes, kMostPayloadBytes);
  uint64_t size = sizeof(fixed) + fixed.media * sizeof(FileMedium) +
                  fixed.ids * sizeof(int32_t);
  for (uint32_t bytes : fixed.textBytes)
    size += bytes;
  size = (size + kHeadAlignment - 1) / kHeadAlignment * kHeadAlignment;
  if (fixed.headBytes != size)
    refuse("its head has " + part::found(fixed.headBytes) +
           " bytes when its parts have " + part::needed(size));
  if (fileBytes != fixed.headBytes + fixed.payloadBytes)
    refuse("it has " + part::found(fileBytes) +
           " bytes when its head says that it has " +
           part::needed(fixed.headBytes + fixed.payloadBytes));
  return fixed;
}

PageRecord qwen::parsePageFile(std::span<const uint8_t> front,
                               uint64_t fileBytes) {
  const FixedHead fixed = readFixed(front, fileBytes);
  PageRecord record = {.name = fixed.name,
                       .before = fixed.before,
                       .headBytes = fixed.headBytes,
                       .payloadBytes = fixed.payloadBytes};
  size_t at = sizeof(fixed);
  const auto take = [&](void *to, size_t bytes) {
    if (bytes)
      memcpy(to, front.data() + at, bytes);
    at += bytes;
  };
  const auto takeText = [&](std::string &text, size_t index) {
    text.resize(fixed.textBytes[index]);
    take(text.data(), text.size());
  };
  takeText(record.root.artifact, 0);
  takeText(record.root.adapter, 1);
  takeText(record.root.key, 2);
  takeText(record.root.salt, 3);
  for (uint32_t i = 0; i < fixed.media; ++i) {
    FileMedium in;
    take(&in, sizeof(in));
    record.media.push_back({in.position, in.count, in.rows, in.digest});
  }
  record.ids.resize(fixed.ids);
  take(record.ids.data(), fixed.ids * sizeof(int32_t));
  return record;
}
