//===- ModelNameTest.cpp - Requests to one of several models --------------===//

#include "server/ModelName.h"
#include "server/Metrics.h"
#include "server/PendingReply.h"
#include "server/protocols/openai/OpenAi.h"

#include <gtest/gtest.h>

#include <array>

using namespace qwen;
using namespace qwen::server;

namespace {

std::string nameErrorOf(const std::string &body) {
  try {
    return "no error, but " + modelInBody(body);
  } catch (const ApiError &error) {
    return std::to_string(error.status()) + " " + error.what();
  }
}

TEST(ModelName, IsAMemberOfTheOutermostObject) {
  EXPECT_EQ(modelInBody(R"({"model":"a/b"})"), "a/b");
  EXPECT_EQ(modelInBody(R"({"x":{"model":"b"},"y":[{"model":5}],"model":"a"})"),
            "a");
  EXPECT_EQ(modelInBody(R"({"x":{"model":"b"},"y":["model"]})"), "");
  EXPECT_EQ(modelInBody(R"({"x":"model","model":null})"), "");
  // What follows is for the parser of the protocol.
  EXPECT_EQ(modelInBody(R"({"model":"a", {)"), "a");
  EXPECT_EQ(nameErrorOf(R"({"model":{"model":"a"}})"),
            "400 model must be a string");
  EXPECT_EQ(nameErrorOf(R"({"model":["a"]})"), "400 model must be a string");
  EXPECT_EQ(nameErrorOf(R"({"x":)").substr(0, 12), "400 the body");
  EXPECT_EQ(nameErrorOf(std::string(1 << 20, '[')).substr(0, 12),
            "400 the body");
}

TEST(ModelName, IsAParameterOfTheQuery) {
  EXPECT_EQ(modelInQuery("a=1&model=b%2Fc&model=d"), "b/c");
  EXPECT_EQ(modelInQuery("models=b&model"), "");
  EXPECT_EQ(modelInQuery(""), "");
  EXPECT_THROW(modelInQuery("model=%2"), ApiError);
}

TEST(ModelMetrics, LinesOfAMetricStandTogether) {
  const std::array<std::string, 3> texts = {
      "# HELP a A.\n# TYPE a gauge\na{m=\"1\"} 1\n"
      "# HELP b B.\n# TYPE b gauge\nb{m=\"1\"} 2\nb{m=\"1\"} 3\n",
      "# HELP a A.\n# TYPE a gauge\na{m=\"2\"} 4\n",
      "# HELP c C.\n# TYPE c gauge\nc 5\n"};
  EXPECT_EQ(joinMetrics(texts),
            "# HELP a A.\n# TYPE a gauge\na{m=\"1\"} 1\na{m=\"2\"} 4\n"
            "# HELP b B.\n# TYPE b gauge\nb{m=\"1\"} 2\nb{m=\"1\"} 3\n"
            "# HELP c C.\n# TYPE c gauge\nc 5\n");
  EXPECT_EQ(joinMetrics({}), "");
}

TEST(PendingReply, GivesItsReplyOrThatOfACancelledRequest) {
  int wakes = 0;
  const auto wake = [&] { ++wakes; };
  HttpRequest request;
  request.method = "GET";
  PendingReply reply(request, openai::kFraming, wake);
  EXPECT_FALSE(reply.hasStarted());
  EXPECT_EQ(reply.instead(), nullptr);
  EXPECT_EQ(reply.takeRequest()->method, "GET");
  EXPECT_FALSE(reply.takeRequest());
  reply.give({.status = 204, .body = ""});
  EXPECT_TRUE(reply.hasStarted());
  EXPECT_EQ(reply.instead()->status, 204U);
  EXPECT_EQ(wakes, 1);

  PendingReply cancelled(request, openai::kFraming, wake);
  cancelled.cancel();
  EXPECT_TRUE(cancelled.hasStarted());
  EXPECT_FALSE(cancelled.takeRequest());
  EXPECT_EQ(cancelled.instead()->status, 503U);
  cancelled.give({.status = 204, .body = ""});
  EXPECT_EQ(cancelled.instead(), nullptr);
}

} // namespace
