//===- Loading.cpp - Models that clients load and unload ------------------===//

#include "server/AnswerParameters.h"
#include "server/ModelName.h"
#include "server/ModelRouter.h"
#include "server/Routes.h"
#include "server/protocols/openai/OpenAi.h"

using namespace qwen;
using namespace qwen::server;

namespace {
/// A request that names a model and has nothing else.
struct NamedModel : ModelParameters {
  using List = ParameterList<ModelParameters>;
};
} // namespace

/// The model that a request names.
static size_t modelOf(const ModelRouter &router, const HttpRequest &request) {
  NamedModel parameters;
  NamedModel::List::parse(request.body, router.limits, parameters);
  const std::string name = modelInBody(request.body);
  if (name.empty())
    throw ApiError(400, "model is missing", "model");
  return router.find(name);
}

static Reply success() { return {.body = dump({{"success", true}})}; }

static Parsed loadModel(const ModelRouter &router, const HttpRequest &request) {
  router.requireRunning();
  router.load(modelOf(router, request));
  return success();
}

static Parsed unloadModel(const ModelRouter &router,
                          const HttpRequest &request) {
  router.unload(modelOf(router, request));
  return success();
}

static constexpr Route kLoadingRoutes[] = {
    {"POST",
     "/models/load",
     "Begin to load a model",
     {nullptr, loadModel},
     "Success",
     0,
     NamedModel::List::schema},
    {"POST",
     "/models/unload",
     "Unload a model that has no requests",
     {nullptr, unloadModel},
     "Success",
     0,
     NamedModel::List::schema},
};
const Protocol protocols::loading = {kLoadingRoutes, R"json({
"Success": {
  "type": "object", "required": ["success"],
  "properties": {"success": {"const": true}}}
})json",
                                     &openai::kFraming};
