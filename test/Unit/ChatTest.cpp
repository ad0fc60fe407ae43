//===- ChatTest.cpp - Text, commands and files of a chat ------------------===//

#include "TempDir.h"
#include "chat/AnswerView.h"
#include "chat/Conversation.h"
#include "chat/History.h"
#include "chat/MessageLines.h"
#include "chat/SavedConversation.h"
#include "chat/Talk.h"
#include "chat/TextEditor.h"
#include "chat/TypedCharacters.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

/// The message of the Error that `run` throws; empty if it throws none.
template <typename Function> static std::string errorOf(Function run) {
  try {
    run();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Text on terminals
//===----------------------------------------------------------------------===//

TEST(Screen, EscapesControlCharacters) {
  EXPECT_EQ(screenText("a\tb\n\nc\n"), "a\tb\n\nc\n");
  EXPECT_EQ(screenText("\x1b[2J\a\b\r\x7f"),
            "\\u001b[2J\\u0007\\u0008\\r\\u007f");
  // C1: CSI, as two bytes of UTF-8 and as one that is no UTF-8.
  EXPECT_EQ(screenText("\u009b31m\x9b"), "\\u009b31m\ufffd");
  // Controls of the writing direction, and the end of a line.
  EXPECT_EQ(screenText("\u202eabc\u2066\u2028"), "\\u202eabc\\u2066\\u2028");
  EXPECT_EQ(screenText("\xe6\x97"), "\ufffd");
  EXPECT_EQ(screenText("日本 👩\u200d🚀 é"), "日本 👩\u200d🚀 é");
}

TEST(Screen, CountsColumns) {
  EXPECT_EQ(lineColumns("abc"), 3u);
  EXPECT_EQ(lineColumns("日本"), 4u);
  EXPECT_EQ(lineColumns("🚀"), 2u);
  // A combining accent.
  EXPECT_EQ(lineColumns("e\u0301"), 1u);
}

TEST(Screen, WrapsWords) {
  EXPECT_EQ(wrapped("one two three", 20), "one two three");
  EXPECT_EQ(wrapped("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one two\nthree", 5, 2), "one\n  two\nthree");
  EXPECT_EQ(wrapped("abcdefgh ij", 3), "abc\ndef\ngh\nij");
  // A wide character does not stand half in a line.
  EXPECT_EQ(wrapped("日本語", 3), "日\n本\n語");
  EXPECT_EQ(wrapped("a 日本", 5), "a\n日本");
  EXPECT_EQ(wrapped("日本", 2, 5), "日\n本");
  EXPECT_EQ(wrapped("", 5), "");
}

static AnswerEvents events() {
  return {{AnswerEventKind::Reasoning, "so\x1b"},
          {AnswerEventKind::Reasoning, "."},
          {AnswerEventKind::Text, "Yes"},
          {AnswerEventKind::End, ""}};
}

TEST(AnswerView, ShowsReasoning) {
  const Screen color = {
      .isTerminal = true, .hasColor = true, .hasCursor = true};
  AnswerView dim(color);
  EXPECT_TRUE(dim.splits());
  EXPECT_EQ(dim.add(events()) + dim.finish(),
            "\x1b[2mso\\u001b.\x1b[22m\n\nYes\n");
  // An answer that ends inside of reasoning leaves no dim letters.
  EXPECT_EQ(dim.add({{AnswerEventKind::Reasoning, "so"}}) + dim.finish(),
            "\x1b[2mso\x1b[22m\n");
  AnswerView hidden(color);
  hidden.hidesReasoning = true;
  EXPECT_EQ(hidden.add(events()) + hidden.finish(),
            "\x1b[2m(thinking)\x1b[22m\r\x1b[KYes\n");
  AnswerView dumb({.isTerminal = true});
  EXPECT_FALSE(dumb.splits());
  dumb.hidesReasoning = true;
  EXPECT_TRUE(dumb.splits());
  EXPECT_EQ(dumb.add(events()) + dumb.finish(), "Yes\n");
}

TEST(AnswerView, ShowsCalls) {
  AnswerView view({.isTerminal = true, .hasColor = true});
  const AnswerEvents call = {{AnswerEventKind::ToolCallBegin, "look"},
                             {AnswerEventKind::ToolCallArguments, "{\"a\""},
                             {AnswerEventKind::ToolCallArguments, ": 1}"},
                             {AnswerEventKind::ToolCallEnd, ""}};
  EXPECT_EQ(view.add({{AnswerEventKind::Text, "I look."}}) + view.add(call) +
                view.add(call) + view.finish(),
            "I look.\n[call look {\"a\": 1}]\n[call look {\"a\": 1}]\n");
  EXPECT_EQ(view.add({{AnswerEventKind::Reasoning, "so"}}) + view.add(call) +
                view.finish(),
            "\x1b[2mso\x1b[22m\n\n[call look {\"a\": 1}]\n");
}

TEST(AnswerView, GivesProgramsTheText) {
  AnswerView pipe({});
  EXPECT_FALSE(pipe.splits());
  EXPECT_EQ(pipe.add({{AnswerEventKind::Text, "a\x1b"}}) + pipe.finish(),
            "a\x1b\n");
}

//===----------------------------------------------------------------------===//
// Messages and commands
//===----------------------------------------------------------------------===//

/// The messages of these lines, each with "Q" before it if it is quoted.
static std::vector<std::string>
messagesOf(const std::vector<std::string> &input) {
  MessageLines lines;
  std::vector<std::string> messages;
  for (const std::string &line : input)
    if (lines.add(line)) {
      const std::string mark = lines.isQuoted() ? "Q" : "";
      messages.push_back(mark + lines.take());
    }
  if (lines.isOpen())
    messages.push_back("open " + lines.take());
  return messages;
}

TEST(MessageLines, JoinsLines) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(messagesOf({"a", "", "b"}), (Texts{"a", "", "b"}));
  EXPECT_EQ(messagesOf({"a\\", "b\\", "c", "d"}), (Texts{"a\nb\nc", "d"}));
  // A backslash before the last one makes it a character.
  EXPECT_EQ(messagesOf({"a\\\\", "b"}), (Texts{"a\\\\", "b"}));
  EXPECT_EQ(messagesOf({"\"\"\"", "a", "", "b", "\"\"\"", "c"}),
            (Texts{"Qa\n\nb", "c"}));
  EXPECT_EQ(messagesOf({"\"\"\"a", "b\\", "c\"\"\""}), (Texts{"Qa\nb\\\nc"}));
  EXPECT_EQ(messagesOf({"\"\"\"a\"\"\""}), (Texts{"Qa"}));
  EXPECT_EQ(messagesOf({"\"\"\"\"\"\"", "a"}), (Texts{"Q", "a"}));
  EXPECT_EQ(messagesOf({"\"\"\"", "a"}), (Texts{"open a"}));
}

TEST(ChatCommands, AreParsed) {
  const auto command = parseChatCommand("/save  my file.json ");
  ASSERT_TRUE(command);
  EXPECT_EQ(command->row->name, "save");
  EXPECT_EQ(command->argument, "my file.json");
  EXPECT_EQ(parseChatCommand("/system a\nb")->argument, "a\nb");
  EXPECT_EQ(parseChatCommand("/system")->argument, "");
  EXPECT_TRUE(parseChatCommand("/exit "));
  for (const char *line : {"", "a", " /exit", "/", "// text", "/usr/bin", "/2"})
    EXPECT_FALSE(parseChatCommand(line)) << line;
  EXPECT_EQ(errorOf([] { parseChatCommand("/quit now"); }),
            "there is no command \"/quit\"; /help lists them, and a message "
            "may stand between \"\"\"");
  EXPECT_EQ(errorOf([] { parseChatCommand("/save"); }), "/save needs FILE");
  EXPECT_EQ(errorOf([] { parseChatCommand("/clear all"); }),
            "/clear takes no argument, but there is \"all\"");
}

TEST(ChatCommands, AreInTheDocuments) {
  std::ifstream file(QWEN_SOURCE_DIR "/docs/chat.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const ChatCommandRow &row : ChatCommandRow::all()) {
    std::string usage = row.usage();
    // A bar divides columns.
    for (size_t i = 0; (i = usage.find('|', i)) != std::string::npos; i += 2)
      usage.insert(i, "\\");
    EXPECT_NE(text.str().find("| `" + usage + "` | "), std::string::npos)
        << usage;
  }
}

//===----------------------------------------------------------------------===//
// Saved conversations
//===----------------------------------------------------------------------===//

static const server::ParameterLimits kLimits = {.vocabSize = 100};

TEST(SavedConversation, IsReadAsItIsWritten) {
  SavedConversation saved;
  saved.messages = {{{"role", "user"}, {"content", "日本\n\x1b"}},
                    {{"role", "assistant"}, {"content", "<think>a</think>b"}}};
  saved.variables = {{"enable_thinking", false}};
  saved.sampling.temperature = 0.7f;
  saved.sampling.topK = 20;
  saved.sampling.topP = 0.95;
  saved.sampling.logitBias = {{3, 0.5f}, {4, -1.f}, {3, 1.f}};
  saved.sampling.seed = UINT64_MAX;
  saved.count = 24;
  const std::string text = requestOf(saved, kLimits);
  EXPECT_NE(text.find("\"temperature\": 0.7,"), std::string::npos) << text;
  SavedConversation read;
  readRequest(text, kLimits, read);
  EXPECT_EQ(read.messages, saved.messages);
  EXPECT_EQ(read.variables, saved.variables);
  EXPECT_EQ(read.sampling.temperature, 0.7f);
  EXPECT_EQ(read.sampling.topK, 20);
  EXPECT_EQ(read.sampling.topP, 0.95);
  EXPECT_EQ(read.sampling.seed, UINT64_MAX);
  ASSERT_EQ(read.sampling.logitBias.size(), 2u);
  EXPECT_EQ(read.sampling.logitBias[0].bias, 1.5f);
  EXPECT_EQ(read.count, 24);
  // What the server would refuse is not saved.
  saved.sampling.temperature = 3;
  EXPECT_NE(errorOf([&] { requestOf(saved, kLimits); }), "");
}

TEST(SavedConversation, KeepsWhatARequestDoesNotSet) {
  SavedConversation read;
  read.sampling.temperature = 0.5f;
  read.sampling.seed = 7;
  readRequest(R"({"messages": [{"role": "developer", "content": [
                    {"type": "text", "text": "a"}]},
                  {"role": "user", "content": "b"}],
                  "reasoning_effort": "none"})",
              kLimits, read);
  EXPECT_EQ(read.messages,
            ordered_json::parse(R"([{"role": "system", "content": "a"},
                                    {"role": "user", "content": "b"}])"));
  EXPECT_EQ(read.sampling.temperature, 0.5f);
  EXPECT_EQ(read.sampling.seed, 7u);
  EXPECT_EQ(read.variables, ordered_json({{"reasoning_effort", "none"},
                                          {"enable_thinking", false}}));
}

