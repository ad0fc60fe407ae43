//===- ToolFormatTest.cpp - Formats of calls, from chat templates --------===//

#include "model/ToolFormat.h"

#include "StoriesTokenizer.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

using namespace qwen;
using nlohmann::ordered_json;
using test::storiesTokenizer;

namespace {

std::string published(const std::string &name) {
  std::ifstream file(QWEN_SOURCE_DIR "/test/Inputs/tokenizer/templates/" +
                     name + ".jinja");
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The name of the format, or the error.
std::string formatOf(const std::string &source, std::string_view name = {}) {
  try {
    const ChatFormat format(source, storiesTokenizer());
    return std::string(findToolFormat(format, name).name);
  } catch (const Error &error) {
    return error.what();
  }
}

TEST(ToolFormat, TemplatesTellIt) {
  EXPECT_EQ(formatOf(published("Qwen-Qwen2.5-7B-Instruct")), "hermes");
  EXPECT_EQ(formatOf(published("Qwen-QwQ-32B")), "hermes");
  EXPECT_EQ(formatOf(published("Qwen-Qwen3-0.6B")), "hermes");
  EXPECT_EQ(formatOf(published("Qwen3-Coder")), "xml");
  EXPECT_EQ(formatOf(published("Qwen3.5-4B")), "xml");
  EXPECT_EQ(formatOf(published("Qwen3.5-4B"), "hermes"), "hermes");
}

TEST(ToolFormat, OthersAreRefused) {
  const std::string ignored =
      "the chat template ignores tools, so that the model cannot call them";
  EXPECT_EQ(formatOf(published("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B")),
            ignored);
  const std::string plain =
      "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(formatOf(plain), ignored);
  // The option has no effect on a model that does not see the tools.
  EXPECT_EQ(formatOf(plain, "xml"), ignored);
  const std::string other =
      "{{ tools | tojson }}{% for m in messages %}{{ m.content }}"
      "{% for c in m.tool_calls %}[{{ c.function.name }}]{% endfor %}"
      "{% endfor %}";
  EXPECT_EQ(formatOf(other), "the chat template writes calls of tools in a "
                             "format that is not known; known are hermes, xml");
  EXPECT_EQ(formatOf(other, "hermes"), "hermes");
}

TEST(ToolFormat, ReadsTools) {
  const auto error = [](const char *json) -> std::string {
    try {
      toolsOf(ordered_json::parse(json), "tools");
    } catch (const Error &refused) {
      return refused.what();
    }
    return "none";
  };
  const Tools tools = toolsOf(
      ordered_json::parse(R"([{"type": "function", "function": {"name": "f",
        "parameters": {"type": "object"}, "x": 1}},
        {"type": "function", "function": {"name": "g"}}])"),
      "tools");
  ASSERT_EQ(tools.size(), 2U);
  EXPECT_EQ(tools[0].name, "f");
  EXPECT_EQ(tools[0].parameters["type"], "object");
  EXPECT_TRUE(tools[1].parameters.empty());
  EXPECT_EQ(error("{}"), "tools must be an array of functions");
  EXPECT_EQ(error(R"([{"type": "custom"}])"),
            "tools[0] must be {\"type\": \"function\", \"function\": {...}}");
  EXPECT_EQ(error(R"([{"type": "function", "function": {"name": ""}}])"),
            "tools[0].function.name must be a string of 1 to 256 characters");
  EXPECT_EQ(error(R"([{"type": "function", "function": {"name": "f",
                     "parameters": 1}}])"),
            "tools[0].function.parameters must be an object");
}

} // namespace
