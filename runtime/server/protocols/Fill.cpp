//===- Fill.cpp - /infill -------------------------------------------------===//

#include "server/protocols/Fill.h"

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/openai/TextAnswer.h"

#include <algorithm>
#include <ranges>
#include <utility>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Fill = FillParameters;

void server::refuseToFill(const std::string &name) {
  throw ApiError(400,
                 name + " needs a model with the tokens " +
                     std::string(FillTokens::kPrefix) + ", " +
                     std::string(FillTokens::kSuffix) + " and " +
                     std::string(FillTokens::kMiddle),
                 name);
}

FillTokens server::requireFill(const Service &service,
                               const std::string &name) {
  std::optional<FillTokens> tokens = FillTokens::of(service.tokenizer);
  if (!tokens)
    refuseToFill(name);
  return *std::move(tokens);
}

/// Checks files of a repository.
static ordered_json filesOf(J value, const std::string &name,
                            const ParameterLimits &limits) {
  if (!value.is_array())
    throw ApiError(400, name + " must be an array", name);
  if (std::ssize(value) > kMostInputs)
    throw ApiError(400,
                   name + " must be at most " + std::to_string(kMostInputs) +
                       " files, not " + std::to_string(value.size()),
                   name);
  for (size_t i = 0; i < value.size(); ++i) {
    J file = value[i];
    const auto isText = [&](const char *key) {
      return file.is_object() && file.contains(key) && file[key].is_string();
    };
    const bool isNamed = isText("filename");
    if (!isText("text") || (file.contains("filename") && !isNamed) ||
        (file.size() > (isNamed ? 2 : 1) && !limits.ignoreUnknown))
      throw ApiError(
          400, indexed(name, i) + " must be {\"filename\": ..., \"text\": ...}",
          name);
  }
  return value;
}

/// Checks paths of members of the answer. Editors also send an empty one, for
/// an answer without members.
static ordered_json fieldsOf(J value, const std::string &name,
                             const ParameterLimits &) {
  constexpr size_t kMostFields = 64;
  if (!value.is_array() || value.size() > kMostFields ||
      !std::ranges::all_of(value, [](J each) { return each.is_string(); }))
    throw ApiError(400,
                   name + " must be an array of at most " +
                       std::to_string(kMostFields) + " strings",
                   name);
  return value;
}

static constexpr OwnKind kFiles = {filesOf, [](const ParameterLimits &limits) {
                                     ordered_json schema =
                                         ordered_json::parse(R"({
        "type": "array", "items": {
          "type": "object", "required": ["text"],
          "properties": {"filename": {"type": "string"},
                         "text": {"type": "string"}}}})");
                                     schema["maxItems"] = kMostInputs;
                                     schema["items"]["additionalProperties"] =
                                         limits.ignoreUnknown;
                                     return schema;
                                   }};

static constexpr OwnKind kFields = {
    fieldsOf, [](const ParameterLimits &) {
      return ordered_json::parse(
          R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})");
    }};

static constexpr char kSamplers[] = "["
#define QWEN_LOGITS(Name, Text) "\"" #Text "\","
#define QWEN_CUT(Name, Text) "\"" #Text "\","
#include "engine/samplers/Samplers.def"
                                    "\"infill\"]";

void FillParameters::setOwnSamplers(J value) {
  ordered_json samplers = ordered_json::array();
  for (J each : value)
    if (each != "infill")
      samplers.push_back(each);
  setSamplers(samplers);
}

// clang-format off
static constexpr Parameter kFillRows[] = {
    {"input_prefix", Kind::String, "The text before", at<Fill, &Fill::before>},
    {"input_suffix", Kind::String, "The text behind", at<Fill, &Fill::behind>},
    {"prompt", Kind::String, "How the answer begins; it is not part of it", at<Fill, &Fill::begun>},
    {.name = "input_extra", .kind = Kind::Own, .help = "Other files, before it in the prompt",
     .store = at<Fill, &Fill::files>, .own = &kFiles},
    {.name = "response_fields", .kind = Kind::Own, .help = "The members that the answer has, such as content and timings/prompt_n",
     .store = at<Fill, &Fill::fields>, .own = &kFields},
    {.name = "samplers", .kind = Kind::Words, .help = "Samplers in their order; others are off, and infill has no effect",
     .store = at<Fill, &Fill::setOwnSamplers>, .values = kSamplers, .group = "sampling"},
    // What llama.vim and llama.vscode send besides: bounds of time and of indentation, and a slot.
    {"t_max_prompt_ms", Kind::Ignored},
    {"t_max_predict_ms", Kind::Ignored},
    {"n_indent", Kind::Ignored},
    {"id_slot", Kind::Ignored},
};
// clang-format on
const ParameterTable FillParameters::table = {kFillRows};

namespace {
/// llama-server's own form of answers.
class FillAnswer final : public Answer {
public:
  FillAnswer(const Service &service, std::vector<std::string> fields)
      : model(service.model()), fingerprint(service.fingerprint),
        fields(std::move(fields)) {}

private:
  std::string write(Delta delta) final;
  std::string finish() final;
  std::string fail(const ApiError &error) final;
  /// The end of a choice, with its text, or the members that are asked for.
  ordered_json ending(const Delta &delta, const std::string &text) const;

  const std::string model, fingerprint;
  /// FillParameters::fields.
  const std::vector<std::string> fields;
};
} // namespace

