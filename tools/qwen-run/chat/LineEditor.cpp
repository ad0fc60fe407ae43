//===- LineEditor.cpp - Lines of a terminal, with libedit -----------------===//

#include "chat/LineEditor.h"

#include "Output.h"
#include "chat/Interrupt.h"
#include "chat/TypedCharacters.h"
#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

// libedit's characters are code points.
static_assert(sizeof(wchar_t) == sizeof(char32_t));

static std::wstring toWide(std::string_view text) {
  std::wstring wide;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decodeUtf8(text.substr(i));
    wide += static_cast<wchar_t>(c.codePoint);
    i += c.length;
  }
  return wide;
}

static std::string toUtf8(std::wstring_view wide) {
  std::string text;
  for (const wchar_t c : wide)
    appendUtf8(text, static_cast<char32_t>(c));
  return text;
}

// Set when the terminal has another size, and when the program goes on after it
// was stopped (Ctrl-Z).
static volatile sig_atomic_t resized = 0, continued = 0;

static void noteSignal(int number) {
  if (number == SIGCONT)
    continued = 1;
  else
    resized = 1;
}

// A program sends this to get pastes between marks, and to get them without.
static constexpr const char *kPasteMarks = "\x1b[?2004h";
static constexpr const char *kNoPasteMarks = "\x1b[?2004l";

/// What libedit's functions share with the editor. libedit reads characters by
/// readKey, which knows Ctrl-C: libedit itself would read on.
struct LineEditor::State {
  FILE *output = nullptr;
  EditLine *edit = nullptr;
  HistoryW *recalled = nullptr;
  std::wstring prompt;
  /// Whether Ctrl-C ends this line, and what had been typed.
  bool isEnding = false;
  std::wstring typed;
  TypedCharacters characters;

  State();
  ~State();
  State(const State &) = delete;
  State &operator=(const State &) = delete;

  static State &of(EditLine *edit);
  int readKey(wchar_t &key);
  bool waitForByte();
  void handleSignals();
  void addToHistory(const std::string &message);
  std::wstring readPaste();
};

LineEditor::State &LineEditor::State::of(EditLine *edit) {
  void *data = nullptr;
  el_wget(edit, EL_CLIENTDATA, &data);
  return *static_cast<State *>(data);
}

/// Does what signals have asked for.
void LineEditor::State::handleSignals() {
  if (resized) {
    resized = 0;
    el_resize(edit);
  }
  if (!continued)
    return;
  continued = 0;
  // A shell has had the terminal meanwhile.
  el_wset(edit, EL_PREP_TERM, 0);
  el_wset(edit, EL_PREP_TERM, 1);
  writeError(std::string("\r") + kPasteMarks);
  el_wset(edit, EL_REFRESH);
}

