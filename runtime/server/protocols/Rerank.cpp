//===- Rerank.cpp - /v1/rerank --------------------------------------------===//

#include "server/protocols/Rerank.h"

#include "server/Answer.h"
#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Rerank = RerankParameters;

static ordered_json readDocuments(J value, const std::string &name,
                                  const ParameterLimits &) {
  const auto fail = [](const std::string &at, const std::string &needed) {
    throw ApiError(400, at + " must be " + needed, at);
  };
  if (!value.is_array() || value.empty())
    fail(name, "an array of texts, not empty");
  if (std::ssize(value) > kMostInputs)
    fail(name, "at most " + std::to_string(kMostInputs) + " documents, not " +
                   std::to_string(value.size()));
  for (size_t i = 0; i < value.size(); ++i)
    if (J each = value[i];
        !each.is_string() && !(each.is_object() && each.contains("text") &&
                               each["text"].is_string()))
      fail(indexed(name, i), "a text, or an object with a text");
  return value;
}

static ordered_json documentsSchema(const ParameterLimits &) {
  return ordered_json::parse(R"({"type": "array", "items": {"anyOf": [
    {"type": "string"},
    {"type": "object", "required": ["text"],
     "properties": {"text": {"type": "string"}}}
  ]}, "minItems": 1, "maxItems": )" +
                             std::to_string(kMostInputs) + "}");
}

static constexpr OwnKind kDocuments = {readDocuments, documentsSchema};

void RerankParameters::setDocuments(J value) {
  for (J element : value)
    documents.push_back(element.is_object() ? element["text"] : element);
}

void RerankParameters::setTexts(J value) {
  setDocuments(value);
  hasTexts = true;
}

// clang-format off
static constexpr Parameter kRerankRows[] = {
    {"query", Kind::String, "What documents should answer", at<Rerank, &Rerank::query>, 0, 0, "[]", kRequired},
    {.name = "documents", .kind = Kind::Own, .help = "Texts, or objects with a text",
     .store = at<Rerank, &Rerank::setDocuments>, .own = &kDocuments},
    {.name = "texts", .kind = Kind::Own, .help = "The same as documents; the answer has the form of Text Embeddings Inference",
     .store = at<Rerank, &Rerank::setTexts>, .own = &kDocuments},
    {"instruction", Kind::String, "What to look for; default is Qwen3-Reranker's", at<Rerank, &Rerank::instruction>},
    {"top_n", Kind::Integer, "Maximum number of results, the best first", at<Rerank, &Rerank::topCount>, 1, INT32_MAX},
    {"return_documents", Kind::Boolean, "The results have their documents", at<Rerank, &Rerank::returnDocuments>},
    {"return_text", Kind::Boolean, "The same as return_documents", at<Rerank, &Rerank::returnDocuments>},
    {"raw_scores", Kind::Neutral, "", nullptr, 0, 0, "[false]"},
    // A text that is too long is an error.
    {"truncate", Kind::Ignored},
    {"truncation_direction", Kind::Ignored},
};
// clang-format on

static constexpr ParameterRule kRerankRules[] = {
    {"documents", "is missing",
     [](J body, const void *) {
       return hasParameter(body, "documents") || hasParameter(body, "texts");
     },
     R"({"anyOf": [
       {"required": ["documents"],
        "properties": {"documents": {"type": "array"}}},
       {"required": ["texts"], "properties": {"texts": {"type": "array"}}}
     ]})"},
    {"texts", "excludes documents",
     [](J body, const void *) {
       return !hasParameter(body, "documents") || !hasParameter(body, "texts");
     },
     R"({"anyOf": [
       {"properties": {"documents": {"type": "null"}}},
       {"properties": {"texts": {"type": "null"}}}
     ]})"},
};
const ParameterTable RerankParameters::table = {kRerankRows, kRerankRules};

namespace {
class RerankAnswer final : public Answer {
public:
  RerankAnswer(const Service &service, Rerank parameters)
      : model(service.model()), fingerprint(service.fingerprint),
        id(randomId("rerank-")), asked(std::move(parameters)) {}

private:
  std::string finish() override;

