//===- LlGuidance.cpp - Grammars of llguidance ----------------------------===//
//
// llguidance computes masks of a vocabulary from an Earley parser over
// derivatives of regular expressions (docs/decisions/0029-grammars.md). It
// catches its own panics. Its readers recurse along references, without a bound
// of their own: grammars have a maximum number of parts here, and a stack that
// is large enough for them.
//
//===----------------------------------------------------------------------===//

#include "grammar/LlGuidance.h"

#include "grammar/JsonText.h"
#include "grammar/LlText.h"
#include "text/JsonScanner.h"
#include "text/KeptSchema.h"
#include "text/LarkDocument.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonDigits.h"

#include <llguidance.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <mutex>
#include <pthread.h>

using namespace qwen;
using nlohmann::ordered_json;

namespace {

struct FreeMatcher {
  void operator()(LlgMatcher *matcher) const { llg_free_matcher(matcher); }
};
using Matcher = std::unique_ptr<LlgMatcher, FreeMatcher>;

struct FreeTokenizer {
  void operator()(LlgTokenizer *vocabulary) const {
    llg_free_tokenizer(vocabulary);
  }
};
using Vocabulary = std::unique_ptr<LlgTokenizer, FreeTokenizer>;

/// What is left of a grammar in one answer.
class State final : public TokenConstraint {
public:
  State(Matcher start, AnswerJson answerJson, std::vector<LlText> innerTexts)
      : matcher(std::move(start)), json(std::move(answerJson)),
        inner(std::move(innerTexts)),
        words(llg_matcher_get_mask_byte_size(matcher.get()) /
              sizeof(uint32_t)) {}

  std::span<const uint32_t> allowed() override;
  void accept(int32_t id) override;
  bool isDone() const override { return llg_matcher_is_stopped(matcher.get()); }

private:
  /// Takes away what the grammar cannot tell.
  void filter();

  const Matcher matcher;
  AnswerJson json;
  std::vector<LlText> inner;
  std::vector<uint32_t> words;
  /// Whether `words` belong to the next token.
  bool isKnown = false;
};

class LlGrammar final : public Grammar {
public:
  LlGrammar(Matcher start, AnswerJson answerJson,
            std::vector<LlText> innerTexts)
      : first(std::move(start)), json(std::move(answerJson)),
        inner(std::move(innerTexts)) {}

  std::unique_ptr<TokenConstraint> start() const override {
    // Copies share nothing with the matcher. Two threads must not copy it at
    // the same time.
    const std::lock_guard lock(mutex);
    return std::make_unique<State>(Matcher(llg_clone_matcher(first.get())),
                                   json, inner);
  }

private:
  const Matcher first;
  /// Before its first token.
  const AnswerJson json;
  const std::vector<LlText> inner;
  mutable std::mutex mutex;
};

class LlCompiler final : public GrammarCompiler {
public:
  LlCompiler(const Tokenizer &tokenizer, std::span<const int32_t> ends);

  std::unique_ptr<Grammar> compile(const GrammarSource &source,
                                   const std::stop_token &stop) const override;

private:
  /// The grammars of texts within an answer.
  std::vector<LlText> innerTexts(const std::vector<InnerText> &inner,
                                 const std::stop_token &stop) const;

  Vocabulary vocabulary;
  const std::shared_ptr<const TokenTexts> texts;
  const std::shared_ptr<const LlTokens> tokens;
};

} // namespace

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

namespace {
/// What an error of llguidance that has `words` becomes: its own text names
/// options of the library, or what only the library knows.
struct Message {
  std::string_view words, text;
};
} // namespace

static constexpr std::string_view kTooManyStates =
    "the expressions of the grammar have too many states: patterns, formats "
    "and "
    "lengths of one string, multipleOf with a range, or joined terminals";
/// What llguidance calls it.
static constexpr const char *kNothingNext = "NoExtensionBias";
static constexpr std::string_view kTooLarge = "the grammar is too large";
static constexpr Message kMessages[] = {
    {"oneOf constraints are not supported",
     "oneOf is kept only where types or constants tell its schemas apart; "
     "anyOf "
     "allows documents of several"},
    {kNothingNext, "no token may come next"},
    {"no text matches an expression",
     "a part of the grammar has no text: multipleOf within a range, "
     "patternProperties whose names are all in properties, or a terminal"},
    {"Unable to determine if regex is empty", kTooManyStates},
    {"precomputation failed", kTooManyStates},
    {"too many expressions", kTooManyStates},
    {"too many states", kTooManyStates},
    {"fuel exhausted", kTooManyStates},
    {"check fuel", kTooManyStates},
    {"initial lexer configuration", kTooLarge},
    {"grammar size", kTooLarge},
    {"schema too large", kTooLarge},
    {"stack level exceeded", kTooLarge},
    {"Current row has", kTooLarge},
    {"items limit", kTooLarge},
};

