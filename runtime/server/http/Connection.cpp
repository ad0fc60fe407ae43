//===- Connection.cpp - One connection of a client ------------------------===//

#include "server/http/Connection.h"

#include "server/http/Access.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <poll.h>
#include <sstream>

namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace asio::experimental::awaitable_operators;
using namespace qwen;
using namespace qwen::server;

/// Time for a request to arrive, for a client to read, and for the end of a
/// connection.
static constexpr std::chrono::milliseconds kIdleTime(60000), kWriteTime(30000),
    kEndTime(2000);

static constexpr uint32_t kHeaderBytes = 16384;
/// Maximum size of the buffer, and of what is read of a refused request.
static constexpr size_t kBufferBytes = 65536,
                        kDiscardedBytes = size_t{256} << 20;

Connection::Connection(const ConnectionShared &sharedByAll,
                       ByteStream::Socket socket)
    : shared(sharedByAll), stream(std::move(socket), shared.tls),
      buffer(kBufferBytes),
      changed(std::make_shared<asio::steady_timer>(shared.io)) {}

void Connection::closeIdle() {
  if (isIdle)
    stream.close();
}

bool Connection::closeUnread() {
  if (isAnswering || !isOpen())
    return false;
  stream.close();
  return true;
}

void Connection::cancel() {
  if (running)
    running->cancel();
}

void Connection::abort() {
  cancel();
  stream.close();
}

void Connection::log(const std::string &more) const {
  if (!shared.log)
    return;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  shared.log(requestId + " " + method + " " + printable(path) + " " +
             std::to_string(status) + " " + std::to_string(time.count()) +
             "ms" + more);
}

