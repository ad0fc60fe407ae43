//===- BatchLine.cpp - Lines of requests and of answers -------------------===//

#include "server/batch/BatchLine.h"

#include "qwen/Support/JsonDigits.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <charconv>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

/// The answer's "id" before the number of the line.
static constexpr std::string_view kIdStart = "batch_req_";

/// What a short line asks, by its member.
static constexpr struct {
  const char *member, *url;
} kShortForms[] = {{"messages", "/v1/chat/completions"},
                   {"prompt", "/v1/completions"},
                   {"input", "/v1/embeddings"}};

/// The value of a key, which must be a string.
static std::string stringOf(const ordered_json &line, const char *key) {
  const auto found = line.find(key);
  if (found == line.end())
    throw Error("the line lacks " + quote(key));
  if (!found->is_string())
    throw Error(quote(key) + " is " + describe(*found) +
                " when a string is needed");
  return found->get<std::string>();
}

static void checkId(const ordered_json &id, const char *key) {
  if (!id.is_string() && !id.is_number_integer() && !digitsOf(id))
    throw Error(quote(key) + " is " + describe(id) +
                " when a string or an integer is needed");
  if (const size_t size = dump(id).size(); size > kMostIdBytes)
    throw Error(quote(key) + " has " + std::to_string(size) +
                " bytes when at most " + std::to_string(kMostIdBytes) +
                " are supported");
}

static void readWhole(const ordered_json &line, HttpRequest &request) {
  request.method = stringOf(line, "method");
  if (request.method != "POST")
    throw Error("\"method\" is " + quote(request.method) +
                " when \"POST\" is needed");
  request.path = stringOf(line, "url");
  const auto body = line.find("body");
  if (body == line.end() || !body->is_object())
    throw Error(body == line.end() ? "the line lacks \"body\""
                                   : "\"body\" is " + describe(*body) +
                                         " when an object is needed");
  request.body = dump(*body);
}

static void readShort(ordered_json line, HttpRequest &request) {
  for (const auto &[member, url] : kShortForms) {
    if (!line.contains(member))
      continue;
    if (!request.path.empty())
      throw Error("the line has more than one of \"messages\", \"prompt\" and "
                  "\"input\"");
    request.path = url;
  }
  if (request.path.empty())
    throw Error("the line has none of \"messages\", \"prompt\" and \"input\"");
  line.erase("id");
  request.method = "POST";
  request.body = dump(line);
}

BatchLine server::parseBatchLine(std::string_view text, uint64_t number) {
  BatchLine line{.number = number};
  line.request.contentType = "application/json";
  line.request.seed = number;
  try {
    // The body has these limits, one level deeper.
    auto object = parseObjectWithDigits(text, "the line",
                                        {.depth = kRequestJson.depth + 1,
                                         .elements = kRequestJson.elements,
                                         .keys = kRequestJson.keys});
    const bool isWhole = object.contains("custom_id");
    const char *const key = isWhole ? "custom_id" : "id";
    if (!object.contains(key))
      throw Error("the line has neither \"custom_id\" nor \"id\"");
    checkId(object[key], key);
    line.id = object[key];
    if (isWhole)
      readWhole(object, line.request);
    else
      readShort(std::move(object), line.request);
  } catch (const Error &error) {
    line.error = error.what();
  }
  return line;
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

/// The first members of an answer, without the brace behind them.
static std::string headOf(const BatchLine &line) {
  std::string text =
      dump({{"id", std::string(kIdStart) + std::to_string(line.number)},
            {"custom_id", line.id}});
  text.pop_back();
  return text;
}

std::string server::answerLine(const BatchLine &line, const Reply &reply) {
  std::string response =
      dump({{"status_code", reply.status}, {"request_id", randomId("req-")}});
  response.pop_back();
  return headOf(line) + ",\"response\":" + response +
         ",\"body\":" + reply.body + "},\"error\":null}\n";
}

std::string server::failureLine(const BatchLine &line) {
  return headOf(line) + ",\"response\":null,\"error\":" +
         dump({{"code", "invalid_line"}, {"message", line.error}}) + "}\n";
}

AnsweredLine server::parseAnswerLine(std::string_view text) {
  AnsweredLine line;
  const ordered_json object = parseObjectWithDigits(text, "the line");
  const std::string id = stringOf(object, "id");
  const char *const end = id.data() + id.size();
  const char *const digits = id.data() + std::min(kIdStart.size(), id.size());
  const auto [last, error] = std::from_chars(digits, end, line.number);
  if (!id.starts_with(kIdStart) || error != std::errc() || last != end ||
      !object.contains("custom_id") || !object.contains("response"))
    throw Error("the line is not an answer to the line of a batch");
  line.id = object["custom_id"];
  const ordered_json &response = object["response"];
  line.isError = !response.is_object() || !response.contains("status_code") ||
                 response["status_code"] != 200;
  return line;
}
