//===- BatchTest.cpp - Lines of batches, and their order ------------------===//

#include "server/batch/Batch.h"
#include "TempDir.h"
#include "server/Routes.h"

#include "qwen/Support/FileLines.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <stdexcept>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

namespace {

std::string lineError(std::string_view text) {
  const BatchLine line = parseBatchLine(text, 7);
  EXPECT_TRUE(line.request.body.empty() || line.error.empty());
  return line.error;
}

TEST(BatchLineTest, ReadsBothForms) {
  const BatchLine whole = parseBatchLine(
      R"({"custom_id":"a","method":"POST","url":"/v1/rerank","body":{"b":1.5}})",
      3);
  EXPECT_EQ(whole.error, "");
  EXPECT_EQ(whole.id, "a");
  EXPECT_EQ(whole.request.method, "POST");
  EXPECT_EQ(whole.request.path, "/v1/rerank");
  EXPECT_EQ(whole.request.contentType, "application/json");
  EXPECT_EQ(whole.request.body, R"({"b":1.5})");
  EXPECT_EQ(whole.request.seed, 3U);
  for (const auto &[member, url] :
       std::map<std::string, std::string>{{"prompt", "/v1/completions"},
                                          {"messages", "/v1/chat/completions"},
                                          {"input", "/v1/embeddings"}}) {
    const BatchLine line =
        parseBatchLine(R"({"id":5,")" + member + R"(":"x","top_k":2})", 4);
    EXPECT_EQ(line.error, "");
    EXPECT_EQ(line.id, 5);
    EXPECT_EQ(line.request.path, url);
    EXPECT_EQ(line.request.body, R"({")" + member + R"(":"x","top_k":2})");
    EXPECT_EQ(line.request.seed, 4U);
  }
}

TEST(BatchLineTest, KeepsDigits) {
  const std::string digits = "-123456789012345678901234567890";
  const BatchLine line = parseBatchLine(
      R"({"id":)" + digits + R"(,"prompt":"x","guided_json":{"const":)" +
          digits + "}}",
      4);
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.request.body,
            R"({"prompt":"x","guided_json":{"const":)" + digits + "}}");
  const std::string answer = answerLine(line, {.body = "{}"});
  EXPECT_NE(answer.find(R"("custom_id":)" + digits + ","), std::string::npos)
      << answer;
  EXPECT_EQ(dump(parseAnswerLine(answer).id), digits);
  EXPECT_EQ(
      dump(parseBatchLine(R"({"id":18446744073709551615,"prompt":""})", 1).id),
      "18446744073709551615");
}

TEST(BatchLineTest, RefusesOtherLines) {
  EXPECT_EQ(lineError("[]"),
            "the line has an array when a JSON object is needed");
  EXPECT_TRUE(lineError("{\"id\":").starts_with("the line"))
      << lineError("{\"id\":");
  EXPECT_EQ(lineError("{}"), "the line has neither \"custom_id\" nor \"id\"");
  EXPECT_EQ(lineError(R"({"id":null,"prompt":""})"),
            "\"id\" is null when a string or an integer is needed");
  EXPECT_EQ(lineError(R"({"id":"a"})"),
            "the line has none of \"messages\", \"prompt\" and \"input\"");
  EXPECT_EQ(lineError(R"({"id":"a","prompt":"","input":""})"),
            "the line has more than one of \"messages\", \"prompt\" and "
            "\"input\"");
  EXPECT_EQ(lineError(R"({"custom_id":"a","prompt":"x"})"),
            "the line lacks \"method\"");
  EXPECT_EQ(lineError(R"({"custom_id":"a","method":"GET","url":"/v1/models"})"),
            "\"method\" is \"GET\" when \"POST\" is needed");
  EXPECT_EQ(
      lineError(R"({"custom_id":"a","method":"POST","url":"/x","body":[1]})"),
      "\"body\" is an array when an object is needed");
  EXPECT_EQ(
      lineError(R"({"id":")" + std::string(511, 'a') + R"(","prompt":""})"),
      "\"id\" has 513 bytes when at most 512 are supported");
}

TEST(BatchLineTest, ReadsItsAnswers) {
  BatchLine line{.number = 12, .id = "a"};
  const Reply reply{.status = 400, .body = R"({"x":1})"};
  const std::string text = answerLine(line, reply);
  const auto object = ordered_json::parse(text);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(object["id"], "batch_req_12");
  EXPECT_EQ(object["custom_id"], "a");
  EXPECT_EQ(object["response"]["status_code"], 400);
  EXPECT_EQ(object["response"]["body"]["x"], 1);
  EXPECT_TRUE(object["error"].is_null());
  const AnsweredLine answered = parseAnswerLine(text);
  EXPECT_EQ(answered.number, 12U);
  EXPECT_EQ(answered.id, "a");
  EXPECT_TRUE(answered.isError);
  EXPECT_FALSE(parseAnswerLine(answerLine(line, {.body = "{}"})).isError);
  line.error = "bad";
  line.id = nullptr;
  const std::string failure = failureLine(line);
  EXPECT_EQ(failure, R"({"id":"batch_req_12","custom_id":null,"response":null,)"
                     R"("error":{"code":"invalid_line","message":"bad"}})"
                     "\n");
  EXPECT_TRUE(parseAnswerLine(failure).isError);
  for (const char *other :
       {"{}", R"({"id":"batch_req_","custom_id":1,"response":null})",
        R"({"id":"batch_req_1x","custom_id":1,"response":null})",
        R"({"id":"x","custom_id":1,"response":null})",
        R"({"id":"batch_req_1","response":null})"})
    EXPECT_THROW(parseAnswerLine(other), Error) << other;
}