  const std::string model, fingerprint, id;
  const Rerank asked;
};
} // namespace

std::string RerankAnswer::finish() {
  // The best are first; of equal ones, those that came first.
  std::ranges::sort(choices, std::less(), [](const Delta &choice) {
    return std::pair(-choice.kept.front(), choice.choice);
  });
  const auto most = asked.topCount.value_or(std::ssize(choices));
  choices.resize(std::min(choices.size(), static_cast<size_t>(most)));
  ordered_json results = ordered_json::array();
  for (const Delta &delta : choices) {
    const std::string &text = asked.documents[delta.choice];
    ordered_json result = {
        {"index", delta.choice},
        {asked.hasTexts ? "score" : "relevance_score", delta.kept.front()}};
    if (asked.returnDocuments && asked.hasTexts)
      result["text"] = text;
    else if (asked.returnDocuments)
      result["document"] = {{"text", text}};
    results.push_back(result);
  }
  if (asked.hasTexts)
    return dump(results);
  return dump({{"id", id},
               {"object", "list"},
               {"model", model},
               {"system_fingerprint", fingerprint},
               {"results", results},
               {"usage", openai::promptUsage(*generation)}});
}

static Reranker rerankerOf(const Service &service) {
  return {service.tokenizer, service.manifest.model.output, service.model()};
}

static void requireScores(const Service &service) { rerankerOf(service); }

static Parsed parseRerank(const Service &service, const HttpRequest &request) {
  // As many bytes as a body has by default.
  constexpr size_t kMostRepeated = size_t{32} << 20;
  auto asked = service.parse<Rerank>(request);
  const Reranker reranker = rerankerOf(service);
  service.checkSize(asked.instruction, "instruction");
  service.checkSize(asked.query, "query");
  // Each document has them in its prompt.
  const size_t repeated = asked.instruction.size() + asked.query.size();
  if (repeated * asked.documents.size() > kMostRepeated)
    throw ApiError(400,
                   "query and instruction have " + std::to_string(repeated) +
                       " bytes, which is too much for " +
                       std::to_string(asked.documents.size()) +
                       " documents; send fewer at a time",
                   "query");
  GenerationTask task{.input = "documents", .isList = true};
  for (size_t i = 0; i < asked.documents.size(); ++i) {
    service.checkSize(asked.documents[i], task.nameOf(i));
    task.prompts.push_back(
        reranker.prompt(asked.instruction, asked.query, asked.documents[i]));
  }
  task.keep = [reranker](std::span<const float> row) {
    return std::vector{reranker.score(row)};
  };
  return Exchange{std::move(task),
                  std::make_shared<RerankAnswer>(service, std::move(asked))};
}

static constexpr Route kRerankRoutes[] = {
    {"POST", "/v1/rerank", "Order documents by how well they answer a query",
     parseRerank, "Scores", 0, Rerank::List::schema, requireScores, "v2"},
};
const Protocol protocols::rerank = {kRerankRoutes, R"json({
"Scores": {"anyOf": [{"type": "array", "minItems": 1, "items": {
  "type": "object", "required": ["index", "score"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "score": {"type": "number", "minimum": 0, "maximum": 1},
    "text": {"type": "string"}}}}, {
  "type": "object", "required": ["id", "object", "model", "results", "usage"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "list"},
    "model": {"type": "string"},
    "system_fingerprint": {"type": "string"},
    "results": {"type": "array", "minItems": 1, "items": {
      "type": "object", "required": ["index", "relevance_score"],
      "properties": {
        "index": {"type": "integer", "minimum": 0},
        "relevance_score": {"type": "number", "minimum": 0, "maximum": 1},
        "document": {"type": "object", "required": ["text"],
                     "properties": {"text": {"type": "string"}}}}}},
    "usage": {"$ref": "#/components/schemas/Usage"}}}]}
})json",
                                    &openai::kFraming};
