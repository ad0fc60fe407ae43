//===- CApiGrammar.cpp - C interface of grammars --------------------------===//

#include "CApiModel.h"
#include "CApiStruct.h"
#include "grammar/AnswerConstraint.h"
#include "grammar/Gbnf.h"
#include "grammar/ToolGrammar.h"

#include "qwen/Support/JsonValue.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::capi;

static_assert(static_cast<int>(GrammarKind::JsonSchema) ==
                  QWEN_GRAMMAR_JSON_SCHEMA &&
              static_cast<int>(GrammarKind::Regex) == QWEN_GRAMMAR_REGEX &&
              static_cast<int>(GrammarKind::Choice) == QWEN_GRAMMAR_CHOICE &&
              static_cast<int>(GrammarKind::Lark) == QWEN_GRAMMAR_LARK);

std::vector<int32_t> qwen_model::ends() const {
  std::vector<int32_t> ids = manifest().generation.eosTokenIds;
  return hasChatFormat() ? chatFormat().endTokens(std::move(ids)) : ids;
}

const GrammarCompiler &qwen_model::grammars() const {
  std::call_once(grammarsMade,
                 [&] { compiler = makeGrammarCompiler(tokenizer(), ends()); });
  return *compiler;
}

namespace {
/// A grammar of one answer, with a parser that tells where the reasoning is.
/// The program's own parser lags behind the scheduler.
class ParsedConstraint final : public TokenConstraint {
public:
  ParsedConstraint(const qwen_model &model, const Grammar &grammar,
                   std::span<const int32_t> prompt, bool afterReasoning)
      : format(afterReasoning ? &model.answerFormat() : nullptr),
        parser(model.tokenizer(), format, prompt, {.ends = model.ends()}),
        constraint(grammar.start(), parser, format, model.ends()) {}

  std::span<const uint32_t> allowed() override { return constraint.allowed(); }
  void accept(int32_t id) override {
    constraint.accept(id);
    parser.push(id);
  }
  bool isDone() const override { return constraint.isDone(); }

private:
  const AnswerFormat *const format;
  AnswerParser parser;
  AnswerConstraint constraint;
};
} // namespace

/// What the text of a grammar says. Throws Error.
static GrammarSource sourceOf(Need need, int32_t kind, std::string_view text) {
  const std::string what = need.function;
  if (kind < QWEN_GRAMMAR_JSON_SCHEMA || kind > QWEN_GRAMMAR_LARK)
    throw Error(what + ": kind is " + std::to_string(kind) +
                " when 0 to 3 is needed");
  if (text.empty())
    throw Error(what + ": text is empty");
  GrammarSource source = {static_cast<GrammarKind>(kind), std::string(text)};
  if (source.kind == GrammarKind::Lark && isGbnf(text))
    source.text = larkOfGbnf(text);
  if (source.kind != GrammarKind::Choice)
    return source;
  checkJson(text, what + ": text", kRequestJson);
  const auto words = nlohmann::json::parse(text);
  const auto isWord = [](const nlohmann::json &each) {
    return each.is_string() && each != "";
  };
  if (!words.is_array() || words.empty() || !std::ranges::all_of(words, isWord))
    throw Error(what +
                ": text must be an array of strings, none of them empty");
  return source;
}

/// What a program gets.
static qwen_grammar *wrap(const qwen_model &model,
                          std::shared_ptr<const Grammar> grammar) {
  return new qwen_grammar{
      &model, [&model, grammar = std::move(grammar)](
                  std::span<const int32_t> prompt, bool afterReasoning) {
        if (afterReasoning)
          requireMarks(&model.answerFormat());
        return std::make_shared<ParsedConstraint>(model, *grammar, prompt,
                                                  afterReasoning);
      }};
}

qwen_grammar *qwen_grammar_new(const qwen_model *model, int32_t kind,
                               const char *text, size_t size) {
  return with<qwen_grammar *>(__func__, model, [&](Need need) {
    need("text", text);
    const GrammarSource source = sourceOf(need, kind, {text, size});
    return wrap(*model, model->grammars().compile(source));
  });
}

qwen_grammar *qwen_grammar_new_calls(const qwen_model *model,
                                     const qwen_call_rules *rules) {
  return with<qwen_grammar *>(__func__, model, [&](Need need) {
    need("rules", rules);
    const auto from = readStruct("qwen_grammar_new_calls: rules", *rules);
    need("tools", from.tools);
    CallOptions calls =
        callOptionsOf(need.function, *model, from.tools, from.tool_format);
    if (calls.tools->empty())
      throw Error("qwen_grammar_new_calls: there are no tools");
    calls.rules = CallRules{.isRequired = from.is_required != 0,
                            .isSingle = from.is_single != 0};
    return wrap(*model, makeToolGrammar(model->grammars(), calls,
                                        CallMarks::of(model->tokenizer())));
  });
}

void qwen_grammar_free(qwen_grammar *grammar) { delete grammar; }
