//===- LibraryHeaders.h - What most libraries include -----------*- C++ -*-===//
//
// With QWEN_UNITY it is parsed once, with the templates that it uses.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CMAKE_LIBRARYHEADERS_H
#define QWEN_CMAKE_LIBRARYHEADERS_H

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace qwen {

/// Uses what readers and writers of JSON do.
template <typename Json> std::string useJson(const std::string &text) {
  const Json value = Json::parse(text);
  Json other = {{"text", value.at("key").template get<std::string>()},
                {"number", value.value("number", int64_t{0})}};
  other["list"] = std::vector<int64_t>{1};
  return value == other ? value.dump() : other.dump();
}
inline std::string useAllJson(const std::string &text) {
  return useJson<nlohmann::json>(text) + useJson<nlohmann::ordered_json>(text);
}

} // namespace qwen

#endif // QWEN_CMAKE_LIBRARYHEADERS_H
