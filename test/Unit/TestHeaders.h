//===- TestHeaders.h - What most tests include ------------------*- C++ -*-===//
//
// With QWEN_UNITY it is parsed once, with the templates that it uses.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_TESTHEADERS_H
#define QWEN_TEST_UNIT_TESTHEADERS_H

#include "TempDir.h"
#include "engine/Engine.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <thread>
#include <unordered_map>

namespace qwen::test {

/// Uses what tests of JSON do.
template <typename Json> void compareJson(const Json &a, const Json &b) {
  EXPECT_EQ(a, b) << a.dump();
  EXPECT_EQ(a.at("key"), "text");
  EXPECT_EQ(a["key"].template get<std::string>(), Json::parse("1").dump());
}
inline void compareAllJson() {
  compareJson(nlohmann::json(), nlohmann::json());
  compareJson(nlohmann::ordered_json(), nlohmann::ordered_json());
  EXPECT_EQ(nlohmann::ordered_json(), nlohmann::json());
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_TESTHEADERS_H
