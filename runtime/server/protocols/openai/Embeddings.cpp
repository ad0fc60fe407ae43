//===- Embeddings.cpp - /v1/embeddings ------------------------------------===//

#include "server/protocols/openai/Embeddings.h"

#include "server/Answer.h"
#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"

#include "text/Retrieval.h"

#include "qwen/Support/Base64.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using Kind = ParameterKind;
using Embedding = EmbeddingParameters;

void EmbeddingParameters::setFormat(const ordered_json &value) {
  base64 = value == "base64";
}

// clang-format off
static constexpr Parameter kEmbeddingRows[] = {
    {"input", Kind::Prompts, "Texts or lists of token ids",
     at<Embedding, &Embedding::setPrompts>, 0, 0, "[]", kRequired | kOfEmbedding},
    {"encoding_format", Kind::Word, "The form of a vector",
     at<Embedding, &Embedding::setFormat>, 0, 0, R"(["float", "base64"])"},
    {"dimensions", Kind::Integer, "Number of first values of a vector that are kept",
     at<Embedding, &Embedding::dimensions>, 1, 0, "[]", 0, &ParameterLimits::dimensions},
};
// clang-format on
const ParameterTable EmbeddingParameters::table = {kEmbeddingRows};

/// The little-endian bytes of floats.
static std::string base64(const std::vector<float> &values) {
  const auto bytes = std::as_bytes(std::span(values));
  return toBase64({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
}

namespace {
class EmbeddingAnswer final : public Answer {
public:
  EmbeddingAnswer(const Service &service, const Embedding &asked)
      : model(service.model()), fingerprint(service.fingerprint),
        isBase64(asked.base64), dimensions(asked.dimensions) {}

private:
  std::string finish() override {
    const auto element = [&](Delta &delta) -> ordered_json {
      const std::vector<float> vector = embeddingOf(
          delta.kept,
          static_cast<size_t>(dimensions.value_or(std::ssize(delta.kept))));
      return {{"object", "embedding"},
              {"index", delta.choice},
              {"embedding",
               isBase64 ? ordered_json(base64(vector)) : ordered_json(vector)}};
    };
    return listOf({{"object", "list"}}, "data", element,
                  {{"model", model},
                   {"system_fingerprint", fingerprint},
                   {"usage", openai::promptUsage(*generation)}});
  }

  const std::string model, fingerprint;
  const bool isBase64;
  const std::optional<int64_t> dimensions;
};
} // namespace

static void requireEmbedding(const Service &service) {
  service.manifest.model.output.requireEmbedding(service.model());
}

static Parsed parseEmbedding(const Service &service,
                             const HttpRequest &request) {
  requireEmbedding(service);
  const auto parameters = service.parse<Embedding>(request);
  GenerationTask task{
      .input = "input",
      .isList = parameters.hasPromptList,
      .keep = [](auto row) { return std::vector(row.begin(), row.end()); },
      .rowKind = RowKind::Hidden};
  service.addPrompts(parameters.prompts, task, [&](const std::string &text) {
    return embeddingPrompt(service.tokenizer, text);
  });
  return Exchange{std::move(task),
                  std::make_shared<EmbeddingAnswer>(service, parameters)};
}

static constexpr Route kEmbeddingRoutes[] = {
    {"POST", "/v1/embeddings", "Turn texts into vectors", parseEmbedding,
     "Embeddings", 0, Embedding::List::schema, requireEmbedding},
};
const Protocol protocols::embeddings = {kEmbeddingRoutes, R"json({
"Embeddings": {
  "type": "object", "required": ["object", "data", "model", "usage"],
  "properties": {
    "object": {"const": "list"}, "model": {"type": "string"},
    "system_fingerprint": {"type": "string"},
    "data": {"type": "array", "minItems": 1, "items": {
      "type": "object", "required": ["object", "index", "embedding"],
      "properties": {
        "object": {"const": "embedding"},
        "index": {"type": "integer", "minimum": 0},
        "embedding": {"anyOf": [
          {"type": "string"},
          {"type": "array", "minItems": 1, "items": {"type": "number"}}]}}}},
    "usage": {"$ref": "#/components/schemas/Usage"}}}
})json",
                                        &openai::kFraming};
