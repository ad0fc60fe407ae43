//===- Config.h - Configuration files of a folder ---------------*- C++ -*-===//
//
// Readers of config.json and generation_config.json, with the keys of the
// published checkpoints and with those that transformers 5 writes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_CONFIG_H
#define QWEN_IMPORT_CHECKPOINT_CONFIG_H

#include "qwen/ABI/GenerationConfig.h"
#include "qwen/Import/Checkpoint/ModelConfig.h"

#include <filesystem>

namespace qwen {

/// Reads `dir`/config.json. Throws Error, with the file and the key, for
///  * a file that is missing, unreadable or not a JSON object;
///  * a key that is missing and has no default, of a wrong type or out of
///  range;
///  * sizes that disagree;
///  * unsupported features: architecture, activation, rotary embeddings that
///    are scaled in other ways than YaRN, or partial where the architecture is
///    not a hybrid, sliding windows, biases in the attention of Qwen3, code
///    of its own (auto_map), and all that Known.h lists as a FixedKey.
/// Keys that nobody reads and that are not known are a note, and so are keys
/// that are not there and have the default of their class in transformers.
ModelConfig readModelConfig(const std::filesystem::path &dir);

/// Reads `dir`/generation_config.json, which may be missing. Special tokens
/// that it lacks come from `dir`/config.json. Tokens beyond the vocabulary and
/// keys that change what is generated, but are not taken, are notes of `model`.
/// Throws Error like readModelConfig.
GenerationConfig readGenerationConfig(const std::filesystem::path &dir,
                                      ModelConfig &model);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_CONFIG_H
