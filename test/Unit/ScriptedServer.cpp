//===- ScriptedServer.cpp - A server whose answers are written -----------===//
//
//   scripted-server MODEL TEMPLATE [KEY=VALUE...]
//
// Answers requests as `qwen-run serve` does, with the chat template of a file,
// except that the tokens of an answer are those of the last script:
//
//   POST /script {"pieces": ["Hi", "<tool_call>"], "ends": true}
//
// Each piece is encoded by itself. Behind the last one the answer ends, or,
// with "ends": false, goes on with it. The keys are tool-format,
// ignore-unknown, api-key and max-body. Errors of paths below /script have a
// form of their own. test/Integration/tools.py runs it.
//
//===----------------------------------------------------------------------===//

#include "model/MakeEngine.h"
#include "server/Service.h"
#include "server/http/HttpServer.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>

using namespace qwen;
using namespace qwen::server;

namespace {

constexpr std::string_view kScript = "/script";

/// The form of errors of a protocol that is not OpenAI's.
const Framing kScriptFraming = {
    .error =
        [](const ApiError &error) {
          return errorReply(error, dump({{"script", error.what()}}));
        },
    .errorEvent = [](const ApiError &) { return std::string(); },
    .event = [](std::string_view, std::string_view) { return std::string(); },
    .keepAlive = "",
    .errorSchema = nullptr,
};

/// The tokens of answers.
struct Script {
  std::vector<int32_t> ids;
  bool ends = true;
};

class ScriptedService final : public HttpHandler {
public:
  explicit ScriptedService(Service &served, int32_t endToken)
      : service(served), end(endToken) {}

  Reply handle(HttpRequest request, const WakeFn &wake) override;
  bool isOpen(std::string_view path) const override {
    return path == kScript || service.isOpen(path);
  }
  const Framing &framingOf(std::string_view path) const override {
    return path.starts_with(kScript) ? kScriptFraming : service.framingOf(path);
  }
  std::string methods() const override { return service.methods(); }
  void drain() override { service.drain(); }
  bool isDraining() const override { return service.isDraining(); }

private:
  void read(const std::string &body);
  /// The tokens of a choice, one after another.
  std::optional<int32_t> next(const Script &from, size_t at) const;

  Service &service;
  const int32_t end;
  std::mutex mutex;
  Script script;
};

} // namespace

void ScriptedService::read(const std::string &body) {
  const auto object = nlohmann::json::parse(body);
  Script next{.ids = {}, .ends = object.value("ends", true)};
  for (const std::string piece : object.at("pieces"))
    for (const int32_t id : service.tokenizer.encode(piece))
      next.ids.push_back(id);
  const std::lock_guard lock(mutex);
  script = std::move(next);
}

std::optional<int32_t> ScriptedService::next(const Script &from,
                                             size_t at) const {
  if (at < from.ids.size())
    return from.ids[at];
  return from.ends ? end : from.ids.back();
}

Reply ScriptedService::handle(HttpRequest request, const WakeFn &wake) {
  if (request.path == kScript) {
    read(request.body);
    return {.body = "{}"};
  }
  if (request.method != "POST")
    return service.handle(std::move(request), wake);
  const Framing &framing = framingOf(request.path);
  try {
    const RouteMatch match = routeTable().find(request.method, request.path);
    Parsed parsed = match.route.parse(service, request);
    if (auto *const reply = std::get_if<Reply>(&parsed))
      return std::move(*reply);
    auto exchange = std::get<Exchange>(std::move(parsed));
    const std::lock_guard lock(mutex);
    exchange.task.onDraw =
        [this, from = script, counts = std::vector<size_t>(kMostAnswers)](
            size_t choice) mutable { return next(from, counts[choice]++); };
    return service.start(std::move(exchange), framing, request, wake);
  } catch (const Error &error) {
    return framing.error(asApiError(error));
  }
}

static std::string readText(const char *path) {
  std::ifstream file(path);
  if (!file)
    throw Error(std::string(path) + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

static int serve(std::span<const char *const> arguments) {
  ServerOptions options;
  std::vector<std::string> keys;
  options.listen = {"127.0.0.1:0"};
  for (const std::string_view each : arguments.subspan(3)) {
    const std::string value(each.substr(each.find('=') + 1));
    if (each.starts_with("tool-format="))
      options.toolFormat = value;
    else if (each.starts_with("api-key="))
      keys.push_back(value);
    else if (each.starts_with("max-body="))
      options.bodyBytes = std::stoll(value);
    else if (each == "ignore-unknown=1")
      options.ignoreUnknown = true;
    else
      throw Error(std::string(each) + " is no option of a scripted server");
  }
  HttpServer http(options, keys, [](const std::string &) {});
  Model model(arguments[1], readText(arguments[2]));
  SchedulerOptions scheduling;
  scheduling.onStep = [&http] { http.wake(); };
  const std::unique_ptr<Engine> engine =
      makeEngine(model, std::make_shared<ThreadPool>(1),
                 std::make_shared<MemoryBudget>(), {});
  Service service(model, *engine, scheduling, options, keys);
  ScriptedService scripted(service, model.chatFormat().endTokens({}).front());
  http.run(scripted, [&] {
    std::cerr << "scripted answers on " << http.address() << '\n';
  });
  return 0;
}

int main(int count, char **arguments) {
  try {
    if (count < 3)
      throw Error("scripted-server MODEL TEMPLATE [KEY=VALUE...]");
    return serve({arguments, static_cast<size_t>(count)});
  } catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
