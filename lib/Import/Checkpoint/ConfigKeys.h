//===- ConfigKeys.h - Keys of config.json and their defaults ----*- C++ -*-===//
//
// A key that config.json leaves out has the default of its own architecture's
// configuration class in transformers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_CONFIGKEYS_H
#define QWEN_LIB_IMPORT_CHECKPOINT_CONFIGKEYS_H

#include "qwen/Import/Checkpoint/ModelConfig.h"
#include "qwen/Support/JsonValue.h"

#include <nlohmann/json.hpp>

#include <set>
#include <string>

namespace qwen {

/// The defaults of an architecture.
struct ConfigDefaults {
  /// Takes the defaults of the architecture `info`; errors name the file
  /// `path`. Qwen 1 has no defaults.
  ConfigDefaults(const ArchitectureInfo &info, const std::string &path);

  /// A key and a value for each.
  const nlohmann::json values;
  const JsonSource source;
  /// The defaults that the importer has used, as "KEY VALUE".
  std::set<std::string> taken;
};

/// The object of config.json that has the keys of the text model.
class ConfigKeys : public JsonValue {
public:
  /// `defaults` must outlive this object.
  ConfigKeys(const JsonValue &keys, ConfigDefaults &defaults)
      : JsonValue(keys), defaults(defaults) {}

  /// The value of `inner`, or its default. Throws Error if it has none.
  JsonValue get(const char *inner) const;
  /// Whether `inner` has a default.
  bool hasDefault(const char *inner) const {
    return defaults.values.contains(inner);
  }

private:
  ConfigDefaults &defaults;
};

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_CONFIGKEYS_H
