//===- HttpServer.h - Connections, on one thread ----------------*- C++ -*-===//
//
// HTTP/1.1 by Boost.Beast. One thread serves all connections as coroutines; two
// others parse requests, render templates and tokenize.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_HTTPSERVER_H
#define QWEN_RUNTIME_SERVER_HTTPSERVER_H

#include "server/Service.h"

#include <chrono>
#include <memory>

namespace qwen::server {

struct HttpOptions {
  /// HOST:PORT with a numeric HOST or localhost, or unix:PATH.
  std::string listen = "127.0.0.1:8080";
  /// Keys of which a request must have one; empty: none is needed.
  std::vector<std::string> keys;
  /// Origins of pages whose requests browsers may send; "*" is any.
  std::vector<std::string> origins;
  /// PEM files of a certificate chain and of its key; empty: no TLS.
  std::string certificate, privateKey;
  /// Allow an address that other machines can reach without a key.
  bool allowOpen = false;
  uint64_t bodyBytes = uint64_t{32} << 20;
  uint32_t headerBytes = 16384;
  /// Maximum number of connections. One more closes the oldest that has no
  /// whole request.
  size_t connections = 1024;
  /// Time for a request to arrive, for a client to read, between comments in
  /// streams, and for requests that run when the server shuts down.
  std::chrono::milliseconds idle{60000}, write{30000}, keepAlive{5000},
      drain{30000};
  /// Receives one line for each request.
  std::function<void(const std::string &)> log;
};

/// Opens the address when it is made, so that errors come before a model is
/// loaded. Must outlive the scheduler.
class HttpServer {
public:
  /// Throws Error.
  explicit HttpServer(const HttpOptions &options);
  ~HttpServer();

  /// "http://127.0.0.1:8080", or https with TLS, with the port that the system
  /// chose for port 0.
  std::string address() const;

  /// Lets connections go on whose generations have changed. Called after each
  /// step of the scheduler, so that a step wakes this server's thread once.
  void wake();

  /// Serves until SIGTERM or SIGINT, and then until all requests have ended or
  /// `drain` has passed. A second signal ends it at once.
  void run(Service &service);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTPSERVER_H
