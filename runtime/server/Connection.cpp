//===- Connection.cpp - One connection of a client ------------------------===//

#include "server/Connection.h"

#include "qwen/ABI/Text.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <poll.h>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using namespace asio::experimental::awaitable_operators;
using namespace qwen;
using namespace qwen::server;

/// Time for the end of a connection.
static constexpr std::chrono::milliseconds kEndTime(2000);

Connection::Connection(const ConnectionShared &sharedByAll,
                       ByteStream::Socket socket)
    : shared(sharedByAll), stream(std::move(socket), shared.tls),
      changed(std::make_shared<asio::steady_timer>(shared.io)) {}

void Connection::closeIdle() {
  if (isIdle)
    stream.close();
}

bool Connection::closeUnread() {
  if (!isAnswering)
    stream.close();
  return !isAnswering;
}

void Connection::cancel() {
  if (generation)
    generation->cancel();
}

void Connection::log(const std::string &more) const {
  if (!shared.options.log)
    return;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  shared.options.log(requestId + " " + method + " " + printable(path) + " " +
                     std::to_string(status) + " " +
                     std::to_string(time.count()) + "ms" + more);
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

/// Compares without a hint of the place of the first difference.
static bool equalsKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

static bool hasKey(const http::fields &fields,
                   const std::vector<std::string> &keys) {
  std::string_view given = fields[http::field::authorization];
  constexpr std::string_view kBearer = "Bearer ";
  if (given.starts_with(kBearer))
    given.remove_prefix(kBearer.size());
  else
    given = fields["x-api-key"];
  bool found = false;
  for (const std::string &key : keys)
    found |= equalsKey(given, key);
  return found;
}

/// Whether `host`, with or without a port, names this machine. A page that a
/// browser got elsewhere has another host, even if its name leads here.
static bool isLocalHost(std::string_view host, std::string_view listen) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos &&
      (bracket == std::string_view::npos || colon > bracket))
    host = host.substr(0, colon);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]" ||
         host == listen.substr(0, listen.rfind(':'));
}

std::optional<ApiError> Connection::refuse(const Parser &parser) const {
  const http::fields &fields = parser.get();
  const std::string_view host = fields[http::field::host];
  if (shared.checksHost && !isLocalHost(host, shared.options.listen))
    return ApiError(403, "the host " + quote(host) +
                             " is not this machine; the server listens on " +
                             shared.options.listen);
  const bool isOpen =
      std::ranges::any_of(routeTable(), [&](const Route &route) {
        return route.isOpen && path == route.path;
      });
  if (!shared.options.keys.empty() && !isOpen && !isPreflight() &&
      !hasKey(fields, shared.options.keys))
    return ApiError(401, "an API key is needed: Authorization: Bearer KEY", "",
                    "invalid_api_key");
  return std::nullopt;
}

/// The client's id of a request if it is safe in a header and a log.
static std::string idOf(const http::fields &fields) {
  const std::string_view given = fields["X-Request-Id"];
  const bool good = !given.empty() && given.size() <= 128 &&
                    std::ranges::all_of(given, [](char c) {
                      return c > ' ' && c < '\x7f' && c != '"';
                    });
  return good ? std::string(given) : randomId("req-");
}

/// The Origin of a request if it is one of `origins`, else nothing.
static std::string allowedOrigin(const http::fields &fields,
                                 const std::vector<std::string> &origins) {
  const std::string_view given = fields[http::field::origin];
  const bool isAllowed =
      std::ranges::any_of(origins, [&](const std::string &each) {
        return each == "*" || each == given;
      });
  return isAllowed ? std::string(given) : "";
}

