//===- RequestBodies.h - Bodies of requests in tests ------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_REQUESTBODIES_H
#define QWEN_TEST_UNIT_REQUESTBODIES_H

#include "server/http/ApiError.h"
#include "server/protocols/openai/Chat.h"

#include <gtest/gtest.h>

namespace qwen::test {

using namespace server;

/// The parameters of a body.
template <typename Parameters = ChatParameters>
Parameters parse(const std::string &body, bool ignoreUnknown = false) {
  Parameters parameters;
  Parameters::List::parse(
      body, {.vocabSize = 100, .ignoreUnknown = ignoreUnknown}, parameters);
  return parameters;
}

/// "PARAMETER: message" of the error of a body.
template <typename Parameters = ChatParameters>
std::string errorOf(const std::string &body) {
  try {
    parse<Parameters>(body);
  } catch (const ApiError &error) {
    EXPECT_EQ(error.status(), 400U);
    return error.parameter() + ": " + error.what();
  }
  return "no error";
}

inline constexpr const char *kMessages =
    R"("messages": [{"role": "user", "content": "Hi"}])";

inline std::string chat(const std::string &more) {
  return std::string("{") + kMessages + ", " + more + "}";
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_REQUESTBODIES_H
