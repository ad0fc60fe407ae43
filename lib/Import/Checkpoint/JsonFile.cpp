//===- JsonFile.cpp - Small files of a checkpoint -------------------------===//

#include "qwen/Import/Checkpoint/JsonFile.h"

#include "qwen/ABI/Error.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

static constexpr uint64_t kMaxFileBytes = 64 << 20;

void qwen::requireDirectory(const fs::path &dir) {
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(dir.string() +
                " does not exist: a Hugging Face folder or a GGUF file is "
                "needed");
  if (status.type() != fs::file_type::directory && !error)
    throw Error(dir.string() +
                " is not a folder: a Hugging Face folder or a GGUF file is "
                "needed");
  if (!error)
    fs::directory_iterator(dir, error);
  if (error)
    throw Error("cannot read " + dir.string() + ": " + error.message());
}

std::optional<std::string> qwen::readSmallFile(const fs::path &path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return std::nullopt;
  if (error)
    throw Error("cannot read " + path.string() + ": " + error.message());
  if (status.type() != fs::file_type::regular)
    throw Error("cannot read " + path.string() + ": it is not a file");
  const uint64_t size = fs::file_size(path, error);
  if (error)
    throw Error("cannot read " + path.string() + ": " + error.message());
  if (size > kMaxFileBytes)
    throw Error(path.string() + " has " + std::to_string(size) +
                " bytes when at most " + std::to_string(kMaxFileBytes) +
                " are expected");
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string text(size, '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(size)))
    throw Error("cannot read " + path.string() + ": " + std::strerror(errno));
  return text;
}

std::optional<json> qwen::readJsonObject(const fs::path &path) {
  const std::optional<std::string> text = readSmallFile(path);
  if (!text)
    return std::nullopt;
  return parseJsonObject<json>(*text, path.string());
}