void Connection::logNotes(const std::vector<std::string> &notes) const {
  for (const std::string &note : notes)
    if (shared.log)
      shared.log(requestId + " " + note);
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

asio::awaitable<bool> Connection::skipEmptyLines() {
  constexpr size_t kBytes = 4096;
  constexpr std::string_view kEmptyLine = "\r\n";
  for (size_t skipped = 0; skipped < kHeaderBytes;) {
    const std::string_view text(static_cast<const char *>(buffer.data().data()),
                                buffer.size());
    if (text.starts_with(kEmptyLine)) {
      buffer.consume(kEmptyLine.size());
      skipped += kEmptyLine.size();
      continue;
    }
    if (!kEmptyLine.starts_with(text))
      co_return true;
    const auto [error, size] =
        co_await stream.async_read_some(buffer.prepare(kBytes), kWait);
    if (error)
      co_return false;
    buffer.commit(size);
  }
  co_return false;
}

asio::awaitable<boost::system::error_code>
Connection::readBody(Parser &parser) {
  // A whole body may have some framing besides. The parser is not eager: it
  // returns behind each part, with at most a buffer more.
  auto left = static_cast<size_t>(shared.options.bodyBytes) + kHeaderBytes;
  parser.eager(false);
  stream.expiresAfter(kIdleTime);
  while (!parser.is_done()) {
    const auto [error, size] =
        co_await http::async_read_some(stream, buffer, parser, kWait);
    if (error)
      co_return error;
    if (size > left)
      co_return http::make_error_code(http::error::body_limit);
    left -= size;
  }
  co_return boost::system::error_code();
}

/// Whether a body comes as it is, or in chunks. Others cannot be told from a
/// next request.
static bool isPlainTransfer(const http::fields &fields) {
  const auto [first, last] = fields.equal_range(http::field::transfer_encoding);
  return first == last ||
         (std::next(first) == last && equalsNoCase(first->value(), "chunked"));
}

std::optional<ApiError> Connection::refuse(const Parser &parser) const {
  const http::fields &fields = parser.get();
  if (shared.checksHost) {
    std::vector<std::string_view> hosts;
    for (const auto &[first, last] = fields.equal_range(http::field::host);
         const auto &field : std::ranges::subrange(first, last))
      hosts.emplace_back(field.value());
    // Only before HTTP/1.1 may a request be without. Browsers send one.
    if (version >= 11 && hosts.size() != 1)
      return ApiError(400, "the request has " + std::to_string(hosts.size()) +
                               " headers Host, and HTTP/1.1 needs one");
    const Target target = parseTarget(parser.get().target());
    if (!target.authority.empty())
      hosts.emplace_back(target.authority);
    for (std::string_view host : hosts)
      if (!isLocalHost(host, shared.listen))
        return ApiError(403, "the host " + quote(host) +
                                 " is not this machine; the server listens "
                                 "on " +
                                 shared.listen);
  }
  if (!shared.keys.empty() && !shared.handler.isOpen(path) && !isPreflight() &&
      !key)
    return ApiError(401, "an API key is needed: Authorization: Bearer KEY", "",
                    ErrorCode::InvalidKey);
  if (!isPlainTransfer(fields))
    return ApiError(501, "the transfer encoding " +
                             quote(fields[http::field::transfer_encoding]) +
                             " is not supported; send the body without "
                             "compression, as a whole or \"chunked\"");
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

asio::awaitable<bool> Connection::read(Parser &parser) {
  isIdle = true;
  isAnswering = false;
  parser.header_limit(kHeaderBytes);
  parser.body_limit(static_cast<uint64_t>(shared.options.bodyBytes));
  stream.expiresAfter(kIdleTime);
  if (!co_await skipEmptyLines())
    co_return false;
  auto [error, size] =
      co_await http::async_read_header(stream, buffer, parser, kWait);
  isIdle = false;
  start = std::chrono::steady_clock::now();
  const auto &request = parser.get();
  method = request.method_string();
  Target target = parseTarget(request.target());
  path = std::move(target.path);
  query = std::move(target.query);
  framing = &shared.handler.framingOf(path);
  version = request.version();
  isHead = request.method() == http::verb::head;
  keepOpen = false;
  requestId = idOf(request);
  origin = request[http::field::origin];
  if (!isAllowedOrigin(origin, shared.options.origins))
    origin.clear();
  key = findKey(request[http::field::authorization], request["x-api-key"],
                shared.keys);
  askedHeaders = tokensOf(request[http::field::access_control_request_headers]);
  std::optional<ApiError> refused;
  if (!error) {
    refused = refuse(parser);
    if (!refused && version >= 11 &&
        equalsNoCase(request[http::field::expect], "100-continue"))
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n"))
        co_return false;
    if (!refused)
      error = co_await readBody(parser);
  }
  if (error == http::error::header_limit)
    refused = ApiError(431, "the header has more than " +
                                std::to_string(kHeaderBytes) + " bytes");
  else if (error == http::error::buffer_overflow)
    refused = ApiError(413, "the line before a chunk, or the trailers, have "
                            "more than " +
                                std::to_string(kBufferBytes) + " bytes");
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
    co_await send(framing->error(*refused), false);
    isRefused = true;
  }
  isAnswering = true;
  keepOpen = request.keep_alive() && !shared.handler.isDraining();
  co_return !error && !refused;
}

asio::awaitable<Reply> Connection::handle(HttpRequest request) {
  const auto wake = [timer = changed, &changes = shared.changes] {
    try {
      const std::lock_guard lock(changes.mutex);
      changes.timers.push_back(timer);
    } catch (const std::bad_alloc &) {
      // The connection looks again after the time of --keep-alive.
      return;
    }
  };
  co_return co_await asio::co_spawn(
      shared.workers,
      [&]() -> asio::awaitable<Reply> {
        co_return shared.handler.handle(request, wake);
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
  stream.expiresAfter(kWriteTime);
  const auto [error, size] = co_await asio::async_write(
      stream, asio::buffer(text.data(), text.size()), kWait);
  stream.expiresNever();
  co_return !error;
}

void Connection::setHeaders(http::fields &fields,
                            const AnswerHeaders &more) const {
  fields.set(nameOf(AnswerHeader::Server), "qwen-run");
  fields.set(nameOf(AnswerHeader::Date), httpDate());
  fields.set(nameOf(AnswerHeader::RequestId), requestId);
  for (const auto &[name, value] : more)
    fields.set(nameOf(name), value);
  if (origin.empty())
    return;
  fields.set(http::field::access_control_allow_origin, origin);
  fields.set(http::field::access_control_expose_headers, exposedHeaders());
  fields.insert(http::field::vary, "Origin");
  if (!isPreflight())
    return;
  fields.set(http::field::access_control_allow_methods,
             shared.handler.methods());
  if (!askedHeaders.empty())
    fields.set(http::field::access_control_allow_headers, askedHeaders);
  fields.set(http::field::access_control_max_age, "600");
  fields.set(http::field::vary, "Origin, Access-Control-Request-Headers");
}

/// The status line and the fields, with the empty line after them. Writing the
/// text costs a part of the templates of Beast's own operations.
static std::string textOf(const http::response_header<> &head) {
  std::ostringstream text;
  text << head;
  return text.str();
}

asio::awaitable<bool> Connection::send(Reply reply, bool keep) {
  http::response<http::empty_body> response(
      static_cast<http::status>(reply.status), version);
  setHeaders(response, reply.headers);
  if (!reply.body.empty())
    response.set(http::field::content_type, reply.contentType);
  response.keep_alive(keep);
  // The length of a 304 would be the length of what the client has.
  if (response.result() != http::status::not_modified)
    response.content_length(reply.body.size());
  std::string text = textOf(response);
  if (!isHead)
    text += reply.body;
  co_return co_await write(text) && keep;
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

namespace {
/// Closes the stream of a coroutine that ends before it returns: by an
/// exception, or destroyed by asio because memory for its next operation lacks.
/// Else the coroutine that it waits together with would go on alone.
class CloseUnlessDone {
public:
  explicit CloseUnlessDone(ByteStream &ofConnection) : stream(ofConnection) {}
  ~CloseUnlessDone() {
    if (!isDone)
      stream.close();
  }
  CloseUnlessDone(const CloseUnlessDone &) = delete;
  CloseUnlessDone &operator=(const CloseUnlessDone &) = delete;

  /// Passes on what the coroutine returns.
  template <typename Result> Result done(Result result) {
    isDone = true;
    return result;
  }

private:
  ByteStream &stream;
  bool isDone = false;
};
} // namespace

asio::awaitable<bool> Connection::watch() {
  CloseUnlessDone end(stream);
  auto &socket = stream.socket();
  asio::steady_timer pause(shared.io);
  do {
    const auto [error] =
        co_await socket.async_wait(asio::socket_base::wait_read, kWait);
    if (error || hasEnded(socket.native_handle()))
      co_return end.done(false);
    // The client has sent its next request, and its end may follow.
    pause.expires_after(std::chrono::milliseconds(50));
    co_await pause.async_wait(kWait);
  } while (true);
}

asio::awaitable<bool> Connection::awaitStart() {
  CloseUnlessDone end(stream);
  while (!running->hasStarted())
    co_await waitForChange(milliseconds(shared.options.keepAlive));
  co_return end.done(true);
}

asio::awaitable<Reply> Connection::collect() {
  CloseUnlessDone end(stream);
  while (true) {
    if (std::optional<Reply> reply = takeWhole(*running, *framing))
      co_return end.done(*std::move(reply));
    co_await waitForChange(milliseconds(shared.options.keepAlive));
  }
}

asio::awaitable<bool> Connection::sendWhole() {
  auto done = co_await (collect() || watch());
  if (done.index() == 1) {
    // nginx's number for a client that is gone.
    status = 499;
    outcome = " disconnected";
    co_return false;
  }
  Reply reply = std::get<0>(std::move(done));
  if (const std::optional<ApiError> error = running->error())
    outcome = " failed: " + std::string(error->what());
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

asio::awaitable<bool> Connection::streamEvents() {
  CloseUnlessDone end(stream);
  while (true) {
    auto [text, isLast] = running->take();
    if (isLast) {
      text = chunked(text, version);
      if (version >= 11)
        text += "0\r\n\r\n";
      co_return end.done(co_await write(text));
    }
    if (text.empty()) {
      if (co_await waitForChange(milliseconds(shared.options.keepAlive)))
        continue;
      text = framing->keepAlive;
    }
    if (!co_await write(chunked(text, version)))
      co_return end.done(false);
  }
}

asio::awaitable<bool> Connection::sendEvents() {
  http::response<http::empty_body> response(http::status::ok, version);
  setHeaders(response, {{AnswerHeader::AccelBuffering, "no"}});
  response.set(http::field::content_type, "text/event-stream; charset=utf-8");
  response.set(http::field::cache_control, "no-cache");
  keepOpen &= version >= 11;
  response.keep_alive(keepOpen);
  response.chunked(version >= 11);
  const std::string head = textOf(response);
  bool isSent = false;
  if (co_await write(head)) {
    const auto done = co_await (streamEvents() || watch());
    isSent = done.index() == 0 && std::get<0>(done);
  }
  if (const std::optional<ApiError> failure = running->error())
    outcome = " failed: " + std::string(failure->what());
  else if (!isSent)
    outcome = " disconnected";
  co_return isSent &&keepOpen;
}

asio::awaitable<bool> Connection::answer(Parser &parser) {
  auto request = parser.release();
  status = 200;
  outcome = "";
  if (isPreflight()) {
    log();
    co_return co_await send({}, keepOpen);
  }
  stream.expiresNever();
  Reply reply = co_await handle(
      {.method = method,
       .path = path,
       .contentType = std::string(request[http::field::content_type]),
       .contentEncoding = std::string(request[http::field::content_encoding]),
       .body = std::move(request.body()),
       .query = query,
       .acceptEncoding = std::string(request[http::field::accept_encoding]),
       .ifNoneMatch = std::string(request[http::field::if_none_match]),
       .anthropicVersion = std::string(request["anthropic-version"]),
       .key = key});
  logNotes(reply.notes);
  running = reply.stream;
  while (running) {
    if (!running->hasStarted())
      co_await (awaitStart() || watch());
    const std::unique_ptr<Reply> later = running->instead();
    if (!later)
      break;
    reply = std::move(*later);
    logNotes(reply.notes);
    running = reply.stream;
  }
  if (!running) {
    status = reply.status;
    log();
    co_return co_await send(std::move(reply), keepOpen);
  }
  bool isOpen = false;
  if (running->isEvents())
    isOpen = co_await sendEvents();
  else
    isOpen = co_await sendWhole();
  running->cancel();
  log(running->summary() + outcome);
  running = nullptr;
  co_return isOpen;
}

asio::awaitable<void> Connection::discardRest() {
  const auto last = std::chrono::steady_clock::now() + kIdleTime;
  size_t left = kDiscardedBytes, size = 1;
  while (size > 0 && left >= size && std::chrono::steady_clock::now() < last) {
    left -= size;
    stream.expiresAfter(kEndTime);
    size = co_await stream.discard();
  }
}

asio::awaitable<void> Connection::serve() {
  stream.expiresAfter(kIdleTime);
  bool isOpen = co_await stream.begin();
  while (isOpen) {
    Parser parser;
    isOpen = co_await read(parser) && co_await answer(parser);
  }
  isIdle = true;
  isAnswering = false;
  stream.expiresAfter(kEndTime);
  co_await stream.end();
  if (isRefused)
    co_await discardRest();
}
