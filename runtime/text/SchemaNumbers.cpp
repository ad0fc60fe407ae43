//===- SchemaNumbers.cpp - Numbers of schemas that grammars keep ----------===//

#include "text/SchemaNumbers.h"

#include "text/KeptSchema.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonDigits.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

using namespace qwen;
using nlohmann::ordered_json;

using J = const ordered_json &;

[[noreturn]] static void refuseNumber(const std::string &keyword,
                                      const std::string &why) {
  throw Error(keyword + " " + why);
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

/// The largest double of 64-bit integers, in which llguidance has bounds.
static constexpr double kMostNumber = 9223372036854774784.0;

/// The double of a number, or the next one in a direction if no double is the
/// same.
static double roundTowards(J value, double direction) {
  const auto nearest = value.get<double>();
  if (value.is_number_float())
    return nearest;
  // It has all integers of 64 bits.
  const long double exact =
      value.is_number_unsigned()
          ? static_cast<long double>(value.get<uint64_t>())
          : static_cast<long double>(value.get<int64_t>());
  const bool isPast = direction > 0 ? nearest < exact : nearest > exact;
  return isPast ? std::nextafter(nearest, direction) : nearest;
}

namespace {
/// The keywords of a bound, and the direction that they forbid.
struct Bound {
  const char *inclusive, *exclusive;
  int sign;
};
} // namespace

static constexpr Bound kBounds[] = {{"maximum", "exclusiveMaximum", 1},
                                    {"minimum", "exclusiveMinimum", -1}};

/// Draft 4 has a boolean that makes the other bound exclusive.
static void readBoolean(ordered_json &schema, const Bound &row) {
  const auto found = schema.find(row.exclusive);
  if (found == schema.end() || !found->is_boolean())
    return;
  if (*found == true && schema.contains(row.inclusive))
    *found = ordered_json(schema[row.inclusive]);
  else
    schema.erase(row.exclusive);
}

/// Moves a bound to a double that llguidance reads, inwards. Returns whether
/// that changes it.
static bool moveBound(ordered_json &schema, const char *keyword,
                      const Bound &row) {
  // Here and beyond, llguidance misses the integer behind an exclusive bound:
  // it adds 1 to the double.
  constexpr double kLarge = 9007199254740992;
  if (!schema.contains(keyword))
    return false;
  const ordered_json value = withDoubles(schema[keyword]);
  if (!value.is_number())
    return false;
  const double inwards = -INFINITY * row.sign;
  const double nearest = roundTowards(value, inwards);
  const bool isExact = nearest == roundTowards(value, -inwards);
  const bool isOpen = keyword == row.exclusive && std::abs(nearest) >= kLarge;
  const double bound =
      row.sign *
      (isOpen && isExact ? std::nextafter(nearest, inwards) : nearest);
  if (bound < -kMostNumber)
    refuseNumber(keyword, value.dump() + " is beyond the integers of 64 bits");
  if (isExact && !isOpen && bound <= kMostNumber)
    return false;
  // As an integer: llguidance reads large doubles inexactly.
  const ordered_json moved =
      row.sign * static_cast<int64_t>(std::min(bound, kMostNumber));
  if (!isOpen) {
    schema[keyword] = moved;
    return true;
  }
  schema.erase(keyword);
  const auto other = schema.find(row.inclusive);
  if (other == schema.end())
    schema[row.inclusive] = moved;
  else if (other->is_number() &&
           row.sign * moved.get<double>() < row.sign * other->get<double>())
    *other = moved;
  return true;
}

static void moveBounds(ordered_json &schema) {
  bool isMoved = false;
  for (const Bound &row : kBounds) {
    readBoolean(schema, row);
    for (const char *keyword : {row.inclusive, row.exclusive})
      isMoved |= moveBound(schema, keyword, row);
  }
  J least = schema.value("minimum", ordered_json()),
    most = schema.value("maximum", ordered_json());
  if (isMoved && least.is_number() && most.is_number() &&
      least.get<double>() > most.get<double>())
    refuseNumber("minimum", "and maximum have no double between them");
}

/// Gives a number of 19 digits its other bound, too, which llguidance needs.
static void addBound(ordered_json &schema, const char *keyword,
                     const char *other, int sign) {
  constexpr double kLarge = 1e18;
  if (schema.contains(keyword) && schema[keyword].is_number() &&
      schema[keyword].get<double>() * sign >= kLarge && !schema.contains(other))
    schema[other] = sign * static_cast<int64_t>(kMostNumber);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

const ordered_json *qwen::inexactNumber(J value) {
  if (value.is_structured()) {
    for (J each : value)
      if (const ordered_json *const found = inexactNumber(each))
        return found;
    return nullptr;
  }
  const bool isExact =
      !digitsOf(value) &&
      (!value.is_number() ||
       (roundTowards(value, INFINITY) == roundTowards(value, -INFINITY) &&
        std::abs(value.get<double>()) <= kMostNumber));
  return isExact ? nullptr : &value;
}

/// Refuses numbers whose digits llguidance would change.
static void requireExact(J value, const char *keyword) {
  if (const ordered_json *const found = inexactNumber(value))
    refuseNumber(keyword, dumpWithDigits(*found) +
                              " has digits that a double does not keep");
}

//===----------------------------------------------------------------------===//
// Divisors and counts
//===----------------------------------------------------------------------===//

/// A divisor without its decimal point; none if it has too many digits.
static std::optional<int64_t> scaledDivisor(J value) {
  constexpr int kMostDecimals = 9;
  double scaled = std::abs(value.get<double>());
  for (int i = 0; i <= kMostDecimals && scaled <= SchemaLimits::kDivisor; ++i) {
    if (scaled == std::trunc(scaled))
      return static_cast<int64_t>(scaled);
    scaled *= 10;
  }
  return std::nullopt;
}

double qwen::divisorOf(J schema) {
  const auto found = schema.find("multipleOf");
  if (found == schema.end() || !found->is_number())
    return 1;
  return static_cast<double>(scaledDivisor(*found).value_or(1));
}

static void checkDivisor(ordered_json &schema) {
  const auto divisor = schema.find("multipleOf");
  if (divisor == schema.end())
    return;
  *divisor = withDoubles(*divisor);
  if (divisor->is_number() && scaledDivisor(*divisor).value_or(0) == 0)
    refuseNumber("multipleOf", divisor->dump() +
                                   " must be above 0 and have at most " +
                                   std::to_string(SchemaLimits::kDivisor) +
                                   " states, one for each remainder");
}

/// A count that no answer reaches bounds nothing, or forbids all.
static void checkCounts(ordered_json &schema) {
  constexpr double kMost = 1 << 30;
  const auto isPast = [&](const char *keyword) {
    if (!schema.contains(keyword))
      return false;
    const ordered_json value = withDoubles(schema[keyword]);
    return value.is_number() && value.get<double>() > kMost;
  };
  for (const char *keyword : {"maxLength", "maxItems", "maxProperties"})
    if (isPast(keyword))
      schema.erase(keyword);
  for (const char *keyword : {"minLength", "minItems", "minProperties"})
    if (isPast(keyword))
      refuseNumber(keyword, dumpWithDigits(schema[keyword]) +
                                " is more than an answer has");
}

void qwen::checkNumbers(ordered_json &schema) {
  moveBounds(schema);
  addBound(schema, "minimum", "maximum", 1);
  addBound(schema, "maximum", "minimum", -1);
  for (const char *keyword : {"const", "enum"})
    if (schema.contains(keyword))
      requireExact(schema[keyword], keyword);
  checkDivisor(schema);
  checkCounts(schema);
}
