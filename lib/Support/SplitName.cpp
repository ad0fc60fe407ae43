//===- SplitName.cpp - Names of split GGUF files --------------------------===//

#include "qwen/Support/SplitName.h"

#include <string_view>

using namespace qwen;

static constexpr std::string_view kForm = "-#####-of-#####.gguf";
static constexpr std::string_view kEnding = ".gguf";

std::optional<std::string> qwen::ggufSplitName(const std::string &file,
                                               uint64_t number) {
  if (file.size() < kForm.size() || number > 99998)
    return std::nullopt;
  const size_t begin = file.size() - kForm.size();
  for (size_t i = 0; i < kForm.size(); ++i) {
    const char c = file[begin + i];
    if (kForm[i] == '#' ? c < '0' || c > '9' : c != kForm[i])
      return std::nullopt;
  }
  std::string digits = std::to_string(number + 1);
  digits.insert(0, 5 - digits.size(), '0');
  return file.substr(0, begin + 1) + digits + file.substr(begin + 6);
}

std::string qwen::ggufModelName(const std::string &file) {
  if (file.size() > kForm.size() && ggufSplitName(file, 0))
    return file.substr(0, file.size() - kForm.size());
  return file.ends_with(kEnding) ? file.substr(0, file.size() - kEnding.size())
                                 : file;
}