/// The members at the paths that there are, by their paths.
static ordered_json membersOf(J object, const std::vector<std::string> &paths) {
  ordered_json members = ordered_json::object();
  for (const std::string &path : paths) {
    const ordered_json *found = &object;
    for (const auto part : std::views::split(path, '/')) {
      const std::string key(part.begin(), part.end());
      found = found && found->is_object() && found->contains(key)
                  ? &found->at(key)
                  : nullptr;
    }
    if (found && !path.empty())
      members[path] = *found;
  }
  return members;
}

/// The text of all items, which are texts.
static std::string textOf(const Delta &delta) {
  std::string text;
  for (const ItemDelta &part : delta.items)
    text += part.text;
  return text;
}

ordered_json FillAnswer::ending(const Delta &delta,
                                const std::string &text) const {
  const Usage usage = generation->usage();
  const ordered_json all = {{"index", delta.choice},
                            {"content", text},
                            {"stop", true},
                            {"stop_type", delta.finish == Finish::Length
                                              ? "limit"
                                          : delta.stopString ? "word"
                                                             : "eos"},
                            {"stopping_word", delta.stopString.value_or("")},
                            {"model", model},
                            {"system_fingerprint", fingerprint},
                            {"x_seed", *task().parameters.seed},
                            {"truncated", false},
                            {"tokens_predicted", usage.drawn},
                            {"tokens_evaluated", usage.prompt},
                            {"tokens_cached", usage.cached},
                            {"timings", timingsOf(*generation)}};
  return fields.empty() ? all : membersOf(all, fields);
}

std::string FillAnswer::write(Delta delta) {
  if (!isEvents())
    return Answer::write(std::move(delta));
  const std::string piece = textOf(delta);
  const bool goesOn = delta.finish == Finish::None;
  if (goesOn && piece.empty())
    return "";
  const ordered_json object = goesOn ? ordered_json{{"index", delta.choice},
                                                    {"content", piece},
                                                    {"stop", false}}
                                     : ending(delta, piece);
  return event("", dump(object));
}

// llama-server's streams have no last event of their own.
std::string FillAnswer::fail(const ApiError &error) {
  return event("", framing->error(error).body);
}

std::string FillAnswer::finish() {
  if (isEvents())
    return "";
  if (choices.size() == 1)
    return dump(ending(choices.front(), textOf(choices.front())));
  ordered_json list = ordered_json::array();
  for (const Delta &choice : choices)
    list.push_back(ending(choice, textOf(choice)));
  return dump(list);
}

static void requireFilling(const Service &service) {
  requireLogits(service);
  requireFill(service, "/infill");
}

/// The files, as Qwen2.5-Coder reads them.
static std::vector<int32_t> repositoryOf(const Service &service, J files) {
  const Tokenizer &tokenizer = service.tokenizer;
  const auto repository = tokenizer.findAddedToken(FillTokens::kRepository);
  const auto separator = tokenizer.findAddedToken(FillTokens::kFile);
  std::vector<int32_t> ids;
  if (files.empty())
    return ids;
  if (!repository || !separator)
    throw ApiError(400,
                   "input_extra needs a model with the tokens " +
                       std::string(FillTokens::kRepository) + " and " +
                       std::string(FillTokens::kFile),
                   "input_extra");
  const auto add = [&](int32_t token, const std::string &text) {
    ids.push_back(token);
    service.checkSize(text, "input_extra");
    const std::vector<int32_t> more = tokenizer.encode(text, false);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  add(*repository, "repository\n");
  for (J file : files)
    // llama-server's name of a text without one.
    add(*separator, file.value("filename", std::string("tmp")) + "\n" +
                        file["text"].get<std::string>());
  add(*separator, "file\n");
  return ids;
}

static Parsed parseFill(const Service &service, const HttpRequest &request) {
  requireFilling(service);
  const auto fill = service.parse<Fill>(request);
  const FillTokens tokens = requireFill(service, "/infill");
  const auto encode = [&](const std::string &text, const char *name) {
    service.checkSize(text, name);
    return service.tokenizer.encode(text, false);
  };
  GenerationTask task{.parameters = fill,
                      .input = "input_prefix",
                      .ends = service.manifest.generation.eosTokenIds};
  task.ends.insert(task.ends.end(), tokens.ends.begin(), tokens.ends.end());
  std::vector<int32_t> prompt = repositoryOf(service, fill.files);
  for (const std::vector<int32_t> &part :
       {fillPrompt(tokens, encode(fill.before, "input_prefix"),
                   encode(fill.behind, "input_suffix")),
        encode(fill.begun, "prompt")})
    prompt.insert(prompt.end(), part.begin(), part.end());
  task.prompts = {std::move(prompt)};
  return Exchange{std::move(task),
                  std::make_shared<FillAnswer>(service, fill.fields)};
}

static constexpr Route kFillRoutes[] = {
    {"POST", "/infill", "Write what stands between two texts", parseFill,
     "Filling", kStreamed, Fill::List::schema, requireFilling},
};
const Protocol protocols::fill = {kFillRoutes, R"json({
"Filling": {
  "type": ["object", "array"],
  "properties": {
    "index": {"type": "integer"}, "content": {"type": "string"},
    "stop": {"const": true}, "stop_type": {"enum": ["eos", "limit", "word"]},
    "stopping_word": {"type": "string"}, "model": {"type": "string"},
    "system_fingerprint": {"type": "string"},
    "x_seed": {"type": "integer", "minimum": 0}, "truncated": {"const": false},
    "tokens_predicted": {"type": "integer"},
    "tokens_evaluated": {"type": "integer"},
    "tokens_cached": {"type": "integer"},
    "timings": {"$ref": "#/components/schemas/Timings"}}}
})json",
                                  &openai::kFraming};
