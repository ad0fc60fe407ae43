//===- JsonFile.h - Small files of a checkpoint -----------------*- C++ -*-===//
//
// Functions that the readers of a checkpoint share.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_JSONFILE_H
#define QWEN_IMPORT_CHECKPOINT_JSONFILE_H

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// Throws Error unless `dir` is a readable folder.
void requireDirectory(const std::filesystem::path &dir);

/// The bytes of `path`, or nullopt if there is no such file. Throws Error if
/// something else is there (a symbolic link that leads nowhere, a folder, a
/// pointer of Git LFS), if the file cannot be read, or if it exceeds 64 MiB
/// (configurations, indices and tokenizers are far smaller).
std::optional<std::string> readSmallFile(const std::filesystem::path &path);

/// The JSON in `path`, like readSmallFile. The numbers NaN, Infinity and
/// -Infinity, which Python writes and JSON lacks, are strings in it that
/// parseJsonText makes numbers again.
std::optional<std::string> readJsonText(const std::filesystem::path &path);

/// The object in `text`, of readJsonText. Throws Error like parseJsonObject.
nlohmann::json parseJsonText(const std::string &text, const ErrorText &what);

/// The JSON object in `path`, or nullopt if there is no such file. Throws Error
/// like readJsonText and parseJsonText.
std::optional<nlohmann::json> readJsonObject(const std::filesystem::path &path);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_JSONFILE_H