TEST(SavedConversation, RefusesWhatTheServerRefuses) {
  const std::string good = R"("messages": [{"role": "user", "content": "a"}])";
  std::string deep = good + ", \"chat_template_kwargs\": ";
  for (int i = 0; i < 10000; ++i)
    deep += "{\"a\":";
  for (const std::string &text :
       {std::string(""), std::string("[]"), std::string("{}"),
        std::string("{\"messages\": []}"), std::string("{\"messages\": 3}"),
        std::string("{\"messages\": [{}]}"),
        std::string(R"({"messages": [{"role": "king", "content": "a"}]})"),
        std::string(R"({"messages": [{"role": "user"}]})"),
        std::string(R"({"messages": [{"role": "user", "content": 1}]})"),
        "{" + good, "{" + good + ", \"temperature\": 3}",
        "{" + good + ", \"temperature\": \"a\"}",
        "{" + good + ", \"seed\": 1.5}", "{" + good + ", \"stop\": \"a\"}",
        "{" + good + ", \"logit_bias\": {\"100\": 1}}",
        "{" + good + ", \"tools\": []}", "{" + good + ", \"messages\": []}",
        "{\"\xff\": 1, " + good + "}", "{" + deep}) {
    SavedConversation read;
    EXPECT_NE(errorOf([&] { readRequest(text, kLimits, read); }), "")
        << text.substr(0, 100);
  }
}

