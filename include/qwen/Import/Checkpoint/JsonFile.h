//===- JsonFile.h - Small files of a checkpoint -----------------*- C++ -*-===//
//
// What the readers of JSON files share. Error messages are one line, whatever
// the file has in its strings.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_JSONFILE_H
#define QWEN_IMPORT_CHECKPOINT_JSONFILE_H

#include "qwen/ABI/Json.h"
#include "qwen/ABI/JsonValue.h"
#include "qwen/ABI/Text.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// Throws Error unless `dir` is a folder that can be read.
void requireDirectory(const std::filesystem::path &dir);

/// The bytes of `path`, or nullopt where there is no such file. Throws Error
/// for a file that cannot be read or is above 64 MiB (far more than any
/// configuration, index or tokenizer has).
std::optional<std::string> readSmallFile(const std::filesystem::path &path);

/// The JSON object that `text` is. Throws Error, which begins with `what`, as
/// checkJson does and for JSON of another kind.
nlohmann::json parseJsonObject(std::string_view text, const std::string &what,
                               const JsonLimits &limits);

/// The JSON object in `path`, or nullopt where there is no such file. Throws
/// Error as readSmallFile and parseJsonObject do.
std::optional<nlohmann::json> readJsonObject(const std::filesystem::path &path);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_JSONFILE_H
