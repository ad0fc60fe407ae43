//===- ModelCard.cpp - A model as Codex reads it --------------------------===//

#include "server/protocols/responses/ModelCard.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

/// What the agent is told. Codex takes a card's instructions in place of its
/// own, and refuses a card without any; a file of `model_instructions_file`
/// goes before both. They are short, because each token is a part of every
/// first prompt, and small models follow few rules.
static constexpr const char *kInstructions =
    R"(You are Codex, a coding agent in a terminal. You work in the user's folder with the tools of this session.

- Carry the task out to its end: look, change, check, and only then answer.
- Read a file before you change it. Search with fast commands such as `rg`. Run independent commands in one turn if you can.
- Change files with the tool for patches if there is one. Keep to the style of the code around. Change only what the task needs.
- Do not undo changes that you did not make. Do not commit, and do not delete what you did not create, unless the user asks.
- Obey AGENTS.md files; one deeper in the tree goes before one above it, and the user's words go before both.
- Where it is quick, check your work with the project's own build and tests. Say what you could not check.
- If a command fails, read its output and try another way. Ask the user only if you cannot go on.
- Answer briefly, in plain text: what you did, where (`path:line`), and what is left.)";

/// A level of reasoning with the word of a template's variable that chooses it.
static ordered_json level(const char *effort, const char *description) {
  return {{"effort", effort}, {"description", description}};
}

/// The levels that the chat template tells apart.
static ordered_json levelsOf(const Service &service) {
  ordered_json levels = ordered_json::array();
  const auto reads = [&](std::string_view variable) {
    return service.chatTemplate.find(variable) != std::string_view::npos;
  };
  if (!service.limits.thinks)
    return levels;
  if (reads("enable_thinking"))
    levels.push_back(level("none", "Answers at once"));
  if (reads("reasoning_effort"))
    levels.push_back(level("low", "Thinks briefly"));
  levels.push_back(level("medium", "Thinks before it answers"));
  if (reads("reasoning_effort"))
    levels.push_back(level("high", "Thinks long"));
  return levels;
}

ordered_json responses::modelCard(const Service &service,
                                  const std::string &name) {
  constexpr int64_t kToolOutputTokens = 10000; // Codex's own limit
  const int64_t context = service.manifest.model.context;
  const ordered_json levels = levelsOf(service);
  // Codex takes four bytes of a tool's output for a token, but logs and numbers
  // have a token for one or two. An eighth is at most half of the context then.
  // The conversation is shortened before an output would not fit; otherwise the
  // turn fails.
  const int64_t limit = std::min(kToolOutputTokens, context / 8);
  return {{"slug", name},
          {"display_name", name},
          {"description", nullptr},
          {"default_reasoning_level",
           levels.empty() ? ordered_json() : ordered_json("medium")},
          {"supported_reasoning_levels", levels},
          {"shell_type", "default"},
          {"visibility", "list"},
          {"supported_in_api", true},
          {"priority", 0},
          {"availability_nux", nullptr},
          {"upgrade", nullptr},
          {"base_instructions", kInstructions},
          {"supports_reasoning_summaries", false},
          {"supports_reasoning_summary_parameter", false},
          {"support_verbosity", false},
          {"default_verbosity", nullptr},
          {"apply_patch_tool_type", nullptr},
          {"truncation_policy", {{"mode", "tokens"}, {"limit", limit}}},
          {"supports_parallel_tool_calls", true},
          {"supports_image_detail_original", false},
          {"context_window", context},
          {"max_context_window", context},
          {"auto_compact_token_limit", context / 4 * 3},
          {"effective_context_window_percent", 95},
          {"experimental_supported_tools", ordered_json::array()},
          {"input_modalities", ordered_json::array({"text"})}};
}
