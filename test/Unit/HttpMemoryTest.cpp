//===- HttpMemoryTest.cpp - Connections for which memory lacks ------------===//
//
// Makes each allocation of the server's threads fail, from the first one after
// a client connects to the last one of its answer.
//
//===----------------------------------------------------------------------===//

#include "server/http/HttpServer.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <future>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace qwen;
using namespace qwen::server;

// Sanitizers have their own malloc.
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)

extern "C" {
// glibc's own names of the functions defined below.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
}

/// The allocations before the one that fails.
static std::atomic<int64_t> left = INT64_MAX;
/// Threads of the test itself have memory.
static thread_local bool isTest = false;

static bool lacks() {
  if (isTest || left.fetch_sub(1) != 0)
    return false;
  errno = ENOMEM;
  return true;
}

extern "C" {
void *malloc(size_t size) { return lacks() ? nullptr : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
  return lacks() ? nullptr : __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
  return lacks() ? nullptr : __libc_realloc(memory, size);
}
void *aligned_alloc(size_t align, size_t size) {
  return lacks() ? nullptr : __libc_memalign(align, size);
}
}

namespace {

/// An answer in two parts. The first one comes later.
class Parts final : public ReplyStream {
public:
  explicit Parts(bool areEvents) : events(areEvents) {}

  bool isEvents() const override { return events; }
  Part take() override {
    constexpr int kLast = 3;
    ++calls;
    return {.text = calls == 1 ? "" : "data: part\n\n",
            .isLast = calls == kLast};
  }
  std::optional<ApiError> error() const override { return std::nullopt; }
  void cancel() override {}
  std::string summary() const override { return ""; }

private:
  const bool events;
  int calls = 0;
};

Reply replyOf(const ApiError &error) { return errorReply(error, error.what()); }

constexpr Framing kFraming = {
    .error = replyOf,
    .errorEvent = [](const ApiError &error) -> std::string {
      return error.what();
    },
    .event = [](std::string_view,
                std::string_view data) { return std::string(data); },
    .keepAlive = ": keep-alive\n\n",
    .errorSchema = nullptr};

class Handler final : public HttpHandler {
public:
  Reply handle(HttpRequest request, const WakeFn &) override {
    try {
      if (request.path != "/text")
        return {.body = "",
                .stream = std::make_shared<Parts>(request.path == "/events")};
      return {.body = std::move(request.body)};
    } catch (const std::bad_alloc &) {
      return replyOf({503, "out of memory"});
    }
  }
  bool isOpen(std::string_view) const override { return true; }
  const Framing &framingOf(std::string_view) const override { return kFraming; }
  std::string methods() const override { return "POST"; }
  void drain() override { draining = true; }
  bool isDraining() const override { return draining; }

private:
  std::atomic<bool> draining = false;
};

class HttpMemoryTest : public testing::Test {
protected:
  void SetUp() override {
    isTest = true;
    std::promise<void> ready;
    thread =
        std::thread([&] { server.run(handler, [&] { ready.set_value(); }); });
    ready.get_future().wait();
    const std::string address = server.address();
    port = static_cast<uint16_t>(
        std::stoi(address.substr(address.rfind(':') + 1)));
  }
  void TearDown() override {
    kill(getpid(), SIGTERM);
    thread.join();
  }

  static ServerOptions optionsOf() {
    ServerOptions options;
    options.listen = {"127.0.0.1:0"};
    options.keepAlive = 0.001;
    options.drain = 0.1;
    return options;
  }

  /// Reads the end of a connection, for a time at most. Returns whether it has
  /// come.
  static bool readEnd(int client, std::string &text, int milliseconds) {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      pollfd descriptor{client, POLLIN, 0};
      if (poll(&descriptor, 1, 5) <= 0)
        continue;
      char bytes[4096];
      const ssize_t size = recv(client, bytes, sizeof(bytes), 0);
      if (size <= 0)
        return true;
      text.append(bytes, static_cast<size_t>(size));
    }
    return false;
  }

  /// What comes of the answer to a request within a time. `from` is the
  /// allocation that fails.
  std::string answer(const std::string &path, int64_t from, int milliseconds) {
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    left = from;
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr *>(&address),
                      sizeof(address)),
              0);
    const std::string body(5000, 'x');
    const std::string request =
        "POST " + path + "?a=b HTTP/1.1\r\nHost: 127.0.0.1\r\n" +
        "Content-Type: application/json\r\nConnection: close\r\n" +
        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    EXPECT_EQ(send(client, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string text;
    isEnded = readEnd(client, text, milliseconds);
    hasFailed = left < 0;
    left = INT64_MAX;
    close(client);
    return text;
  }

  Handler handler;
  HttpServer server{optionsOf(), {}, [](const std::string &) {}};
  std::thread thread;
  uint16_t port = 0;
  /// Of the last answer.
  bool hasFailed = false, isEnded = false;
};

} // namespace

TEST_F(HttpMemoryTest, TheServerLivesOn) {
  // A connection for whose next operation memory lacks may stay until its
  // client leaves: asio has no memory to tell what waits for it.
  constexpr int kMost = 5000, kFailed = 50;
  for (const std::string path : {"/text", "/whole", "/events"}) {
    int64_t count = 0;
    do {
      const std::string found = answer(path, count++, kFailed);
      EXPECT_TRUE(found.empty() || found.starts_with("HTTP/1.1 200 ") ||
                  found.starts_with("HTTP/1.1 503 "))
          << path << " " << count << ": " << found;
      const bool hadFailed = hasFailed;
      const std::string next = answer(path, INT64_MAX, kMost);
      ASSERT_TRUE(isEnded && next.starts_with("HTTP/1.1 200 OK\r\n"))
          << path << " " << count << ": " << next;
      hasFailed = hadFailed;
    } while (hasFailed);
    EXPECT_GT(count, 10) << path;
  }
}

#endif