Error qwen::llGuidanceError(std::string_view text) {
  // Behind the beginning, it would be a word of the request.
  if (text.starts_with("panic:"))
    return Error("the grammar cannot be made");
  for (const Message &message : kMessages)
    if (text.find(message.words) != std::string_view::npos)
      return Error(std::string(message.text));
  constexpr std::string_view kCause = "\nerror:";
  const auto lineAt = [&](size_t begin) {
    return std::string(text.substr(begin, text.find('\n', begin) - begin));
  };
  std::string line = lineAt(0);
  if (const size_t cause = text.find(kCause); cause != std::string_view::npos)
    line += lineAt(cause + kCause.size());
  if (!line.empty())
    line[0] =
        static_cast<char>(std::tolower(static_cast<unsigned char>(line[0])));
  return Error(line);
}

static Error errorOf(const Matcher &matcher) {
  const char *const text = llg_matcher_get_error(matcher.get());
  return llGuidanceError(text ? text : kNothingNext);
}

/// Twice what the parts take.
static constexpr size_t kStackBytes = GrammarLimits::kParts << 14;

static void requireParts(size_t count, const char *what) {
  if (count > GrammarLimits::kParts)
    throw Error("the grammar has " + std::to_string(count) + " " + what +
                " when at most " + std::to_string(GrammarLimits::kParts) +
                " are allowed");
}

static size_t countObjects(const ordered_json &value) {
  size_t count = value.is_object();
  if (value.is_structured())
    for (const ordered_json &each : value)
      count += countObjects(each);
  return count;
}

static ordered_json parse(const std::string &text) {
  return parseWithDigits(text, "the grammar", kRequestJson);
}

namespace {
/// A text for llguidance, and the language of it.
struct GrammarText {
  const char *language;
  std::string text;
};
} // namespace

static constexpr const char *kLark = "lark";

static GrammarText withFewObjects(const std::string &text) {
  ordered_json schema = parse(text);
  if (schema == true)
    schema = ordered_json::object();
  if (!schema.is_object())
    throw Error("a schema must be an object or true");
  requireParts(countObjects(schema), "objects");
  const LarkDocument document = larkDocument(schema, schema, "part");
  if (!document.schema.empty())
    return {"json_schema", document.schema};
  return {kLark, "start: " + document.expression + "\n" + document.rules};
}

/// A Lark grammar of the strings of a JSON array.
static GrammarText anyOf(const std::string &text) {
  // One expression, as a rule for each would exceed the rules at one place.
  std::string rule = "start: CHOICE\nCHOICE: ";
  const char *before = "";
  for (const ordered_json &each : parse(text)) {
    rule += before + each.dump(-1, ' ', /*ensure_ascii=*/true);
    before = " | ";
  }
  return {kLark, rule};
}

namespace {
/// How llguidance reads the text of a kind, and the JSON of its answers.
struct KindRow {
  GrammarText (*write)(const std::string &text);
  JsonPart json;
};
} // namespace

static GrammarText regex(const std::string &text) { return {"regex", text}; }

/// Refuses expressions that "&" joins if they may go on in too many ways. The
/// parts of one may be anywhere.
static void requireFewJoined(const std::string &text) {
  const auto count = [&](std::string_view letters) {
    return static_cast<double>(std::ranges::count_if(text, [&](char c) {
      return letters.find(c) != std::string_view::npos;
    }));
  };
  const double joined = count("&") + 1;
  if (joined > 1 && std::pow(1 + count("|*+?{") / joined, joined) >
                        GrammarLimits::kJoinedWays)
    throw Error("the grammar has too many expressions that & joins");
}

