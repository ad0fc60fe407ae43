//===- Clients.cpp - Clients of a server that take little of the CPU ------===//
//
//   bench-clients PORT
//
// Sends the requests of the standard input to a server of this machine and
// prints when the events of their streams came. One thread serves all clients
// and parses nothing, because the clients share the CPU with the server.
//
// A request is a line "CLIENT AFTER BYTES" and as many bytes. Those of a client
// follow each other; each waits until AFTER events of all clients have come.
// A line of the output has the seconds since the start at which a request was
// sent and at which its events without a finish reason came.
//
//===----------------------------------------------------------------------===//

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using Clock = std::chrono::steady_clock;

static constexpr std::string_view kEvent = R"("finish_reason":null)";

namespace {
struct Request {
  int client;
  size_t after;
  std::string text;
  /// When it was sent and when its events came.
  std::vector<double> times = {};
  /// The last bytes of its answer, in which an event may have begun.
  std::string last = {};
};

/// Sends requests and reads answers until all have ended.
class Clients {
public:
  Clients(uint16_t serverPort, std::vector<Request> &all)
      : port(serverPort), requests(all) {}

  void run();

private:
  /// Sends the requests whose turn it is.
  void sendNext();
  void send(Request &request);
  /// Reads what has come for a request. Returns false at the end.
  bool read(int socket, Request &request);
  double now() const {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const uint16_t port;
  std::vector<Request> &requests;
  const Clock::time_point start = Clock::now();
  const int poll = epoll_create1(0);
  /// Events of all answers, and requests that are not sent yet.
  size_t events = 0, unsent = requests.size();
  /// By socket.
  std::map<int, Request *> running;
  std::array<char, 1 << 16> buffer;
};
} // namespace

[[noreturn]] static void fail(const std::string &what) {
  fprintf(stderr, "bench-clients: %s\n", what.c_str());
  exit(1);
}

void Clients::send(Request &request) {
  --unsent;
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket < 0 ||
      connect(socket, reinterpret_cast<const sockaddr *>(&address),
              sizeof(address)) != 0)
    fail("no server at port " + std::to_string(port));
  request.times.push_back(now());
  for (std::string_view left = request.text; !left.empty();) {
    const ssize_t sent = ::send(socket, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0)
      fail("the server does not read");
    left.remove_prefix(static_cast<size_t>(sent));
  }
  running[socket] = &request;
  epoll_event event = {.events = EPOLLIN, .data = {.fd = socket}};
  epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event);
}

void Clients::sendNext() {
  std::map<int, bool> isBusy;
  for (const auto &[socket, request] : running)
    isBusy[request->client] = true;
  for (Request &request : requests)
    if (request.times.empty() && !std::exchange(isBusy[request.client], true) &&
        events >= request.after)
      send(request);
}

bool Clients::read(int socket, Request &request) {
  const ssize_t size = recv(socket, buffer.data(), buffer.size(), 0);
  if (size <= 0) {
    close(socket);
    if (request.times.size() == 1)
      fail("an answer without events: " + request.last);
    return false;
  }
  const double time = now();
  request.last.append(buffer.data(), static_cast<size_t>(size));
  size_t done = 0;
  for (size_t at; (at = request.last.find(kEvent, done)) != std::string::npos;
       done = at + kEvent.size()) {
    request.times.push_back(time);
    ++events;
  }
  request.last.erase(0, done);
  return true;
}

void Clients::run() {
  std::array<epoll_event, 64> ready;
  sendNext();
  while (!running.empty()) {
    const int count = epoll_wait(poll, ready.data(), ready.size(), -1);
    for (int i = 0; i < count; ++i) {
      const int socket = ready[static_cast<size_t>(i)].data.fd;
      if (!read(socket, *running[socket]))
        running.erase(socket);
    }
    if (unsent > 0)
      sendNext();
  }
}

int main(int argc, char **argv) {
  if (argc != 2)
    fail("the port of a server is needed");
  std::vector<Request> requests;
  int client = 0;
  size_t after = 0, size = 0;
  while (std::cin >> client >> after >> size) {
    std::cin.get();
    std::string text(size, '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(size));
    requests.push_back({client, after, std::move(text)});
  }
  Clients(static_cast<uint16_t>(strtol(argv[1], nullptr, 10)), requests).run();
  for (const Request &request : requests) {
    for (double time : request.times)
      printf("%.6f ", time);
    printf("\n");
  }
}
