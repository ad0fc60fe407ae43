//===- CallGrammar.cpp - Which calls an answer has ------------------------===//

#include "text/CallGrammar.h"

#include "text/LarkText.h"

#include "qwen/Support/Error.h"

#include <array>

using namespace qwen;

static int32_t markOf(std::string_view text, const Tokenizer &tokenizer) {
  const std::optional<int32_t> id = tokenizer.findAddedToken(text);
  if (!id)
    throw Error("a grammar of calls needs a model with the tokens " +
                std::string(kCallOpen) + " and " + std::string(kCallClose));
  return *id;
}

CallMarks CallMarks::of(const Tokenizer &tokenizer) {
  return {markOf(kCallOpen, tokenizer), markOf(kCallClose, tokenizer)};
}

/// A token of a grammar in Lark.
static std::string larkToken(int32_t id) {
  return "<[" + std::to_string(id) + "]>";
}

std::string qwen::callGrammar(const CallFormat &format, const Tools &tools,
                              const CallRules &rules, CallMarks marks,
                              const std::set<size_t> &loose) {
  std::string bodies, texts;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string rule = "call" + std::to_string(i);
    bodies += (i ? " | " : "") + rule;
    texts += format.writeRules(tools[i], rule, loose.contains(i));
  }
  std::string start = "call";
  if (rules.isRequired && !rules.isSingle)
    start = "call (\"\\n\"? call)*";
  if (!rules.isRequired) {
    start = std::string("TEXT? (call TEXT?)") + (rules.isSingle ? "?" : "*");
    // The mark as text would be a call that no rule keeps.
    texts += "TEXT: " + larkTextWithout(std::array{kCallOpen}, false) + "\n";
  }
  return "start: " + start + "\ncall: " + larkToken(marks.open) + " \"\\n\" (" +
         bodies + ") \"\\n\" " + larkToken(marks.close) + "\n" + texts;
}
