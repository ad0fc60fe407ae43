//===- ModelInfo.cpp - Models as Anthropic's clients read them ------------===//

#include "server/protocols/messages/ModelInfo.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

ordered_json messages::modelInfo(const Service &service,
                                 const std::string &name) {
  const int64_t context = service.manifest.model.context;
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          // The time at which a model came out is not known.
          {"created_at", "1970-01-01T00:00:00Z"},
          {"lifecycle", "active"},
          {"max_input_tokens", context},
          {"max_tokens", context}};
}

ordered_json messages::modelList(const Service &service) {
  ordered_json list = ordered_json::array();
  for (const std::string &name : service.names)
    list.push_back(modelInfo(service, name));
  return {{"data", list},
          {"has_more", false},
          {"first_id", service.names.front()},
          {"last_id", service.names.back()}};
}
