//===- Prompt.h - What a model reads, and who may share it ------*- C++ -*-===//
//
// Sequences share pages and snapshots if their tokens, their media and their
// roots are the same. docs/decisions/0030 has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_PROMPT_H
#define QWEN_RUNTIME_ENGINE_PROMPT_H

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// An image or another medium. The ids at its positions only pad.
struct Medium {
  int64_t position, count;
  /// Rows of its patches, on which the positions of rotary embeddings depend.
  int64_t rows;
  /// SHA-256 of what the model sees of it.
  std::array<uint8_t, 32> digest;

  bool operator==(const Medium &) const = default;
};

/// What sequences must share before they share pages.
struct Root {
  /// Names the weights and the adapter over them.
  std::string artifact = {}, adapter = {};
  /// Names the client's API key, without its text.
  std::string key = {};
  /// A client's own part.
  std::string salt = {};

  auto operator<=>(const Root &) const = default;
};

/// A counted reference to a root of a RootTable, which keeps the root as long
/// as a reference exists. Two references of a table are equal if and only if
/// their roots are. Null is the root of prompts without one.
using RootRef = std::shared_ptr<const Root>;

struct Prompt {
  std::vector<int32_t> ids = {};
  /// In the order of their positions.
  std::vector<Medium> media = {};
  RootRef root = {};

  /// Throws Error unless media follow one another at positions of `ids`.
  void requireMedia() const;
};

/// What decides, beside tokens, whether sequences share positions. A copy
/// allocates nothing.
struct Identity {
  RootRef root = {};
  /// Null if there is none.
  std::shared_ptr<const std::vector<Medium>> media = {};

  Identity() = default;
  explicit Identity(const Prompt &prompt);

  /// The media that overlap positions `first` ... `end` - 1.
  std::span<const Medium> overlapping(int64_t first, int64_t end) const;
  /// Whether the roots and these media are the same.
  bool matches(const Identity &other, int64_t first, int64_t end) const;
  /// Equal for all that match there.
  size_t hash(int64_t first, int64_t end) const;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_PROMPT_H
