//===- JsonValue.cpp - Checked values of JSON in files --------------------===//

#include "qwen/Support/JsonValue.h"

#include "qwen/Support/JsonDigits.h"
#include "qwen/Support/Text.h"

#include <cmath>
#include <set>

using namespace qwen;
using nlohmann::json;

std::string qwen::describe(const json &value) {
  if (value.is_string())
    return quote(value.get_ref<const std::string &>());
  if (value.is_array())
    return "an array";
  if (value.is_object())
    return "an object";
  // Files that Python wrote have such numbers.
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return std::isnan(value.get<double>()) ? "NaN"
           : value > 0                     ? "Infinity"
                                           : "-Infinity";
  if (value.is_binary())
    return digitsOf(value).value_or("");
  return value.dump();
}

nlohmann::ordered_json qwen::parseObjectWithDigits(std::string_view text,
                                                   const ErrorText &what,
                                                   const JsonLimits &limits) {
  nlohmann::ordered_json value = parseWithDigits(text, what, limits);
  if (!value.is_object())
    throw Error(what + " has " + part::found(describe(value)) + " when " +
                part::needed("a JSON object") + " is needed");
  return value;
}

void JsonValue::error(const ErrorText &what) const {
  throw Error(this->what() + " " + what);
}

void JsonValue::fail(const std::string &needed) const {
  error("is " + part::found(describe(value)) + " when " + part::needed(needed) +
        " is needed");
}

void JsonValue::refuse(const std::string &supported) const {
  error(part::found(describe(value)) + " is not supported; " +
        part::needed(supported));
}

int64_t JsonValue::integer(int64_t least, int64_t most) const {
  // get<int64_t> would turn values above INT64_MAX into negative ones.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= uint64_t(INT64_MAX)) &&
                    value.get<int64_t>() >= least &&
                    value.get<int64_t>() <= most;
  if (!fits)
    fail("an integer from " + std::to_string(least) + " to " +
         std::to_string(most));
  return value.get<int64_t>();
}

int64_t JsonValue::multiple(int64_t divisor, int64_t least,
                            int64_t most) const {
  const int64_t result = integer(least, most);
  if (result % divisor != 0)
    fail("a multiple of " + std::to_string(divisor));
  return result;
}

double JsonValue::number(double least, double most) const {
  if (!value.is_number() || !(value.get<double>() >= least) ||
      !(value.get<double>() <= most))
    fail("a number from " + json(least).dump() + " to " + json(most).dump());
  return value.get<double>();
}

bool JsonValue::boolean() const {
  if (!value.is_boolean())
    fail("true or false");
  return value.get<bool>();
}

const std::string &JsonValue::string() const {
  if (!value.is_string())
    fail("a string");
  return value.get_ref<const std::string &>();
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!value.is_array())
    fail("an array");
  std::vector<JsonValue> result;
  result.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i)
    result.push_back(
        JsonValue(value[i], key + "[" + std::to_string(i) + "]", source));
  return result;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  if (!value.is_object())
    fail("an object");
  std::vector<std::string> keys;
  if (source.keysOf)
    keys = source.keysOf(key);
  // Where another object has this name, too, its keys are among them.
  std::set<std::string> left;
  for (const auto &[name, inner] : value.items())
    left.insert(name);
  std::erase_if(keys, [&](const auto &name) { return left.erase(name) == 0; });
  keys.insert(keys.end(), left.begin(), left.end());
  std::vector<std::pair<std::string, JsonValue>> result;
  result.reserve(keys.size());
  if (source.read)
    source.read->insert(&value);
  for (const std::string &name : keys) {
    const auto found = value.find(name);
    if (source.read)
      source.read->insert(&found.key());
    result.emplace_back(name, JsonValue(*found, keyOf(name), source));
  }
  return result;
}

std::optional<JsonValue> JsonValue::find(const char *inner) const {
  if (!value.is_object())
    fail("an object");
  if (source.read)
    source.read->insert(&value);
  const auto found = value.find(inner);
  if (found == value.end())
    return std::nullopt;
  if (source.read)
    source.read->insert(&found.key());
  return JsonValue(*found, keyOf(inner), source);
}

std::optional<JsonValue> JsonValue::findValue(const char *inner) const {
  std::optional<JsonValue> found = find(inner);
  return found && found->isNull() ? std::nullopt : found;
}

JsonValue JsonValue::at(const char *inner) const {
  if (std::optional<JsonValue> found = find(inner))
    return *found;
  throw Error(source.owner + " has no " + part::subject(keyOf(inner)));
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::unread() const {
  std::vector<std::pair<std::string, JsonValue>> result;
  const auto addInner = [&](const JsonValue &inner) {
    if (inner.value.is_structured())
      for (auto &entry : inner.unread())
        result.push_back(std::move(entry));
  };
  if (value.is_array())
    for (const JsonValue &element : elements())
      addInner(element);
  if (!value.is_object() || !source.read->contains(&value))
    return result;
  for (auto inner = value.begin(); inner != value.end(); ++inner) {
    const JsonValue found(*inner, keyOf(inner.key()), source);
    if (source.read->contains(&inner.key()))
      addInner(found);
    else
      result.emplace_back(inner.key(), found);
  }
  return result;
}
