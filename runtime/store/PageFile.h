//===- PageFile.h - A page or a snapshot as a file --------------*- C++ -*-===//
//
// A file has a head, which says what its bytes are of, and the bytes of
// SequenceState::readPage or readSnapshot. docs/decisions/0042 has the reasons.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_STORE_PAGEFILE_H
#define QWEN_RUNTIME_STORE_PAGEFILE_H

#include "engine/PageStore.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// The most bytes of a head. Contents with a larger one are not stored.
inline constexpr size_t kMostHeadBytes = 24576;

/// What a head says.
struct PageRecord {
  PageName name = {}, before = {};
  Root root = {};
  std::vector<Medium> media = {};
  /// Those of a page, or fewer: the fixed state behind them.
  std::vector<int32_t> ids = {};
  /// Bytes of the head, and of what follows.
  uint64_t headBytes = 0, payloadBytes = 0;
};

/// The head of a file, without its checksum; empty if it were larger than
/// kMostHeadBytes.
std::vector<uint8_t> pageFileHead(const PageName &name,
                                  const PageContent &content,
                                  uint64_t payloadBytes);

/// Gives a head of pageFileHead the checksum of itself and of the bytes.
void sealPageFile(std::span<uint8_t> head, std::span<const uint8_t> payload);

/// Whether a head, which this takes the checksum from, is `expected`, a head of
/// pageFileHead, and the checksum fits head and payload.
bool isPageFile(std::span<uint8_t> head, PageParts payload,
                std::span<const uint8_t> expected);

/// Reads the head of a file of `fileBytes`, whose first bytes are `front`: all
/// of them, or kMostHeadBytes. Compares no checksum. Throws Error, whose line
/// goes on behind the name of the file.
PageRecord parsePageFile(std::span<const uint8_t> front, uint64_t fileBytes);

} // namespace qwen

#endif // QWEN_RUNTIME_STORE_PAGEFILE_H
