//===- Sealed.cpp - Reasoning that a client keeps -------------------------===//

#include "server/protocols/responses/Sealed.h"

#include "qwen/Support/Base64.h"
#include "text/Unicode.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;
using namespace qwen::server;

/// What the bytes of a sealed text begin with.
static constexpr std::string_view kSealMark = "qwen-run 1\n";

/// The checksum of a text, as bytes in little-endian order.
static std::string sealOf(std::string_view text) {
  uint64_t checksum = XXH3_64bits(text.data(), text.size());
  std::string bytes;
  for (size_t i = 0; i < sizeof(checksum); ++i, checksum >>= 8)
    bytes += static_cast<char>(checksum & 0xff);
  return bytes;
}

std::string responses::seal(std::string_view text) {
  return toBase64(std::string(kSealMark) + sealOf(text) + std::string(text));
}

std::optional<std::string> responses::unseal(std::string_view sealed) {
  const std::optional<std::string> bytes = fromBase64(sealed);
  if (!bytes || !bytes->starts_with(kSealMark))
    return std::nullopt;
  const std::string_view rest =
      std::string_view(*bytes).substr(kSealMark.size());
  const std::string_view text =
      rest.substr(std::min(sizeof(uint64_t), rest.size()));
  if (!rest.starts_with(sealOf(text)) || !isValidUtf8(text))
    return std::nullopt;
  return std::string(text);
}
