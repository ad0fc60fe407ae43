//===- SchemaTypes.h - The types that a JSON schema allows ------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_SCHEMATYPES_H
#define QWEN_RUNTIME_TEXT_SCHEMATYPES_H

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// A set of types of JSON, as bits.
using SchemaTypes = uint8_t;
enum SchemaType : SchemaTypes {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kNumberType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
};

/// The types that the property `key` of the object schema `schema` may have.
/// "type", "enum", "const", "anyOf", "oneOf", "allOf", and "$ref" within the
/// schema give them; else the other keywords that are there. A string if
/// there is no such property, also an array or an object if its schema says
/// nothing.
SchemaTypes propertyTypes(const nlohmann::ordered_json &schema,
                          const std::string &key);

/// Whether the object schema `schema` names the property `key`.
bool hasProperty(const nlohmann::ordered_json &schema, const std::string &key);

/// The types that a part of the schema `root` may have; none if it says
/// nothing.
SchemaTypes schemaTypes(const nlohmann::ordered_json &root,
                        const nlohmann::ordered_json &schema);

/// Whether a keyword of a schema forbids no value.
bool isNote(std::string_view keyword);

/// What a reference "#/a/b" within `root` stands for, or null.
const nlohmann::ordered_json *resolve(const nlohmann::ordered_json &root,
                                      const nlohmann::ordered_json &reference);

/// The values that "enum" and "const" of its schema name; they live as long as
/// `schema`.
std::vector<const nlohmann::ordered_json *>
propertyValues(const nlohmann::ordered_json &schema, const std::string &key);

/// The JSON of a value that is written as plain text: JSON of one of `types`,
/// else a string; one of `values`, if the text may stand for it. Python's words
/// for null and booleans count. Where no string is allowed, so do words in
/// other letters, Python's arrays and objects, and strings of JSON with the
/// value.
std::string
typedValue(std::string_view text, SchemaTypes types,
           std::span<const nlohmann::ordered_json *const> values = {});

/// The inside of a JSON string.
std::string jsonEscaped(std::string_view text);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_SCHEMATYPES_H