asio::awaitable<bool> Connection::read(Parser &parser) {
  isIdle = true;
  isAnswering = false;
  parser.header_limit(shared.options.headerBytes);
  parser.body_limit(shared.options.bodyBytes);
  stream.expiresAfter(shared.options.idle);
  auto [error, size] =
      co_await http::async_read_header(stream, buffer, parser, kWait);
  isIdle = false;
  start = std::chrono::steady_clock::now();
  const auto &request = parser.get();
  method = request.method_string();
  path = std::string(request.target().substr(0, request.target().find('?')));
  version = request.version();
  isHead = request.method() == http::verb::head;
  keepOpen = false;
  requestId = idOf(request);
  origin = allowedOrigin(request, shared.options.origins);
  std::optional<ApiError> refused;
  if (!error) {
    refused = refuse(parser);
    if (!refused &&
        beast::iequals(request[http::field::expect], "100-continue"))
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n"))
        co_return false;
    if (!refused) {
      stream.expiresAfter(shared.options.idle);
      std::tie(error, size) =
          co_await http::async_read(stream, buffer, parser, kWait);
    }
  }
  if (error == http::error::header_limit)
    refused = ApiError(431, "the header has more than " +
                                std::to_string(shared.options.headerBytes) +
                                " bytes");
  else if (error == http::error::body_limit)
    refused =
        ApiError(413, "the body has more than " +
                          std::to_string(shared.options.bodyBytes) + " bytes");
  else if (error && error != http::error::end_of_stream &&
           error != http::error::partial_message &&
           error.category() ==
               http::make_error_code(http::error::bad_method).category())
    refused = ApiError(400, "the request is no HTTP: " + error.message());
  if (refused) {
    status = refused->status();
    log();
    co_await send(errorReply(*refused), false);
  }
  isAnswering = true;
  keepOpen = request.keep_alive() && !shared.service.isDraining();
  co_return !error && !refused;
}

