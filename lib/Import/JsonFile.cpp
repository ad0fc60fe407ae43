//===- JsonFile.cpp - Small files of a checkpoint -------------------------===//

#include "JsonFile.h"

#include "qwen/ABI/Error.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

static constexpr uint64_t kMaxFileBytes = 64 << 20;
/// More than any file of a checkpoint has.
static constexpr int kMaxNesting = 64;

void qwen::requireDirectory(const fs::path &dir) {
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(dir.string() + " does not exist: the folder of a Hugging Face "
                               "checkpoint is needed");
  if (status.type() != fs::file_type::directory && !error)
    throw Error(dir.string() + " is not a folder: the folder of a Hugging "
                               "Face checkpoint is needed");
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

/// Whether arrays and objects are within each other more than `most` deep.
/// Text that is not JSON may be found to be so, too.
static bool isDeeperThan(int most, std::string_view text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inString)
      i += c == '\\';
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (c == '"')
      inString = !inString;
    if (depth > most)
      return true;
  }
  return false;
}

std::optional<json> qwen::readJsonObject(const fs::path &path) {
  const std::optional<std::string> text = readSmallFile(path);
  if (!text)
    return std::nullopt;
  // A level takes 40 bytes of memory for one of the file.
  if (isDeeperThan(kMaxNesting, *text))
    throw Error(path.string() + " has arrays and objects nested more than " +
                std::to_string(kMaxNesting) + " deep");
  json value = json::parse(*text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    throw Error(path.string() + " is not JSON");
  if (!value.is_object())
    throw Error(path.string() + " has " + describe(value) +
                " when a JSON object is needed");
  return value;
}

std::string qwen::quote(std::string_view text) {
  constexpr size_t kMost = 200;
  const bool cut = text.size() > kMost;
  return json(std::string(text.substr(0, kMost)) + (cut ? "..." : ""))
      .dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

std::string qwen::describe(const json &value) {
  if (value.is_string())
    return quote(value.get_ref<const std::string &>());
  if (value.is_array())
    return "an array";
  if (value.is_object())
    return "an object";
  return value.dump();
}
