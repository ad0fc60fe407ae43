//===- ModelInfo.cpp - Models as Anthropic's clients read them ------------===//

#include "server/protocols/messages/ModelInfo.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

ordered_json messages::modelInfo(const std::string &name,
                                 const std::optional<int64_t> &context) {
  ordered_json info = {{"type", "model"},
                       {"id", name},
                       {"display_name", name},
                       // The time at which a model came out is not known.
                       {"created_at", "1970-01-01T00:00:00Z"},
                       {"lifecycle", "active"}};
  if (context)
    info.update({{"max_input_tokens", *context}, {"max_tokens", *context}});
  return info;
}

ordered_json messages::modelList(const ordered_json &list) {
  return {{"data", list},
          {"has_more", false},
          {"first_id", list.front()["id"]},
          {"last_id", list.back()["id"]}};
}

ordered_json messages::modelList(const Service &service) {
  ordered_json list = ordered_json::array();
  for (const std::string &name : service.names)
    list.push_back(modelInfo(name, service.manifest.model.context));
  return modelList(list);
}
