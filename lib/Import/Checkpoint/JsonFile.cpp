//===- JsonFile.cpp - Small files of a checkpoint -------------------------===//

#include "qwen/Import/Checkpoint/JsonFile.h"

#include "CheckpointFile.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <limits>
#include <system_error>

using namespace qwen;
using nlohmann::json;
namespace fs = std::filesystem;

static constexpr uint64_t kMaxFileBytes = 64 << 20;

void qwen::requireDirectory(const fs::path &dir) {
  std::error_code error;
  if (!isThere(dir))
    throw Error(part::file(dir.string()) + " does not exist: " +
                part::needed("a Hugging Face folder or a GGUF file") +
                " is needed");
  if (!fs::is_directory(dir, error) && !error)
    throw Error(part::file(dir.string()) + " is not a folder: " +
                part::needed("a Hugging Face folder or a GGUF file") +
                " is needed");
  if (!error)
    fs::directory_iterator(dir, error);
  if (error)
    throw Error("cannot read " + part::file(dir.string()) + ": " +
                part::found(error.message()));
}

std::optional<std::string> qwen::readSmallFile(const fs::path &path) {
  const std::optional<CheckpointFile> file = CheckpointFile::open(path);
  if (!file)
    return std::nullopt;
  if (file->size() > kMaxFileBytes)
    throw Error(part::file(path.string()) + " has " +
                part::found(file->size()) + " bytes when at most " +
                part::needed(kMaxFileBytes) + " are expected");
  std::string text(file->size(), '\0');
  file->read(text.data(), text.size());
  return text;
}

namespace {
/// A number that Python's JSON has besides others.
struct PythonNumber {
  std::string_view name;
  double value;
};
} // namespace

/// -Infinity before Infinity.
static constexpr PythonNumber kPythonNumbers[] = {
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
    {"-Infinity", -std::numeric_limits<double>::infinity()},
    {"Infinity", std::numeric_limits<double>::infinity()}};
/// Begins the strings that stand for them, and hardly any other.
static constexpr char kMark = '\x7f';

/// The number of Python that `text` begins with, or null. A word before a colon
/// is a key, and no number.
static const PythonNumber *findPythonNumber(std::string_view text) {
  for (const PythonNumber &number : kPythonNumbers)
    if (text.starts_with(number.name)) {
      const size_t next = text.find_first_not_of(" \t\r\n", number.name.size());
      return next != text.npos && text[next] == ':' ? nullptr : &number;
    }
  return nullptr;
}

std::optional<std::string> qwen::readJsonText(const fs::path &path) {
  std::optional<std::string> text = readSmallFile(path);
  if (!text || std::ranges::none_of(kPythonNumbers, [&](const auto &number) {
        return text->find(number.name) != std::string::npos;
      }))
    return text;
  std::string result;
  bool isInString = false;
  for (std::string_view rest = *text; !rest.empty();) {
    const PythonNumber *number = isInString ? nullptr : findPythonNumber(rest);
    size_t taken = number ? number->name.size() : 1;
    if (number)
      result.append("\"").append(1, kMark).append(number->name).append("\"");
    else if (isInString && rest.front() == '\\')
      taken = std::min<size_t>(2, rest.size());
    else if (rest.front() == '"')
      isInString = !isInString;
    if (!number)
      result += rest.substr(0, taken);
    rest.remove_prefix(taken);
  }
  return result;
}

/// Makes strings that stand for numbers these numbers.
static void restoreNumbers(json &value) {
  if (value.is_structured())
    for (json &inner : value)
      restoreNumbers(inner);
  if (!value.is_string())
    return;
  const std::string &text = value.get_ref<const std::string &>();
  for (const PythonNumber &number : kPythonNumbers)
    if (text.starts_with(kMark) && text.substr(1) == number.name) {
      value = number.value;
      return;
    }
}

json qwen::parseJsonText(const std::string &text, const ErrorText &what) {
  json value = parseJsonObject<json>(text, what);
  if (text.find(kMark) != std::string::npos)
    restoreNumbers(value);
  return value;
}

std::optional<json> qwen::readJsonObject(const fs::path &path) {
  const std::optional<std::string> text = readJsonText(path);
  if (!text)
    return std::nullopt;
  return parseJsonText(*text, part::file(path.string()));
}
