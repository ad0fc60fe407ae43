//===- HttpServer.h - Connections, on one thread ----------------*- C++ -*-===//
//
// HTTP/1.1 by Boost.Beast. One thread serves all connections as coroutines; two
// others parse requests, render templates and tokenize.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_HTTPSERVER_H
#define QWEN_RUNTIME_SERVER_HTTP_HTTPSERVER_H

#include "server/ServerOptions.h"
#include "server/http/Message.h"

namespace qwen::server {

/// Opens the addresses and starts its threads when it is made, so that errors
/// come before a model is loaded. Must outlive the scheduler, which calls
/// `wake`. The end of a program has the opposite order of its parts: `run` ends
/// the connections, then the service ends its scheduler, then the model and
/// this server end.
class HttpServer {
public:
  /// A request must have one of `keys`; if there are none, it needs none.
  /// Throws Error.
  HttpServer(const ServerOptions &options, std::vector<std::string> keys,
             LogFn log);
  ~HttpServer();

  /// "http://127.0.0.1:8080", or https with TLS, with the port that the system
  /// chose for port 0. Several are joined by ", ".
  std::string address() const;

  /// Lets connections go on whose streams have changed. Called after each step
  /// of the scheduler, so that a step wakes this server's thread once, and
  /// after each grammar. All threads may call it.
  void wake();

  /// Serves until SIGTERM or SIGINT, and then until all requests have ended or
  /// `drain` has passed. A second signal ends all connections, and a third one
  /// the program. When it returns, no connection is left that would call
  /// `handler` or hold a stream of it. `onReady` is called when all that
  /// requests need is there. Throws Error if it cannot be had.
  void run(HttpHandler &handler, const std::function<void()> &onReady);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_HTTPSERVER_H
