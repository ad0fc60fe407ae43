//===- NotesTest.cpp - What the log says of requests ----------------------===//

#include "RequestBodies.h"

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;

namespace {

using Lines = std::vector<std::string>;

/// Parameters of a protocol whose clients send others.
struct OpenParameters : ModelParameters, StreamParameters {
  nlohmann::ordered_json options;

  static const ParameterTable table;
  using List =
      OpenParameterList<ModelParameters, StreamParameters, OpenParameters>;
};

constexpr OwnKind kOptions = {
    [](const nlohmann::ordered_json &value, const std::string &name,
       const ParameterLimits &limits) {
      requireMembers(value, name, {"known"}, limits);
      return value;
    },
    [](const ParameterLimits &) { return nlohmann::ordered_json::object(); }};
constexpr Parameter kRows[] = {
    {.name = "options",
     .kind = ParameterKind::Own,
     .store = at<OpenParameters, &OpenParameters::options>,
     .own = &kOptions},
    {.name = "conversation", .kind = ParameterKind::Neutral},
};
const ParameterTable OpenParameters::table = {kRows};

Lines notesOf(const std::string &body) {
  OpenParameters parameters;
  Notes notes;
  OpenParameters::List::parse(body, {.vocabSize = 9}, parameters, &notes);
  return notes.take();
}

TEST(NotesTest, UnknownParametersOfOpenListsAreNoted) {
  EXPECT_EQ(notesOf(R"({"next": 1, "stream": true,
                        "stream_options": {"newer": true},
                        "options": {"known": 1, "later": 2}})"),
            (Lines{"unknown parameter next has no effect",
                   "unknown parameter stream_options.newer has no effect",
                   "unknown parameter options.later has no effect"}));
  EXPECT_EQ(notesOf(R"({"options": {"known": 1}})"), Lines());
  // Nobody needs to receive them.
  EXPECT_EQ(errorOf<OpenParameters>(R"({"next": 1})"), "no error");
  EXPECT_EQ(
      OpenParameters::List::schema({.vocabSize = 9}).at("additionalProperties"),
      true);
}

TEST(NotesTest, OtherErrorsOfOpenListsStay) {
  EXPECT_EQ(errorOf<OpenParameters>(R"({"conversation": "c"})"),
            "conversation: conversation is not supported; only null is "
            "accepted");
  EXPECT_EQ(errorOf<OpenParameters>(R"({"stream": 1})"),
            "stream: stream must be a boolean");
}

TEST(NotesTest, OtherListsRefuseUnknownParameters) {
  EXPECT_EQ(errorOf(chat(R"("next": 1)")), "next: unknown parameter next");
  EXPECT_EQ(errorOf(chat(R"("stream": true, "stream_options": {"x": true})")),
            "stream_options.x: unknown parameter stream_options.x");
  EXPECT_EQ(errorOf(chat(R"("response_format": {"type": "text", "x": 1})")),
            "response_format.x: unknown parameter response_format.x");
}

TEST(NotesTest, LinesAreFewAndPrintable) {
  Notes notes;
  notes.add("input[3].x");
  notes.add("input[14].x");
  notes.add("input[a1].x [2");
  notes.add("a\nb\x1b[2J" + std::string(1000, 'x'));
  for (int i = 0; i < 100; ++i)
    notes.add(std::to_string(i));
  const Lines lines = notes.take();
  ASSERT_EQ(lines.size(), 17U);
  EXPECT_EQ(lines[0], "input[].x");
  EXPECT_EQ(lines[1], "input[a1].x [");
  EXPECT_TRUE(lines[2].starts_with("a\\nb\\u001b[2J"));
  EXPECT_LT(lines[2].size(), 400U);
  EXPECT_EQ(lines[16], "and 87 more such lines");
  EXPECT_TRUE(notes.take().empty());
}

} // namespace