TEST(SavedConversation, SetsOptions) {
  SamplerOptions options;
  setOption(options, "top_k", "5", kLimits);
  setOption(options, "temperature", "0.25", kLimits);
  EXPECT_EQ(options.topK, 5);
  EXPECT_EQ(options.temperature, 0.25f);
  EXPECT_EQ(describeOptions(options)[0].value, "0.25");
  EXPECT_TRUE(errorOf([&] { setOption(options, "seed", "5", kLimits); })
                  .starts_with("there is no option \"seed\"; the options are "
                               "temperature, top_k, "));
  EXPECT_EQ(errorOf([&] { setOption(options, "top_k", "x", kLimits); }),
            "top_k must be a number, not \"x\"");
  EXPECT_NE(errorOf([&] { setOption(options, "top_k", "1.5", kLimits); }), "");
  EXPECT_NE(errorOf([&] { setOption(options, "top_p", "2", kLimits); }), "");
  EXPECT_EQ(options.topK, 5);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static std::string writtenTo(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(History, IsPrivateAndKept) {
  const test::TempDir temp;
  const std::string folder = temp.string() + "/a/b";
  {
    History history(folder);
    EXPECT_TRUE(history.messages().empty());
    history.add("one\ntwo");
    history.add("one\ntwo");
    history.add("\xff");
    history.add(std::string(History::kMostBytes + 1, 'a'));
  }
  struct stat status;
  ASSERT_EQ(stat((folder + "/history").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  std::ofstream(folder + "/history", std::ios::app) << "damaged\n\"\"\n[1]\n\"";
  EXPECT_EQ(History(folder).messages(),
            (std::vector<std::string>{"one\ntwo", "\ufffd"}));
  ASSERT_EQ(chmod((folder + "/history").c_str(), 0644), 0);
  (void)History(folder);
  ASSERT_EQ(stat((folder + "/history").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(History, IsBounded) {
  const test::TempDir temp;
  std::string text;
  for (size_t i = 0; i < 2 * History::kMostMessages + 1; ++i)
    text += "\"" + std::to_string(i) + "\"\n";
  std::ofstream(temp.string() + "/history") << text;
  EXPECT_EQ(History(temp.string()).messages().size(), History::kMostMessages);
  History again(temp.string());
  EXPECT_EQ(again.messages().size(), History::kMostMessages);
  EXPECT_EQ(again.messages().back(), "2000");
}

TEST(History, RefusesLinksAndFolders) {
  const test::TempDir temp;
  std::filesystem::create_symlink("/dev/null", temp.string() + "/history");
  EXPECT_EQ(errorOf([&] { History history(temp.string()); }),
            "cannot use '" + temp.string() + "/history': it is a link");
  std::filesystem::remove(temp.string() + "/history");
  ASSERT_EQ(mkfifo((temp.string() + "/history").c_str(), 0600), 0);
  EXPECT_NE(errorOf([&] { History history(temp.string()); }), "");
}

/// What a program reads when a terminal sends bytes.
static std::u32string charactersOf(std::string_view bytes) {
  TypedCharacters typed;
  std::u32string characters;
  for (const char byte : bytes) {
    typed.add(byte);
    while (const std::optional<char32_t> c = typed.next())
      characters += *c;
  }
  return characters;
}

TEST(TypedCharacters, InvalidBytesTakeNoKeyAlong) {
  EXPECT_EQ(charactersOf("caf\xe9\r"), U"caf\ufffd\r");
  EXPECT_EQ(charactersOf("日é\r"), U"日é\r");
  // Each start of a character, whole but for its last byte, and bytes that
  // begin none, before a key and before the end of a paste.
  for (const std::string_view cut :
       {"\xc3", "\xe6", "\xe6\x97", "\xf0", "\xf0\x9f", "\xf0\x9f\x98", "\x80",
        "\xc0", "\xed", "\xf5", "\xff"})
    for (const std::string_view key : {"\r", "\n", "a", "\x1b[201~", "日"}) {
      std::u32string wanted = U"\ufffd";
      for (const char32_t c : charactersOf(key))
        wanted += c;
      EXPECT_EQ(charactersOf(std::string(cut) + std::string(key)), wanted);
    }
  EXPECT_EQ(charactersOf("\xe6\xf0\x9f\x80\xff\r"), U"\ufffd\ufffd\ufffd\r");
  EXPECT_EQ(charactersOf("\xe6\x97"), U"");
}

TEST(TypedCharacters, CrlfIsOneLineBreak) {
  EXPECT_EQ(charactersOf("a\r\nb\r\n\r\nc"), U"a\rb\r\rc");
  EXPECT_EQ(charactersOf("a\n\nb\r\rc\n\r"), U"a\n\nb\r\rc\n\r");
  EXPECT_EQ(charactersOf("\r\n\n\xe6\r\n"), U"\r\n\ufffd\r");
  TypedCharacters typed;
  typed.add('\xe6');
  EXPECT_FALSE(typed.next());
  typed.clear();
  typed.add('a');
  EXPECT_EQ(typed.next(), U'a');
}

TEST(TextEditor, RunsWithoutAShell) {
  const test::TempDir temp;
  const std::string editor = temp.string() + "/editor";
  std::ofstream(editor) << "#!/bin/sh\n"
                           "echo \"$1,$2\" > " +
                               temp.string() + "/arguments\n" +
                               "stat -c %a \"$3\" \"${3%/*}\" >> " +
                               temp.string() + "/arguments\n" +
                               "printf '%s more\\r\\n\\r\\n\\rx\\r\\n' \"$(cat "
                               "\"$3\")\" > \"$3\"\n";
  ASSERT_EQ(chmod(editor.c_str(), 0700), 0);
  setenv("TMPDIR", temp.string().c_str(), 1);
  setenv("VISUAL", (editor + " $(a) ;b").c_str(), 1);
  EXPECT_EQ(editText("text", 100), "text more\n\n\rx");
  EXPECT_EQ(writtenTo(temp.string() + "/arguments"), "$(a),;b\n600\n700\n");
  EXPECT_NE(errorOf([] { editText("text", 5); }), "");
  setenv("VISUAL", "false", 1);
  EXPECT_EQ(errorOf([] { editText("text", 100); }),
            "the editor \"false\" failed, so nothing is sent");
  setenv("VISUAL", "/nowhere/editor", 1);
  EXPECT_EQ(errorOf([] { editText("text", 100); }),
            "cannot run the editor \"/nowhere/editor\"; set EDITOR to another "
            "one");
  // Nothing is left.
  size_t files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(temp.string()))
    files += entry.is_directory();
  EXPECT_EQ(files, 0u);
  unsetenv("VISUAL");
  unsetenv("TMPDIR");
}