/// Answers each request with the text of its body. Every endEvery-th request
/// ends all running answers.
class FakeHandler final : public HttpHandler {
public:
  struct Stream final : ReplyStream {
    std::string text;
    WakeFn wake;
    bool isStream = false, isDone = false, isCancelled = false;

    bool isEvents() const override { return isStream; }
    Part take() override { return {isDone ? text : "", isDone}; }
    std::optional<ApiError> error() const override {
      if (isCancelled)
        return ApiError(503, "cancelled");
      return std::nullopt;
    }
    void cancel() override {
      isCancelled = isDone = true;
      wake();
    }
    std::string summary() const override { return ""; }
  };

  Reply handle(HttpRequest request, const WakeFn &wake) override {
    if (request.path == "/at-once")
      return {.status = 404, .body = "{}"};
    auto stream = std::make_shared<Stream>();
    stream->text = request.body;
    stream->wake = wake;
    stream->isStream = request.body.find("stream") != std::string::npos;
    streams.push_back(stream);
    wake();
    if (streams.size() % endEvery == 0)
      for (const auto &each : streams) {
        each->isDone = true;
        each->wake();
      }
    return {.body = "", .stream = stream};
  }
  bool isOpen(std::string_view /*path*/) const override { return true; }
  const Framing &framingOf(std::string_view path) const override {
    return *routeTable().protocolOf(path).framing;
  }
  std::string methods() const override { return ""; }
  void drain() override {}
  bool isDraining() const override { return false; }

  size_t endEvery = 1;
  std::deque<std::shared_ptr<Stream>> streams;
};

/// Lines with the numbers 1 to `count`.
std::function<std::optional<BatchLine>()>
linesOf(uint64_t count, const std::string &more = "") {
  return [count, more, number = uint64_t{0}]() mutable {
    if (number == count)
      return std::optional<BatchLine>();
    ++number;
    return std::optional(parseBatchLine(R"({"id":)" + std::to_string(number) +
                                            R"(,"prompt":"x")" + more + "}",
                                        number));
  };
}

TEST(BatchTest, AnswersEachLineOnce) {
  FakeHandler handler;
  handler.endEvery = 4;
  std::set<uint64_t> numbers;
  answerLines(handler, 4, linesOf(20), [&](const std::string &text, bool bad) {
    EXPECT_FALSE(bad) << text;
    EXPECT_TRUE(numbers.insert(parseAnswerLine(text).number).second);
  });
  EXPECT_EQ(numbers.size(), 20U);
  EXPECT_EQ(handler.streams.size(), 20U);
}

TEST(BatchTest, TellsErrorsInPlaceOfAnswers) {
  FakeHandler handler;
  std::deque<std::string> lines = {
      "x",
      R"({"custom_id":"a","method":"POST","url":"/at-once","body":{}})",
      R"({"id":"b","prompt":"","stream":true})",
  };
  uint64_t number = 0;
  std::vector<std::string> answers;
  answerLines(
      handler, 2,
      [&]() -> std::optional<BatchLine> {
        if (number == lines.size())
          return std::nullopt;
        const std::string &text = lines[number];
        return parseBatchLine(text, ++number);
      },
      [&](const std::string &text, bool bad) {
        EXPECT_TRUE(bad) << text;
        answers.push_back(text);
      });
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_NE(answers[0].find("invalid_line"), std::string::npos);
  EXPECT_NE(answers[1].find("\"status_code\":404"), std::string::npos);
  EXPECT_NE(answers[2].find("a batch has no streams"), std::string::npos);
  EXPECT_TRUE(handler.streams.back()->isCancelled);
}

TEST(BatchTest, CancelsWhatRunsAfterAnError) {
  FakeHandler handler;
  handler.endEvery = 4;
  EXPECT_THROW(answerLines(handler, 4, linesOf(20),
                           [&](const std::string &, bool) {
                             throw std::runtime_error("no space");
                           }),
               std::runtime_error);
  EXPECT_EQ(handler.streams.size(), 4U);
}

TEST(FileLinesTest, ReadsLinesOfAnyLength) {
  const test::TempDir dir;
  const std::string longest(100000, 'x');
  dir.write("lines", "a\r\n\n" + longest + "\n" + longest + "y\nlast");
  FileLines reader(dir.string() + "/lines", longest.size());
  for (int round = 0; round < 2; ++round) {
    std::vector<FileLine> lines;
    while (std::optional<FileLine> line = reader.next())
      lines.push_back(*std::move(line));
    ASSERT_EQ(lines.size(), 5U);
    EXPECT_EQ(lines[0].text, "a");
    EXPECT_EQ(lines[1].text, "");
    EXPECT_EQ(lines[2].text, longest);
    EXPECT_FALSE(lines[2].isTooLong);
    EXPECT_TRUE(lines[3].isTooLong);
    EXPECT_EQ(lines[3].text, "");
    EXPECT_TRUE(lines[3].isWhole);
    EXPECT_EQ(lines[4].text, "last");
    EXPECT_FALSE(lines[4].isWhole);
    EXPECT_EQ(lines[4].begin, 4 + 2 * longest.size() + 3);
    EXPECT_EQ(lines[4].number, 5U);
    reader.rewind();
  }
  EXPECT_THROW(FileLines(dir.string(), 1), Error);
  EXPECT_THROW(FileLines(dir.string() + "/missing", 1), Error);
}

} // namespace