/// Waits until standard input has a byte or has ended. Returns false on Ctrl-C.
bool LineEditor::State::waitForByte() {
  // These come only inside of ppoll, so that none is missed.
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (const int number : {SIGINT, SIGWINCH, SIGCONT})
    sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  bool isReady = false;
  while (!interrupted && !isReady) {
    handleSignals();
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    isReady = ppoll(&input, 1, nullptr, &before) >= 0 || errno != EINTR;
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return isReady;
}

/// Reads a character. Returns 1, 0 at the end of the input, or -1.
int LineEditor::State::readKey(wchar_t &key) {
  while (true) {
    if (const std::optional<char32_t> character = characters.next()) {
      key = static_cast<wchar_t>(*character);
      return 1;
    }
    if (isEnding || !waitForByte()) {
      if (std::exchange(isEnding, true))
        return -1;
      characters.clear();
      // The key moves the cursor to the end of what was typed.
      key = '\x03';
      return 1;
    }
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (got <= 0)
      return static_cast<int>(got);
    characters.add(byte);
  }
}

static constexpr std::wstring_view kEndOfPaste = L"\x1b[201~";

/// The text of a bracketed paste up to its end, with \n for ends of lines.
std::wstring LineEditor::State::readPaste() {
  std::wstring text;
  wchar_t key = 0;
  while (!text.ends_with(kEndOfPaste) && !isEnding && readKey(key) == 1)
    if (key && !isEnding)
      text += key == '\r' ? '\n' : key;
  if (text.ends_with(kEndOfPaste))
    text.resize(text.size() - kEndOfPaste.size());
  return text;
}

extern "C" {
static wchar_t *qwenPrompt(EditLine *edit);
static int qwenReadKey(EditLine *edit, wchar_t *key);
static unsigned char qwenPaste(EditLine *edit, int key);
static unsigned char qwenInterrupt(EditLine *edit, int key);
}

namespace {
/// A function of the editor and its key, in the syntax of bind(1).
struct EditorFunction {
  const wchar_t *name;
  const wchar_t *help;
  unsigned char (*run)(EditLine *edit, int key);
  const wchar_t *key;
};
} // namespace

static constexpr std::array kFunctions = std::to_array<EditorFunction>({
    {L"chat-paste", L"Insert the text of a bracketed paste", qwenPaste,
     L"\\e[200~"},
    {L"chat-interrupt", L"Give up the line", qwenInterrupt, L"^C"},
    // What terminals send for keys that libedit leaves free.
    {L"chat-paste-end", L"Ignore the end of a paste",
     [](EditLine *, int) -> unsigned char { return CC_NORM; }, L"\\e[201~"},
});

LineEditor::State::State() : output(fdopen(dup(STDERR_FILENO), "w")) {
  if (!output)
    throw Error(std::string("cannot write to the terminal: ") +
                strerror(errno));
  edit = el_init("qwen-run", stdin, output, output);
  recalled = history_winit();
  if (!edit || !recalled)
    throw Error("cannot edit lines on this terminal");
  HistEventW event;
  history_w(recalled, &event, H_SETSIZE,
            static_cast<int>(run::History::kMostMessages));
  history_w(recalled, &event, H_SETUNIQUE, 1);
  el_wset(edit, EL_CLIENTDATA, this);
  el_wset(edit, EL_EDITOR, L"emacs");
  el_wset(edit, EL_HIST, history_w, recalled);
  el_wset(edit, EL_PROMPT, qwenPrompt);
  el_wset(edit, EL_GETCFN, qwenReadKey);
  el_wset(edit, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  el_source(edit, nullptr);
  // Else the terminal makes two newlines of a CRLF.
  el_wset(edit, EL_SETTY, L"-d", L"-icrnl", L"-inlcr", nullptr);
  for (const EditorFunction &row : kFunctions) {
    el_wset(edit, EL_ADDFN, row.name, row.help, row.run);
    el_wset(edit, EL_BIND, row.key, row.name, nullptr);
  }
}

LineEditor::State::~State() {
  if (edit)
    el_end(edit);
  if (recalled)
    history_wend(recalled);
  if (output)
    fclose(output);
}

wchar_t *qwenPrompt(EditLine *edit) {
  return LineEditor::State::of(edit).prompt.data();
}

int qwenReadKey(EditLine *edit, wchar_t *key) {
  return LineEditor::State::of(edit).readKey(*key);
}

unsigned char qwenPaste(EditLine *edit, int) {
  const std::wstring text = LineEditor::State::of(edit).readPaste();
  if (text.empty())
    return CC_NORM;
  return el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char qwenInterrupt(EditLine *edit, int) {
  const LineInfoW *line = el_wline(edit);
  LineEditor::State::of(edit).typed.assign(line->buffer, line->lastchar);
  el_cursor(edit, static_cast<int>(line->lastchar - line->cursor));
  return CC_REFRESH;
}

void LineEditor::State::addToHistory(const std::string &message) {
  HistEventW event;
  history_w(recalled, &event, H_ENTER, toWide(message).c_str());
}

//===----------------------------------------------------------------------===//
// LineEditor
//===----------------------------------------------------------------------===//

bool LineEditor::isPossible() {
  const auto isUtf8 = [] { return !strcmp(nl_langinfo(CODESET), "UTF-8"); };
  (void)setlocale(LC_CTYPE, "");
  return isUtf8() || (setlocale(LC_CTYPE, "C.UTF-8") && isUtf8());
}

LineEditor::LineEditor(std::unique_ptr<run::History> file)
    : state(std::make_unique<State>()), history(std::move(file)) {
  struct sigaction action = {};
  action.sa_handler = noteSignal;
  for (const int number : {SIGWINCH, SIGCONT})
    sigaction(number, &action, nullptr);
  if (history)
    for (const std::string &message : history->messages())
      state->addToHistory(message);
}

LineEditor::~LineEditor() = default;

ReadResult LineEditor::next(const std::string &prompt, std::string &line) {
  interrupted = 0;
  continued = 0;
  state->prompt = toWide(prompt);
  state->isEnding = false;
  state->typed.clear();
  // libedit does this behind the prompt, and the terminal would echo the keys
  // that come between.
  el_wset(state->edit, EL_PREP_TERM, 1);
  writeError(kPasteMarks);
  int size = 0;
  const wchar_t *typed = el_wgets(state->edit, &size);
  writeError(kNoPasteMarks);
  if (state->isEnding) {
    line = toUtf8(state->typed);
    writeError("^C\n");
    return ReadResult::Interrupted;
  }
  if (!typed || size <= 0) {
    writeError("\n");
    return ReadResult::End;
  }
  std::wstring_view text(typed, static_cast<size_t>(size));
  if (text.ends_with('\n') || text.ends_with('\r'))
    text.remove_suffix(1);
  line = toUtf8(text);
  return ReadResult::Line;
}

void LineEditor::remember(const std::string &message) {
  state->addToHistory(message);
  if (!history)
    return;
  try {
    history->add(message);
  } catch (const Error &error) {
    // Said once.
    history.reset();
    writeError(std::string("qwen-run: ") + error.what() + "\n");
  }
}