/// A grammar in Lark with its JSON schemas as they are kept.
static std::string withKeptSchemas(const std::string &text) {
  constexpr std::string_view kSchema = "%json";
  std::string kept;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(kSchema, at)) != std::string::npos;) {
    at += kSchema.size();
    const size_t begin =
        std::min(text.find_first_not_of(" \t\n", at), text.size());
    JsonScanner scanner;
    std::string schema;
    const size_t size =
        scanner.push(std::string_view(text).substr(begin), schema);
    if (!scanner.isDone() || !schema.starts_with('{'))
      throw Error(std::string(kSchema) +
                  " needs a JSON object behind it, nested at most " +
                  std::to_string(JsonScanner::kMostDepth) + " deep");
    const ordered_json read = parse(schema);
    kept += text.substr(from, begin - from) + keptSchema(read).dump();
    at = from = begin + size;
  }
  return kept + text.substr(from);
}

static GrammarText withFewRules(const std::string &text) {
  requireParts(static_cast<size_t>(std::ranges::count(text, ':')), "colons");
  requireFewJoined(text);
  return {kLark, withKeptSchemas(text)};
}

/// Its rules come from callGrammar and are few; its schemas are the request's.
static GrammarText withFewSchemas(const std::string &text) {
  requireParts(static_cast<size_t>(std::ranges::count(text, '{')), "objects");
  return {kLark, text};
}

/// By GrammarKind.
static constexpr KindRow kKinds[] = {
    {withFewObjects, JsonPart::All},
    {regex, JsonPart::None},
    {anyOf, JsonPart::None},
    {withFewRules, JsonPart::None},
    {withFewSchemas, JsonPart::BetweenMarks},
};

//===----------------------------------------------------------------------===//
// Vocabularies
//===----------------------------------------------------------------------===//

/// Sets of tokens that llguidance allows together where a text may go on with
/// any of them: its own sets, without "<", which texts beside calls do not end
/// with (larkTextWithout), and all others without it.
static constexpr const char *kSlices[] = {R"([\x20\x0A\x0D\x09]+)",
                                          R"([^<"\\\x00-\x1F\x7F]{1,10})",
                                          R"([^<"\\\x00-\x1F\x7F]{1,30})",
                                          R"([^<"\\\x00-\x1F\x7F]+)",
                                          R"([^<]+)",
                                          nullptr};

LlCompiler::LlCompiler(const Tokenizer &tokenizer,
                       std::span<const int32_t> ends)
    : texts(std::make_shared<TokenTexts>(tokenizer)),
      tokens(std::make_shared<LlTokens>(
          texts, static_cast<size_t>(tokenizer.vocabSize()))) {
  const TokenNames names = tokens->names();
  if (ends.empty())
    throw Error("the model has no token that ends an answer");
  const std::vector<uint32_t> further(ends.begin() + 1, ends.end());

  LlgTokenizerInitV2 init = {};
  init.struct_size = sizeof(init);
  init.vocab_size = static_cast<uint32_t>(names.lengths.size());
  init.tok_eos = static_cast<uint32_t>(ends.front());
  init.token_lens = names.lengths.data();
  init.token_bytes = reinterpret_cast<const uint8_t *>(names.bytes.data());
  // A grammar never says how a text is divided into tokens: the model does.
  init.use_approximate_greedy_tokenize_fn = true;
  init.slices = kSlices;
  init.tok_eos_extra = further.data();
  init.tok_eos_extra_count = static_cast<uint32_t>(further.size());
  std::array<char, 512> error = {};
  vocabulary.reset(llg_new_tokenizer_v2(&init, error.data(), error.size()));
  if (!vocabulary)
    throw llGuidanceError(error.data());
}

//===----------------------------------------------------------------------===//
// Grammars
//===----------------------------------------------------------------------===//

/// Calls `work`, which must not throw, on a thread with kStackBytes.
static void runOnLargeStack(std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread = {};
  const auto run = [](void *argument) -> void * {
    (*static_cast<std::function<void()> *>(argument))();
    return nullptr;
  };
  const int failed = pthread_create(&thread, &attributes, run, &work);
  pthread_attr_destroy(&attributes);
  if (failed)
    throw Error("no thread for a grammar can be started", ErrorKind::NoMemory);
  pthread_join(thread, nullptr);
}

static LlgConstraintInit initOf(const LlgTokenizer *vocabulary) {
  LlgConstraintInit init = {};
  llg_constraint_init_set_defaults(&init, vocabulary);
  init.log_buffer_level = 0;
  init.log_stderr_level = 0;
  init.limits.verbose_errors = false;
  init.limits.max_lexer_states = GrammarLimits::kStates;
  init.limits.initial_lexer_fuel = GrammarLimits::kFirstSteps;
  init.limits.max_items_in_row = GrammarLimits::kRulesAtOnce;
  init.limits.step_max_items = GrammarLimits::kRulesOfMask;
  return init;
}

