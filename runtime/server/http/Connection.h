//===- Connection.h - One connection of a client ----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_CONNECTION_H
#define QWEN_RUNTIME_SERVER_HTTP_CONNECTION_H

#include "server/ServerOptions.h"
#include "server/http/ByteStream.h"
#include "server/http/Message.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <mutex>

namespace qwen::server {

/// The timers of connections whose streams have changed since the last step.
struct Changes {
  std::mutex mutex;
  std::vector<std::shared_ptr<boost::asio::steady_timer>> timers;
};

/// What all connections share.
struct ConnectionShared {
  boost::asio::io_context &io;
  /// Parses requests, on other threads.
  boost::asio::io_context &workers;
  HttpHandler &handler;
  Changes &changes;
  const ServerOptions &options;
  /// A request must have one of these keys; empty: it needs none.
  const std::vector<std::string> &keys;
  const LogFn &log;
  /// The address of --listen that the connection came to.
  const std::string &listen;
  /// Whether the Host of a request must name this machine.
  bool checksHost;
  /// Null without TLS.
  TlsContext *tls;
};

/// Reads requests and writes answers, one after another. Only the thread of the
/// io_context uses it.
class Connection {
public:
  Connection(const ConnectionShared &shared, ByteStream::Socket socket);

  /// Ends when the client or the server closes the connection.
  boost::asio::awaitable<void> serve();

  /// Closes the connection if it waits for a request.
  void closeIdle();
  bool isOpen() { return stream.socket().is_open(); }
  /// Closes the connection if it is open and has no whole request. Returns
  /// whether it did.
  bool closeUnread();
  /// Cancels the request that runs.
  void cancel();
  /// Ends the connection as if its client had left.
  void abort();

private:
  using Parser =
      boost::beast::http::request_parser<boost::beast::http::string_body>;

  /// Reads a request. Returns false if there is none; the reason, if the client
  /// should know it, has been sent.
  boost::asio::awaitable<bool> read(Parser &parser);
  /// Drops the empty lines that some clients send behind a body. Returns false
  /// if the client sends nothing more, or too many of them.
  boost::asio::awaitable<bool> skipEmptyLines();
  /// Reads the body. All its bytes count, also the sizes and extensions of
  /// chunks, and trailers.
  boost::asio::awaitable<boost::system::error_code> readBody(Parser &parser);
  /// Reads what is left of a request that was refused. To close a socket with
  /// unread bytes resets the connection, and the client may lose the answer.
  boost::asio::awaitable<void> discardRest();
  boost::asio::awaitable<Reply> handle(HttpRequest request);
  /// Answers a request. Returns whether the connection stays open.
  boost::asio::awaitable<bool> answer(Parser &parser);
  boost::asio::awaitable<bool> send(Reply reply, bool keepOpen);
  /// Waits until it is known whether the request is refused.
  boost::asio::awaitable<bool> awaitStart();
  /// Both set `status` and `outcome`.
  boost::asio::awaitable<bool> sendWhole();
  boost::asio::awaitable<bool> sendEvents();
  /// Waits for the last part of an answer.
  boost::asio::awaitable<Reply> collect();
  boost::asio::awaitable<bool> streamEvents();
  /// Waits until the client is gone.
  boost::asio::awaitable<bool> watch();
  /// Waits until the answer changes. Returns false if `most` passes.
  boost::asio::awaitable<bool> waitForChange(std::chrono::milliseconds most);
  boost::asio::awaitable<bool> write(std::string_view text);
  std::optional<ApiError> refuse(const Parser &parser) const;
  void setHeaders(boost::beast::http::fields &fields,
                  const AnswerHeaders &more) const;
  /// Whether a browser asks which requests of another origin are allowed.
  bool isPreflight() const { return method == "OPTIONS" && !origin.empty(); }
  void logNotes(const std::vector<std::string> &notes) const;
  void log(const std::string &more = "") const;

  const ConnectionShared &shared;
  ByteStream stream;
  /// What has come and was not parsed. Its size bounds what is parsed as a
  /// whole, such as the line before a chunk and the trailers.
  boost::beast::flat_buffer buffer;
  /// Cancelled when the answer changes.
  std::shared_ptr<boost::asio::steady_timer> changed;
  /// It waits for a request; it has a whole one.
  bool isIdle = true, isAnswering = false;
  /// The last request was not read as a whole.
  bool isRefused = false;

  // The present request.
  std::shared_ptr<ReplyStream> running;
  /// The framing of the protocol of `path`; set when the header has come.
  const Framing *framing = nullptr;
  std::string requestId, method, path, query;
  /// The number of the client's API key (findKey).
  std::optional<size_t> key;
  /// The Origin, if it is allowed.
  std::string origin;
  /// The headers that a preflight asks for.
  std::string askedHeaders;
  unsigned status = 200;
  /// What the log says of an answer that did not end well.
  std::string outcome;
  unsigned version = 11;
  bool keepOpen = false;
  bool isHead = false;
  std::chrono::steady_clock::time_point start;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_CONNECTION_H
