//===- ModelName.cpp - The model that a request names ---------------------===//

#include "server/ModelName.h"

#include "server/Routes.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::server;
using nlohmann::json;

static constexpr std::string_view kModel = "model";

namespace {
/// Stops at the value of the member "model" of the outermost object. The parser
/// keeps no values and does not recurse.
class ModelFinder : public nlohmann::json_sax<json> {
public:
  std::string name;
  bool isFound = false;

  bool key(string_t &text) override {
    isNext = depth == 1 && text == kModel;
    return true;
  }
  bool string(string_t &text) override {
    if (!isNext)
      return true;
    name = std::move(text);
    isFound = true;
    return false;
  }
  bool null() override {
    isNext = false;
    return true;
  }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t &) override {
    return other();
  }
  bool binary(binary_t &) override { return other(); }
  bool start_object(size_t) override { return other() && ++depth; }
  bool start_array(size_t) override { return other() && ++depth; }
  bool end_object() override {
    --depth;
    return true;
  }
  bool end_array() override {
    --depth;
    return true;
  }
  bool parse_error(size_t, const std::string &,
                   const nlohmann::detail::exception &) override {
    return false;
  }

private:
  bool other() const {
    if (isNext)
      throw ApiError(400, "model must be a string", std::string(kModel));
    return true;
  }

  size_t depth = 0;
  /// Whether the next value is the member's.
  bool isNext = false;
};
} // namespace

std::string server::modelInBody(std::string_view body) {
  ModelFinder finder;
  if (json::sax_parse(body, &finder) || finder.isFound)
    return finder.name;
  try {
    parseObjectWithDigits(body, "the body", kRequestJson);
  } catch (const Error &error) {
    throw ApiError(400, error.what());
  }
  return "";
}

std::string server::modelInQuery(std::string_view query) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = part.find('=');
    if (equals != part.npos && part.substr(0, equals) == kModel)
      return decodePart(part.substr(equals + 1));
  }
  return "";
}
