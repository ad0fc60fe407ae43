//===- Batch.cpp - Answers the lines of a file ----------------------------===//

#include "server/batch/Batch.h"
#include "Commands.h"
#include "Output.h"
#include "PartialFile.h"
#include "ProgressBar.h"
#include "ServiceFlags.h"
#include "server/Service.h"

#include "qwen/Support/OutputTarget.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <unordered_map>

using namespace qwen;
using namespace qwen::run;

namespace {

struct BatchCommand : ServiceFlags {
  std::string input, output;
};

/// The lines of the input, and which of them have answers.
class BatchInput {
public:
  BatchInput(const std::string &path, size_t most) : reader(path, most) {
    noteInput(path);
  }

  /// Notes an answer of an earlier run. Throws Error for a second to a line.
  void addAnswer(const server::AnsweredLine &line);
  /// Reads all lines once. Throws Error if two have one id, or the answers are
  /// to other lines.
  void check(const std::string &answers);

  /// The next line without an answer. check() comes first.
  std::optional<server::BatchLine> next();

  uint64_t lines() const { return count; }
  uint64_t answered() const { return answers.size(); }
  uint64_t errors() const { return errorCount; }

private:
  /// The next line that is not empty.
  std::optional<FileLine> nextLine();
  /// A line, or why it is none.
  server::BatchLine parse(const FileLine &line) const;

  FileLines reader;
  uint64_t count = 0, errorCount = 0;
  /// The ids of lines with answers, as JSON.
  std::unordered_map<uint64_t, std::string> answers;
};

} // namespace

void BatchInput::addAnswer(const server::AnsweredLine &line) {
  if (!answers.emplace(line.number, server::dump(line.id)).second)
    throw Error("line " + std::to_string(line.number) + " has two answers");
  errorCount += line.isError ? 1 : 0;
}

std::optional<FileLine> BatchInput::nextLine() {
  while (std::optional<FileLine> line = reader.next())
    if (line->isTooLong ||
        line->text.find_first_not_of(" \t") != std::string::npos)
      return line;
  return std::nullopt;
}

server::BatchLine BatchInput::parse(const FileLine &line) const {
  if (line.isTooLong)
    return {.number = line.number,
            .error = "the line has more than " +
                     std::to_string(reader.mostBytes()) +
                     " bytes (--max-body)"};
  return server::parseBatchLine(line.text, line.number);
}

void BatchInput::check(const std::string &answerFile) {
  std::unordered_map<std::string, uint64_t> ids;
  uint64_t found = 0;
  while (const std::optional<FileLine> line = nextLine()) {
    ++count;
    const server::BatchLine parsed = parse(*line);
    const std::string id = server::dump(parsed.id);
    const ErrorText what = part::file(reader.path()) + " line " +
                           std::to_string(line->number) + ": ";
    if (!parsed.id.is_null()) {
      const auto [other, isNew] = ids.emplace(id, line->number);
      if (!isNew)
        throw Error(what + "the id " + part::found(quote(id)) +
                    " is that of line " + std::to_string(other->second) +
                    ", too; each line needs an id of its own");
    }
    const auto answer = answers.find(line->number);
    if (answer == answers.end())
      continue;
    ++found;
    if (answer->second != id)
      throw Error(what + "the id is " + part::found(quote(id)) + " when " +
                  answerFile + " has an answer to " +
                  part::needed(quote(answer->second)) +
                  "; remove that file to begin again");
  }
  if (found < answers.size())
    throw Error(part::file(answerFile) + " has answers to " +
                part::found(answers.size() - found) + " lines that " +
                reader.path() +
                " does not have; remove that file to begin again");
  reader.rewind();
}

std::optional<server::BatchLine> BatchInput::next() {
  while (const std::optional<FileLine> line = nextLine())
    if (!answers.contains(line->number))
      return parse(*line);
  return std::nullopt;
}

/// Answers the lines that have none yet. Returns how many of these answers are
/// errors.
static uint64_t answer(const BatchCommand &command, BatchInput &input,
                       PartialFile &output) {
  Model model = command.openModel();
  SchedulerOptions options = command.schedulerOptions();
  // Nobody waits for a first token.
  options.batcher.paced = false;
  const std::unique_ptr<Engine> engine = command.startEngine(model);
  server::Service service(model, *engine, options, command.server);
  ProgressBar bar(command.input);
  uint64_t done = input.answered(), errors = 0;
  // As many wait as run, so that a sequence that ends is followed at once.
  const auto running = static_cast<size_t>(command.engine.sequences);
  const size_t most = running + std::min(running, options.queue);
  server::answerLines(
      service, most, [&] { return input.next(); },
      [&](const std::string &line, bool isError) {
        output.append(line);
        errors += isError ? 1 : 0;
        bar.update(++done, input.lines());
      });
  finishCheck(model, *engine);
  return errors;
}

/// More than an answer has: Generation bounds its text and logprobs to 256 MiB.
static constexpr size_t kMostAnswerLine = size_t{2} << 30;

static void batch(const BatchCommand &command) {
  command.file.noteInput();
  BatchInput input(command.input,
                   static_cast<size_t>(command.server.bodyBytes));
  PartialFile output(command.output, kMostAnswerLine,
                     [&](const std::string &text) {
                       input.addAnswer(server::parseAnswerLine(text));
                     });
  input.check(output.name());
  if (input.answered())
    writeError("qwen-run: " + output.name() + " has " +
               std::to_string(input.answered()) + " of " +
               std::to_string(input.lines()) + " answers\n");
  uint64_t errors = input.errors();
  if (input.answered() < input.lines())
    errors += answer(command, input, output);
  output.commit();
  if (errors)
    writeError("qwen-run: " + std::to_string(errors) + " of " +
               std::to_string(input.lines()) + " answers are errors\n");
}

void qwen::run::addBatch(const Command &program) {
  const auto command = std::make_shared<BatchCommand>();
  const Command sub = program.addCommand(
      "batch", "Answer the requests of a file of JSON lines");
  addFile(sub, command->file);
  sub.addText("IN", command->input,
              "File with a request in each line: OpenAI's batch form, or "
              "{\"id\", \"prompt\" | \"messages\" | \"input\", ...}")
      .required();
  sub.addText("-o,--output", command->output,
              "File for the answers, as they come; FILE.partial until it "
              "is complete, with which a killed run goes on")
      .required()
      .type("FILE");
#define QWEN_SERVER_GROUP(Heading) sub.group(Heading);
#define QWEN_REQUEST_OPTION(Type, Field, Name, Default, Unit, Least, Most,     \
                            Help)                                              \
  addTableOption(sub, "--" Name, command->server.Field, Unit, Least, Most,     \
                 Help);
#include "server/ServerOptions.def"
  addRun(sub, *command,
         {EnginePart::Sequences, EnginePart::Snapshots, EnginePart::Answers});
  sub.onRun([command] { batch(*command); });
}