asio::awaitable<Reply> Connection::handle(HttpRequest request) {
  const auto wake = [timer = changed, &changes = shared.changes] {
    const std::lock_guard lock(changes.mutex);
    changes.timers.push_back(timer);
  };
  co_return co_await asio::co_spawn(
      shared.workers,
      [&]() -> asio::awaitable<Reply> {
        co_return shared.service.handle(request, wake);
      },
      asio::use_awaitable);
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

asio::awaitable<bool> Connection::write(std::string_view text) {
  text.remove_prefix(stream.writeNow(text));
  if (text.empty())
    co_return true;
  stream.expiresAfter(shared.options.write);
  const auto [error, size] = co_await asio::async_write(
      stream, asio::buffer(text.data(), text.size()), kWait);
  stream.expiresNever();
  co_return !error;
}

void Connection::setHeaders(http::fields &fields) const {
  fields.set(http::field::server, "qwen-run");
  fields.set("X-Request-Id", requestId);
  if (origin.empty())
    return;
  fields.set(http::field::access_control_allow_origin, origin);
  fields.set(http::field::access_control_expose_headers, "X-Request-Id");
  fields.set(http::field::vary, "Origin");
}

asio::awaitable<bool> Connection::send(Reply reply, bool keep) {
  http::response<http::string_body> response(
      static_cast<http::status>(reply.status), version);
  setHeaders(response);
  response.set(http::field::content_type, reply.contentType);
  for (const auto &[name, value] : reply.headers)
    response.set(name, value);
  response.keep_alive(keep);
  response.content_length(reply.body.size());
  if (!isHead)
    response.body() = std::move(reply.body);
  stream.expiresAfter(shared.options.write);
  const auto [error, size] =
      co_await http::async_write(stream, response, kWait);
  stream.expiresNever();
  co_return !error && keep;
}

asio::awaitable<bool>
Connection::waitForChange(std::chrono::milliseconds most) {
  changed->expires_after(most);
  const auto [error] = co_await changed->async_wait(kWait);
  co_return error.failed();
}

/// Whether the other end of a socket sends no more.
static bool hasEnded(int socket) {
  pollfd descriptor{socket, POLLIN | POLLRDHUP, 0};
  poll(&descriptor, 1, 0);
  return (descriptor.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

asio::awaitable<bool> Connection::watch() {
  auto &socket = stream.socket();
  asio::steady_timer pause(shared.io);
  do {
    const auto [error] =
        co_await socket.async_wait(asio::socket_base::wait_read, kWait);
    if (error || hasEnded(socket.native_handle()))
      co_return false;
    // The client has sent its next request, and its end may follow.
    pause.expires_after(std::chrono::milliseconds(50));
    co_await pause.async_wait(kWait);
  } while (true);
}

asio::awaitable<bool> Connection::collect(AnswerWriter &writer) {
  while (true) {
    const bool isDone = generation->isDone();
    writer.add(generation->take());
    if (isDone)
      co_return true;
    co_await waitForChange(shared.options.keepAlive);
  }
}

/// What the log says of a generation.
static std::string summaryOf(const Generation &generation) {
  const Usage usage = generation.usage();
  return " prompt=" + std::to_string(usage.prompt) +
         " cached=" + std::to_string(usage.cached) +
         " drawn=" + std::to_string(usage.drawn);
}

asio::awaitable<bool> Connection::sendWhole() {
  AnswerWriter writer(*generation, shared.service.textTokenizer(),
                      shared.service.model());
  const auto done = co_await (collect(writer) || watch());
  if (done.index() == 1) {
    // nginx's number for a client that is gone.
    status = 499;
    outcome = " disconnected";
    co_return false;
  }
  Reply reply;
  if (const std::optional<ApiError> error = generation->error()) {
    reply = errorReply(*error);
    outcome = " failed: " + std::string(error->what());
  } else {
    reply.body = writer.whole();
  }
  status = reply.status;
  co_return co_await send(std::move(reply), keepOpen);
}

/// A chunk of a body, or the text itself for a client without chunks.
static std::string chunked(const std::string &text, unsigned version) {
  if (version < 11)
    return text;
  char size[20];
  snprintf(size, sizeof(size), "%zx\r\n", text.size());
  return size + text + "\r\n";
}

asio::awaitable<bool> Connection::streamEvents(AnswerWriter &writer) {
  while (true) {
    const bool isDone = generation->isDone();
    std::string text = writer.events(generation->take());
    if (isDone) {
      text += writer.lastEvents();
      text = chunked(text, version);
      if (version >= 11)
        text += "0\r\n\r\n";
      co_return co_await write(text);
    }
    if (text.empty()) {
      if (co_await waitForChange(shared.options.keepAlive))
        continue;
      text = ": keep-alive\n\n";
    }
    if (!co_await write(chunked(text, version)))
      co_return false;
  }
}

asio::awaitable<bool> Connection::sendStream() {
  http::response<http::empty_body> response(http::status::ok, version);
  setHeaders(response);
  response.set(http::field::content_type, "text/event-stream; charset=utf-8");
  response.set(http::field::cache_control, "no-cache");
  response.set("X-Accel-Buffering", "no");
  keepOpen &= version >= 11;
  response.keep_alive(keepOpen);
  response.chunked(version >= 11);
  http::response_serializer<http::empty_body> serializer(response);
  stream.expiresAfter(shared.options.write);
  const auto [error, size] =
      co_await http::async_write_header(stream, serializer, kWait);
  stream.expiresNever();
  bool isSent = false;
  if (!error) {
    AnswerWriter writer(*generation, shared.service.textTokenizer(),
                        shared.service.model());
    const auto done = co_await (streamEvents(writer) || watch());
    isSent = done.index() == 0 && std::get<0>(done);
  }
  if (const std::optional<ApiError> failure = generation->error())
    outcome = " failed: " + std::string(failure->what());
  else if (!isSent)
    outcome = " disconnected";
  co_return isSent &&keepOpen;
}

static Reply preflightReply() {
  return {.body = "",
          .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers",
                       "Authorization, Content-Type, X-Api-Key, X-Request-Id"},
                      {"Access-Control-Max-Age", "600"}}};
}

asio::awaitable<bool> Connection::answer(Parser &parser) {
  auto request = parser.release();
  status = 200;
  outcome = "";
  if (isPreflight()) {
    log();
    co_return co_await send(preflightReply(), keepOpen);
  }
  stream.expiresNever();
  Reply reply = co_await handle(
      {.method = method,
       .path = path,
       .contentType = std::string(request[http::field::content_type]),
       .body = std::move(request.body())});
  if (!reply.generation) {
    status = reply.status;
    log();
    co_return co_await send(std::move(reply), keepOpen);
  }
  generation = reply.generation;
  bool isOpen = false;
  if (generation->task().parameters.stream)
    isOpen = co_await sendStream();
  else
    isOpen = co_await sendWhole();
  generation->cancel();
  log(summaryOf(*generation) + outcome);
  generation = nullptr;
  co_return isOpen;
}

asio::awaitable<void> Connection::serve() {
  stream.expiresAfter(shared.options.idle);
  bool isOpen = co_await stream.begin();
  while (isOpen) {
    Parser parser;
    isOpen = co_await read(parser) && co_await answer(parser);
  }
  stream.expiresAfter(kEndTime);
  co_await stream.end();
}
