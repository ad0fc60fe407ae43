//===- Known.h - What of a checkpoint has no effect -------------*- C++ -*-===//
//
// Each tensor and each key of a checkpoint is used, known to have no effect,
// or told. The tables of Known.cpp list by kind what is known; docs/import.md
// describes each kind.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_KNOWN_H
#define QWEN_IMPORT_CHECKPOINT_KNOWN_H

#include "qwen/Support/JsonValue.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Names of one kind.
struct KnownNames {
  std::string_view kind;
  /// Patterns as of fnmatch.
  std::span<const std::string_view> names;
};

/// A key whose value changes the result. It has no effect if its value is null
/// or one of these, which are JSON.
struct FixedKey {
  std::string_view key;
  std::string_view value;
  std::string_view other = {};
};

/// What is known of the keys of a file that no reader asks for.
struct KnownKeys {
  std::span<const KnownNames> known;
  std::span<const FixedKey> fixed;
  /// What comes before the names of known and fixed keys, such as "qwen3.".
  std::string prefix = {};
  /// What the names of keys begin with that are not of the model.
  std::span<const std::string_view> elsewhere = {};
  /// Whether a fixed key of another value counts as unknown, and is no error.
  bool tellsFixed = false;
};

/// The tensors without effect, by their names in the model.
std::span<const KnownNames> knownTensors();
/// The kind of the tensor that the model calls `name`, or nullopt if it is not
/// known.
std::optional<std::string_view> knownTensorKind(const std::string &name);

/// The keys of config.json, at any depth.
KnownKeys knownConfigKeys();
/// The keys of the GGUF architecture `architecture`.
KnownKeys knownGgufKeys(std::string_view architecture);

/// The keys of generation_config.json.
KnownKeys knownGenerationKeys();

/// The names of the keys in `root` that nobody read, that are not known and
/// that are not null. Throws Error for a key that nobody read and whose value
/// would change the result, unless such keys are told. The source of `root`
/// must have a list of read keys.
std::vector<std::string> unknownKeys(const JsonValue &root,
                                     const KnownKeys &keys);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_KNOWN_H
