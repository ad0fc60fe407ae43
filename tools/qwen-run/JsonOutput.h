//===- JsonOutput.h - JSON that commands print ------------------*- C++ -*-===//
//
// JSON of known members, for sources that need no more of it: nlohmann's header
// takes seconds to compile with what it instantiates.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_JSONOUTPUT_H
#define QWEN_RUN_JSONOUTPUT_H

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace qwen::run {

/// A value of JSON as its text.
struct JsonText {
  std::string text;
};

/// The name and value of a member of a JSON object. Bytes that are not UTF-8
/// become U+FFFD.
using JsonMember =
    std::pair<const char *,
              std::variant<bool, int64_t, uint64_t, double, std::string,
                           std::vector<int32_t>, std::vector<float>, JsonText>>;

JsonText jsonObject(std::initializer_list<JsonMember> members);
JsonText jsonArray(const std::vector<JsonText> &values);
JsonText jsonArray(const std::vector<std::string> &values);

/// The members of two objects. A member of `more` replaces one of the same
/// name.
JsonText joinObjects(const JsonText &first, const JsonText &more);

/// Writes JSON to standard output: in one line, or with the spaces of `indent`
/// before each value. Characters that a terminal could obey are escapes. Throws
/// Error.
void writeJson(const JsonText &json, int indent = -1);
void writeObject(std::initializer_list<JsonMember> members);

} // namespace qwen::run

#endif // QWEN_RUN_JSONOUTPUT_H