static void requireRunning(const std::stop_token &stop) {
  if (stop.stop_requested())
    throw Error("the grammar was cancelled", ErrorKind::Cancelled);
}

/// The text of a grammar for llguidance, which has made its first states.
static GrammarText checkedText(GrammarKind kind, const std::string &source,
                               const LlgParserLimits &limits,
                               const std::stop_token &stop) {
  if (source.size() > GrammarLimits::kBytes)
    throw Error("the grammar has " + std::to_string(source.size()) +
                " bytes when at most " + std::to_string(GrammarLimits::kBytes) +
                " are allowed");
  if (source.find('\0') != std::string::npos)
    throw Error("the grammar has a character of code 0");
  requireRunning(stop);
  GrammarText text = kKinds[static_cast<size_t>(kind)].write(source);
  LlMessage message;
  int32_t failed = 0;
  runOnLargeStack([&] {
    failed = qwen_check_grammar(text.language, text.text.c_str(), &limits,
                                message.space());
  });
  if (failed)
    throw message.error();
  requireRunning(stop);
  return text;
}

std::vector<LlText> LlCompiler::innerTexts(const std::vector<InnerText> &inner,
                                           const std::stop_token &stop) const {
  const LlgParserLimits limits = initOf(vocabulary.get()).limits;
  std::vector<LlText> made;
  // Now, so that no answer waits for it.
  if (!inner.empty())
    tokens->tree();
  for (const InnerText &each : inner) {
    if (each.place.before.find('\0') != std::string::npos)
      throw Error("a text stands behind a character of code 0");
    const auto [language, text] =
        checkedText(each.kind, each.text, limits, stop);
    LlMessage message;
    QwenText *read = nullptr;
    runOnLargeStack([&] {
      read = qwen_new_text(language, text.c_str(), each.place.before.c_str(),
                           each.place.end.c_str(), each.place.isJson, &limits,
                           message.space());
    });
    if (!read)
      throw message.error();
    made.emplace_back(read, each.mark, tokens);
    requireRunning(stop);
  }
  return made;
}

std::unique_ptr<Grammar>
LlCompiler::compile(const GrammarSource &source,
                    const std::stop_token &stop) const {
  std::vector<LlText> inner = innerTexts(source.inner, stop);
  const LlgConstraintInit init = initOf(vocabulary.get());
  const auto [language, text] =
      checkedText(source.kind, source.text, init.limits, stop);
  Matcher matcher;
  runOnLargeStack(
      [&] { matcher.reset(llg_new_matcher(&init, language, text.c_str())); });
  requireRunning(stop);
  // Some faults show when tokens are looked for.
  if (llg_matcher_is_error(matcher.get()) ||
      llg_matcher_compute_mask(matcher.get()) != 0)
    throw errorOf(matcher);
  const KindRow &kind = kKinds[static_cast<size_t>(source.kind)];
  return std::make_unique<LlGrammar>(
      std::move(matcher), AnswerJson(texts, kind.json), std::move(inner));
}

std::span<const uint32_t> State::allowed() {
  if (!isKnown &&
      llg_matcher_compute_mask_into(matcher.get(), words.data(),
                                    words.size() * sizeof(uint32_t)) != 0)
    throw errorOf(matcher);
  if (!isKnown)
    filter();
  isKnown = true;
  return words;
}

void State::filter() {
  json.filter(words);
  for (LlText &text : inner)
    text.filter(words);
  if (std::ranges::all_of(words, [](uint32_t word) { return word == 0; }))
    throw llGuidanceError(kNothingNext);
}

void State::accept(int32_t id) {
  isKnown = false;
  if (llg_matcher_consume_token(matcher.get(), static_cast<uint32_t>(id)) != 0)
    throw errorOf(matcher);
  json.accept(id);
  for (LlText &text : inner)
    text.accept(id);
}

std::unique_ptr<GrammarCompiler>
qwen::makeLlGuidance(const Tokenizer &tokenizer,
                     std::span<const int32_t> ends) {
  return std::make_unique<LlCompiler>(tokenizer, ends);
}
