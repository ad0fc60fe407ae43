//===- HttpTest.cpp - Paths, headers and origins of the server ------------===//

#include "server/Routes.h"
#include "server/http/Access.h"
#include "server/http/Headers.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::server;

namespace {

/// The path of a route and the parameter of a request, or its error.
std::string routed(std::string_view path, std::string_view method = "GET") {
  try {
    const RouteMatch match = routeTable().find(method, path);
    return match.route.path +
           (match.parameter.empty() ? "" : " " + match.parameter);
  } catch (const ApiError &error) {
    return std::to_string(error.status());
  }
}

TEST(RoutesTest, SplitsAndDecodesPaths) {
  const std::string model = "/v1/models/{model} ";
  EXPECT_EQ(routed("/v1/models"), "/v1/models");
  EXPECT_EQ(routed("/v1/models/"), "/v1/models");
  EXPECT_EQ(routed("//v1//models///a//"), model + "a");
  EXPECT_EQ(routed("/v1/models/Qwen%2FMy%20model"), model + "Qwen/My model");
  EXPECT_EQ(routed("/v1/models/Qwen/My%20model/"), model + "Qwen/My model");
  // Each part is decoded once, after the split.
  EXPECT_EQ(routed("/v1/models/a%252Fb"), model + "a%2Fb");
  EXPECT_EQ(routed("/v1/models/%2e%2E/health"), model + "../health");
  EXPECT_EQ(routed("/v1/models/a+b%C3%a9"), model + "a+b\xc3\xa9");
  EXPECT_EQ(routed("/v1/%6dodels"), "/v1/models");
  EXPECT_EQ(routed("/v1%2Fmodels"), "404");
  for (const char *bad : {"%", "%4", "%zz", "%4g", "%-1", "%+1", "% 1", "%00",
                          "a%", "%%41", "%0"})
    EXPECT_EQ(routed("/v1/models/" + std::string(bad)), "400") << bad;
  EXPECT_EQ(routed("/nothing/%00"), "400");
  EXPECT_EQ(routed("/"), "/");
  EXPECT_EQ(routed(""), "/");
  EXPECT_EQ(routed("*"), "405");
  for (const char *none : {"/v2", "/v1/modelsx", "/model", "/v1/v1/models",
                           "/v2/models", "/health/x"})
    EXPECT_EQ(routed(none), "404") << none;
}

TEST(RoutesTest, NeedsNoVersion) {
  for (const auto &[protocol, entry] : routeTable().routes()) {
    const Route &route = *entry;
    const std::string path = route.path;
    const std::string without = path.starts_with("/v1") ? path.substr(3) : path;
    const size_t brace = without.find('{');
    for (const char *version : {"", "/v1"}) {
      const std::string asked =
          version + (brace == std::string::npos
                         ? without
                         : without.substr(0, brace) + "x");
      EXPECT_EQ(routed(asked, route.method).substr(0, path.size()), path);
      EXPECT_EQ(routeTable().isOpen(asked + "/"),
                (route.traits & kOpen) && asked.back() != 'x')
          << asked;
    }
  }
  EXPECT_EQ(routed("/v2/rerank", "POST"), "/v1/rerank");
  EXPECT_EQ(routed("/v2/embeddings", "POST"), "404");
}

TEST(RoutesTest, DescribesAnswersAndBodies) {
  nlohmann::json schemas = nlohmann::json::object();
  for (const Protocol *protocol : routeTable().protocols()) {
    const auto own = nlohmann::json::parse(protocol->schemas);
    for (const auto &[name, schema] : own.items())
      EXPECT_TRUE(schemas.emplace(name, schema).second) << name;
  }
  for (const auto &[protocol, entry] : routeTable().routes()) {
    const Route &route = *entry;
    EXPECT_TRUE(!route.answer || schemas.contains(route.answer)) << route.path;
    EXPECT_EQ(route.parameters != nullptr,
              std::string_view(route.method) == "POST")
        << route.path;
  }
}

/// A protocol with other errors than the first one's, and routes that Messages
/// and Responses will need.
const Framing kOther = {
    .error = [](const ApiError &error) { return errorReply(error, "other"); },
    .errorEvent = [](const ApiError &) { return std::string("other event"); },
    .event = [](std::string_view type,
                std::string_view) { return std::string(type); },
    .keepAlive = "ping",
    .errorSchema = "OtherError",
};
constexpr Route kOtherRoutes[] = {
    {"POST", "/v1/responses", "Answer", nullptr, nullptr},
    {"GET", "/v1/responses/{id}", "Get an answer", nullptr, nullptr},
    {"DELETE", "/v1/responses/{id}", "Delete an answer", nullptr, nullptr},
    {"POST", "/v1/responses/{id}/cancel", "Cancel an answer", nullptr, nullptr},
    {"GET", "/v1/files/{name}", "Get a file", nullptr, nullptr, kSlashes},
};
const Protocol kOtherProtocol = {kOtherRoutes, "{}", &kOther};
const RouteTable kTable({&protocols::chat, &kOtherProtocol});

TEST(RoutesTest, APathHasAParameterAnywhere) {
  const auto routed = [](std::string_view method, std::string_view path) {
    try {
      const RouteMatch match = kTable.find(method, path);
      return std::string(match.route.summary) + ": " + match.parameter;
    } catch (const ApiError &error) {
      return std::to_string(error.status());
    }
  };
  EXPECT_EQ(routed("POST", "/v1/responses/r%2F1/cancel"),
            "Cancel an answer: r/1");
  EXPECT_EQ(routed("POST", "/responses/r1/cancel/"), "Cancel an answer: r1");
  EXPECT_EQ(routed("GET", "/v1/responses/r1"), "Get an answer: r1");
  EXPECT_EQ(routed("DELETE", "/v1/responses/r1"), "Delete an answer: r1");
  EXPECT_EQ(routed("POST", "/v1/responses"), "Answer: ");
  // One part, unless the route says so.
  EXPECT_EQ(routed("GET", "/v1/responses/r1/cancel"), "405");
  EXPECT_EQ(routed("GET", "/v1/responses/a/b"), "404");
  EXPECT_EQ(routed("POST", "/v1/responses/a/b/cancel"), "404");
  EXPECT_EQ(routed("POST", "/v1/responses/cancel"), "405");
  EXPECT_EQ(routed("GET", "/v1/files/a/b%20c"), "Get a file: a/b c");
  EXPECT_EQ(kTable.methodsOf("/v1/responses/x"), "GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(kTable.methodsOf("/v1/responses/x/cancel"), "POST, OPTIONS");
}

TEST(RoutesTest, ThePathChoosesTheFormOfErrors) {
  const auto framing = [](std::string_view path) {
    return kTable.protocolOf(path).framing;
  };
  for (const char *path :
       {"/v1/responses", "/responses/x/cancel", "/files/a/b"})
    EXPECT_EQ(framing(path), &kOther) << path;
  for (const char *path : {"/v1/chat/completions", "/nothing", "", "*",
                           "/v1/responses/%zz", "/v1/responses/a/b"})
    EXPECT_EQ(framing(path), protocols::chat.framing) << path;
}

TEST(RoutesTest, ADescriptionHasEachMethodOfAPath) {
  const nlohmann::ordered_json paths =
      describePaths(kTable.protocols(), {.vocabSize = 100}, false,
                    [](const Route &route) { return !route.parameters; });
  const auto membersOf = [](const nlohmann::ordered_json &object) {
    std::vector<std::string> names;
    for (const auto &[name, member] : object.items())
      names.push_back(name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(membersOf(paths),
            (Names{"/v1/responses", "/v1/responses/{id}",
                   "/v1/responses/{id}/cancel", "/v1/files/{name}"}));
  const auto &path = paths["/v1/responses/{id}"];
  ASSERT_EQ(membersOf(path), (Names{"get", "delete"}));
  EXPECT_EQ(path["delete"]["summary"], "Delete an answer");
  const auto &cancel = paths["/v1/responses/{id}/cancel"]["post"];
  EXPECT_EQ(cancel["parameters"].size(), 1U);
  EXPECT_EQ(cancel["parameters"][0]["name"], "id");
  EXPECT_EQ(cancel["responses"]["404"]["content"]["application/json"]["schema"]
                  ["$ref"],
            "#/components/schemas/OtherError");
}

TEST(RoutesTest, NamesTheMethods) {
  EXPECT_EQ(routeTable().methodsOf("/rerank/"), "POST, OPTIONS");
  EXPECT_EQ(routeTable().methodsOf("/v1/models/x"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(routeTable().methodsOf("/nothing"), "");
  EXPECT_EQ(routeTable().methodsOf("*"), "POST, GET, HEAD, OPTIONS");
  EXPECT_EQ(routed("/metrics", "HEAD"), "/metrics");
  try {
    routeTable().find("DELETE", "/models/a");
    FAIL();
  } catch (const ApiError &error) {
    EXPECT_EQ(error.status(), 405U);
    EXPECT_EQ(error.headers,
              (AnswerHeaders{{AnswerHeader::Allow, "GET, HEAD, OPTIONS"}}));
  }
}

TEST(RoutesTest, ReadsTargets) {
  const auto parts = [](std::string_view target) {
    const Target parsed = parseTarget(target);
    return parsed.authority + " " + parsed.path + " " + parsed.query;
  };
  EXPECT_EQ(parts("/a/b?c=/d?e"), " /a/b c=/d?e");
  EXPECT_EQ(parts("HTTP://a.example:80/b?c"), "a.example:80 /b c");
  EXPECT_EQ(parts("https://a@b?c"), "a@b  c");
  EXPECT_EQ(parts("//a.example/b?"), " //a.example/b ");
  EXPECT_EQ(parts("*"), " * ");
}

TEST(HeadersTest, ListsTokens) {
  EXPECT_EQ(tokensOf("x-stainless-os,OpenAI-Beta , \tauthorization"),
            "x-stainless-os, OpenAI-Beta, authorization");
  EXPECT_EQ(tokensOf(",a b,, c:d,\x80,e,"), "e");
  EXPECT_EQ(tokensOf(""), "");
  EXPECT_EQ(exposedHeaders(),
            "Accept-Encoding, X-Accel-Buffering, Allow, Cache-Control, "
            "Content-Encoding, Content-Security-Policy, "
            "X-Content-Type-Options, Date, ETag, Process-Start-Time-Unix, "
            "Referrer-Policy, X-Request-Id, Retry-After, Server, Vary, "
            "WWW-Authenticate");
  EXPECT_EQ(nameOf(AnswerHeader::RetryAfter), "Retry-After");
  EXPECT_EQ(mediaTypeOf(" Application/JSON ; charset=utf-8"),
            "Application/JSON");
  EXPECT_TRUE(equalsNoCase("Application/JSON", "application/json"));
  EXPECT_FALSE(equalsNoCase("application/json", "application/jsonl"));
  EXPECT_FALSE(equalsNoCase("a[", "a{"));
}

TEST(HeadersTest, ReadsWeightsOfCodings) {
  for (const char *list : {"gzip", "br, GZIP", "gzip;q=0.001", "*", "br;q=0,*",
                           "identity;q=1, gzip ; q=1"})
    EXPECT_TRUE(acceptsCoding(list, "gzip")) << list;
  for (const char *list :
       {"", "br", "gzip;q=0", "gzip;q=0.000, *", "*;q=0", "xgzip", "gzip2"})
    EXPECT_FALSE(acceptsCoding(list, "gzip")) << list;
}

TEST(HeadersTest, FindsEntityTags) {
  for (const char *list : {"\"a\"", "*", "\"b\" , W/\"a\""})
    EXPECT_TRUE(hasEntityTag(list, "\"a\"")) << list;
  for (const char *list : {"", "a", "\"b\"", "\"a-gzip\"", "W/a"})
    EXPECT_FALSE(hasEntityTag(list, "\"a\"")) << list;
}

TEST(AccessTest, KnowsThisMachine) {
  for (const char *host : {"localhost", "LocalHost:80", "127.0.0.1:1", "[::1]",
                           "[::1]:8080", "127.0.0.2:8080"})
    EXPECT_TRUE(isLocalHost(host, "127.0.0.2:8080")) << host;
  for (const char *host :
       {"", "localhost.example", "a@localhost", "[::2]:1", "localhost:1:2",
        "example.org:8080", "127.0.0.1:80@evil.example", "localhost:80a",
        "localhost:+80", "[::1]:8 0", "localhost:-1"})
    EXPECT_FALSE(isLocalHost(host, "127.0.0.2:8080")) << host;
}

TEST(AccessTest, ReadsLinesOfKeys) {
  EXPECT_EQ(keysOf("# of the cluster\na b\r\n\n#c\n\xc3\xa9", "f"),
            (std::vector<std::string>{"a b", "\xc3\xa9"}));
  const auto errorOf = [](std::string_view text) {
    try {
      keysOf(std::string(text), "f");
      return std::string();
    } catch (const Error &error) {
      return std::string(error.what());
    }
  };
  using namespace std::string_view_literals;
  const std::string line = "f line 2: no client can send the key in a header: ";
  EXPECT_EQ(errorOf("k\na\0b"sv), line + "it has a control character");
  EXPECT_EQ(errorOf("k\na\tb"), line + "it has a control character");
  EXPECT_EQ(errorOf("k\n\x7f"), line + "it has a control character");
  EXPECT_EQ(errorOf("k\n a"), line + "it begins or ends with a space");
  EXPECT_EQ(errorOf("k\na \r\n"), line + "it begins or ends with a space");
  EXPECT_EQ(errorOf("\xef\xbb\xbfk"),
            "f line 1: no client can send the key in a header: it begins with "
            "a byte order mark");
  EXPECT_EQ(errorOf("# k\n\n"), "f has no API key");
}

TEST(AccessTest, FindsKeys) {
  const std::vector<std::string> keys = {"other", "key"};
  for (const char *given : {"Bearer key", "bearer key", "BEARER   key"})
    EXPECT_EQ(findKey(given, "", keys), 1) << given;
  for (const char *given : {"", "Bearer", "Bearer ", "Bearerkey", "Bearer Key",
                            "Basic key", "key", "Bearer key,other"})
    EXPECT_EQ(findKey(given, "", keys), std::nullopt) << given;
  EXPECT_EQ(findKey("", "key", keys), 1);
  EXPECT_EQ(findKey("", "other", keys), 0);
  EXPECT_EQ(findKey("Basic x", "key", keys), 1);
  EXPECT_EQ(findKey("Bearer x", "key", keys), std::nullopt);
  EXPECT_EQ(findKey("", "", {}), std::nullopt);
  // A key that stands in two lines is one.
  EXPECT_EQ(findKey("", "a", {"b", "a", "a"}), 1);
}

TEST(AccessTest, AllowsOrigins) {
  const std::vector<std::string> none, one = {"https://a.example"},
                                       local = {"localhost", "app://x"};
  EXPECT_FALSE(isAllowedOrigin("https://a.example", none));
  EXPECT_TRUE(isAllowedOrigin("https://a.example", one));
  EXPECT_FALSE(isAllowedOrigin("http://localhost:3000", one));
  EXPECT_TRUE(isAllowedOrigin("https://b.example", {"*"}));
  for (const char *origin :
       {"http://localhost", "https://localhost:3000", "http://127.0.0.1:1",
        "http://[::1]:8080", "app://x"})
    EXPECT_TRUE(isAllowedOrigin(origin, local)) << origin;
  for (const char *origin :
       {"", "null", "http://localhost.example", "app://localhost",
        "http://a@localhost", "http://a.example", "http://localhost:3000.a"})
    EXPECT_FALSE(isAllowedOrigin(origin, local)) << origin;
}

TEST(AccessTest, RefusesOriginsThatNoBrowserSends) {
  for (const char *origin :
       {"*", "localhost", "null", "https://a.example", "http://localhost:3000",
        "http://127.0.0.1", "http://[::1]:8080", "https://xn--mnchen-3ya.de",
        "https://a.example:80", "chrome-extension://abc", "tauri://localhost",
        "safari-web-extension://E3449EA7-EC25", "capacitor://localhost"})
    EXPECT_NO_THROW(requireOrigin(origin)) << origin;
  const auto fault = [](const std::string &origin) -> std::string {
    try {
      requireOrigin(origin);
    } catch (const Error &error) {
      const std::string text = error.what();
      const size_t start = text.find(": ") + 2;
      return text.substr(start, text.find(';') - start);
    }
    return "";
  };
  const std::string host = "its host must have lower-case letters, digits, "
                           "\"-\", \"_\" and \".\" only (xn--... for other "
                           "letters)";
  const std::string scheme = "its scheme must have lower-case letters, digits, "
                             "\"+\", \"-\" and \".\" only";
  const std::string path = "it has a slash or more behind the host";
  const std::string port = "its port is not a number from 1 to 65535";
  for (const auto &[origin, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "it has no scheme"},
           {"a.example", "it has no scheme"},
           {"localhost:3000", "it has no scheme"},
           {"://a.example", "it has no scheme"},
           {"HTTPS://a.example", scheme},
           {" https://a.example", scheme},
           {"https://a.example/", path},
           {"https://a.example/b", path},
           {"https://a.example?b", path},
           {"tauri://localhost/", path},
           {"https://A.example", host},
           {"https://*.example", host},
           {"https://b@a.example", host},
           {"https://m\xc3\xbcnchen.de", host},
           {"https://", host},
           {"https://a.example ", host},
           {"https://a.example:443",
            "browsers leave out the port of the scheme"},
           {"http://a.example:80", "browsers leave out the port of the scheme"},
           {"https://a.example:", port},
           {"https://a.example:0", port},
           {"https://a.example:080", port},
           {"https://a.example:65536", port},
           {"https://a.example:x", port},
           {"tauri://*",
            "its host is empty or has characters that hosts lack"}})
    EXPECT_EQ(fault(origin), expected) << origin;
}

} // namespace
