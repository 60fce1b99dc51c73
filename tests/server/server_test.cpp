// The server as its clients see it, over loopback connections.
#include "bankml/server/server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "server/fake_service.hpp"
#include "server/http_client.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    options.port = 0;
    options.threads = 3;
  }
  ~ServerTest() override {
    if (server_) server_->stop();
  }

  void start() {
    server_ = std::make_unique<Server>(options);
    server_->start();
    server_->set_ready(app_.app());
  }
  Server& server() { return *server_; }
  FakeService& engine() { return app_.service(); }
  HttpAnswer ask(std::string_view method, std::string_view target, std::string_view body = {}) {
    HttpClient client(server_->port());
    client.send_request(method, target, body);
    return client.read_answer(method == "HEAD");
  }
  void leave_jobs_open() { engine().script.reset(); }

  ServerOptions options;

 private:
  FakeApp app_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersWithTheHeadersOfTheContract) {
  start();
  HttpClient client(server().port());
  client.send_request("GET", "/health", {}, "Origin: http://a.b\r\n");
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"status":"ok"})");
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json; charset=utf-8\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Origin: http://a.b\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("Keep-Alive: timeout=5, max=100\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("Server: bankmld\r\n"));
}

TEST_F(ServerTest, ListensBeforeItIsReady) {
  Server loading(options);
  loading.start();
  HttpClient client(loading.port());
  client.send_request("GET", "/health");
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("unavailable_error"));
}

TEST_F(ServerTest, KeepsTheConnectionForTheNextRequest) {
  start();
  HttpClient client(server().port());
  for (int i = 0; i < 3; ++i) {
    client.send_request("POST", "/tokenize", R"({"content":"a"})");
    EXPECT_EQ(client.read_answer().body, R"({"tokens":[97]})");
  }
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  HttpClient client(server().port());
  const std::string first = R"({"content":"a"})", second = R"({"content":"b"})";
  client.send("POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\n\r\n" + first +
              "POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\n\r\n" + second + "GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, R"({"tokens":[97]})");
  EXPECT_EQ(client.read_answer().body, R"({"tokens":[98]})");
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
}

TEST_F(ServerTest, AnswersARequestThatCameDuringAGeneration) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a"})");
  engine().job(1);
  client.send_request("GET", "/health");
  engine().play(1, {});
  EXPECT_THAT(client.read_answer().body, HasSubstr(R"("content":"Hello world")"));
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
}

TEST_F(ServerTest, ClosesTheConnectionAfterAnError) {
  start();
  HttpClient client(server().port());
  client.send_request("GET", "/nothing");
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_THAT(answer.head, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, ClosesTheConnectionWhenAskedTo) {
  start();
  HttpClient client(server().port());
  client.send_request("GET", "/health", {}, "Connection: close\r\n");
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, ServesTargetsThatNameIt) {
  start();
  EXPECT_EQ(ask("GET", "http://127.0.0.1/health").body, R"({"status":"ok"})");
}

TEST_F(ServerTest, AnswersHeadWithoutABody) {
  start();
  HttpClient client(server().port());
  client.send_request("HEAD", "/health");
  EXPECT_THAT(client.read_answer(true).head, HasSubstr("Content-Length: 15\r\n"));
  client.send_request("GET", "/health");
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
}

TEST_F(ServerTest, ServesHttp10WithoutChunks) {
  start();
  HttpClient client(server().port());
  const std::string body = R"({"prompt":"a","stream":true})";
  client.send("POST /completion HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const HttpAnswer answer = client.read_answer();
  EXPECT_THAT(answer.head, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer.body, StartsWith("data: {"));
}

TEST_F(ServerTest, ReadsChunkedRequests) {
  start();
  HttpClient client(server().port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"conten\r\n7\r\nt\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, R"({"tokens":[97]})");
}

TEST_F(ServerTest, ContinuesARequestThatWaits) {
  start();
  HttpClient client(server().port());
  client.send("POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send(R"({"content":"a"})");
  EXPECT_EQ(client.read_answer().body, R"({"tokens":[97]})");
}

TEST_F(ServerTest, DoesNotWaitForEverForABodyThatWasContinued) {
  options.timeout_s = 1;
  start();
  HttpClient client(server().port());
  client.send("POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, AnswersLargeRequests) {
  start();
  const std::string text(200'000, 'a');
  const HttpAnswer answer = ask("POST", "/tokenize", "{\"content\":\"" + text + "\"}");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(std::ranges::count(answer.body, ','), 199'999);
}

TEST_F(ServerTest, StopsWhileALargeRequestIsHandled) {
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/tokenize", "{\"content\":\"" + std::string(2'000'000, 'a') + "\"}");
  server().stop();
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, AnswersWithTheErrorOfAnEngineThatRefuses) {
  engine().refuses = true;
  start();
  const HttpAnswer answer = ask("POST", "/completion", R"({"prompt":"a","stream":true})");
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("not now"));
}

TEST_F(ServerTest, RefusesBodiesAbove100MiB) {
  start();
  HttpClient client(server().port());
  client.send("POST /tokenize HTTP/1.1\r\nContent-Length: 104857601\r\n\r\n{");
  EXPECT_EQ(client.read_answer().status, 413);
  EXPECT_TRUE(client.is_closed());
}

// Clients that send slowly, or stop, can't fill the memory together.
TEST_F(ServerTest, RefusesBodiesBeyondWhatAllTogetherMayTake) {
  constexpr std::size_t kBody = 1 << 20;
  options.policy.limits.body_bytes = kBody;
  start();
  const std::string text(kBody, ' ');
  const auto ask_until = [&](bool refused) {
    for (int i = 0; i < 1000; ++i) {
      if ((ask("POST", "/tokenize", text).status == 503) == refused) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 10; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server().port()));
    slow.back()->send("POST /tokenize HTTP/1.1\r\nContent-Length: " + std::to_string(kBody) + "\r\n\r\n" +
                      text.substr(1));
  }
  EXPECT_TRUE(ask_until(true));
  EXPECT_EQ(ask("POST", "/tokenize", R"({"content":"a"})").status, 200) << "small ones have room";
  slow.clear();
  EXPECT_TRUE(ask_until(false));
}

TEST_F(ServerTest, RefusesTargetsThatAreTooLong) {
  start();
  EXPECT_EQ(ask("GET", "/health?" + std::string(32768, 'x')).status, 414);
  EXPECT_EQ(ask("GET", "/health?" + std::string(2'000'000, 'x')).status, 414);
  EXPECT_EQ(ask("GET", "/health?" + std::string(30000, 'x')).status, 200);
}

TEST_F(ServerTest, RefusesHeadersThatAreTooManyOrTooLong) {
  start();
  const auto with_headers = [&](const std::string& headers) {
    HttpClient client(server().port());
    client.send_request("GET", "/health", {}, headers);
    return client.read_answer().status;
  };
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X: y\r\n";
  EXPECT_EQ(with_headers(many), 400);
  EXPECT_EQ(with_headers("X: " + std::string(8192, 'y') + "\r\n"), 400);
  EXPECT_EQ(with_headers("X: " + std::string(8000, 'y') + "\r\n"), 200);
}

TEST_F(ServerTest, RefusesWhatIsNotHttp) {
  start();
  for (const char* text :
       {"hello\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n", "FOO /health HTTP/1.1\r\n\r\n",
        "TRACE /health HTTP/1.1\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n"}) {
    HttpClient client(server().port());
    client.send(text);
    EXPECT_EQ(client.read_answer().status, 400) << text;
    EXPECT_TRUE(client.is_closed()) << text;
  }
}

TEST_F(ServerTest, AnswersBadJsonAndStaysAlive) {
  start();
  EXPECT_EQ(ask("POST", "/completion", "{").status, 500);
  EXPECT_EQ(ask("POST", "/completion", R"({"prompt":"a","temperature":NaN})").status, 500);
  EXPECT_EQ(ask("POST", "/completion", std::string(1'000'000, '[')).status, 500);
  EXPECT_EQ(ask("POST", "/completion", R"({"prompt":"a","temperature":"hot"})").status, 400);
  EXPECT_EQ(ask("GET", "/health").status, 200);
}

TEST_F(ServerTest, StreamsEventsInChunks) {
  start();
  const HttpAnswer answer =
      ask("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"stream":true})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("X-Accel-Buffering: no\r\n"));
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr(R"("delta":{"content":"Hello"})"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, SendsTheHeadOfAStreamBeforeTheFirstToken) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
  engine().job(1).sink(Started{});
  EXPECT_TRUE(client.read_until("\r\n\r\n"));
}

TEST_F(ServerTest, SendsEachTokenAtOnce) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
  engine().job(1).sink(Started{});
  for (const char* text : {"one", "two", "three"}) {
    Piece piece;
    piece.text = text;
    engine().job(1).sink(std::move(piece));
    EXPECT_TRUE(client.read_until("\"content\":\"" + std::string(text) + "\""));
  }
}

TEST_F(ServerTest, PingsASilentStream) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a","stream":true,"sse_ping_interval":1})");
  engine().job(1).sink(Started{});
  EXPECT_TRUE(client.read_until("3\r\n:\n\n\r\n"));
}

TEST_F(ServerTest, CancelsTheJobWhenTheClientOfAStreamLeaves) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
  engine().job(1).sink(Started{});
  client.read_until("\r\n\r\n");
  client.close();
  engine().wait_for_cancel(1);
}

TEST_F(ServerTest, ClosesTheConnectionOfAClientThatSendsNoMoreAfterItsAnswer) {
  leave_jobs_open();
  options.policy.limits.idle_timeout_s = 600;
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
  engine().job(1).sink(Started{});
  client.end_input();
  ASSERT_TRUE(client.read_until(":\n\n")) << "the server has seen the end and asks whether anyone listens";
  engine().job(1).sink(Done{});
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, CancelsAQueuedJobWhenTheClientLeaves) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  engine().job(1);
  client.close();
  engine().wait_for_cancel(1);
}

TEST_F(ServerTest, CancelsTheJobOfAClientThatDoesNotRead) {
  leave_jobs_open();
  start();
  HttpClient client(server().port());
  client.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
  FakeService::Job& job = engine().job(1);
  job.sink(Started{});
  for (int i = 0; i < 300'000; ++i) {
    Piece piece;
    piece.text = "word";
    job.sink(std::move(piece));
  }
  engine().wait_for_cancel(1);
}

TEST_F(ServerTest, AnswersOthersWhileRequestsWait) {
  leave_jobs_open();
  start();
  std::vector<std::unique_ptr<HttpClient>> waiting;
  for (int i = 0; i < 50; ++i) {
    waiting.push_back(std::make_unique<HttpClient>(server().port()));
    waiting.back()->send_request("POST", "/completion", R"({"prompt":"a"})");
  }
  engine().job(50);
  EXPECT_EQ(ask("GET", "/health").status, 200);
}

TEST_F(ServerTest, ServesManyClientsAtOnce) {
  start();
  std::vector<std::thread> clients;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      HttpClient client(server().port());
      for (int j = 0; j < 20; ++j) {
        client.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
        const HttpAnswer answer = client.read_answer();
        if (answer.complete && answer.body.find("\"stop\":true") != std::string::npos) ++good;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good, 160);
}

TEST_F(ServerTest, StopsWhileClientsWait) {
  leave_jobs_open();
  start();
  HttpClient waiting(server().port()), streaming(server().port()), idle(server().port());
  waiting.send_request("POST", "/completion", R"({"prompt":"a"})");
  streaming.send_request("POST", "/completion", R"({"prompt":"a","stream":true})");
  engine().job(2);
  server().stop();
  engine().wait_for_cancel(1);
  engine().wait_for_cancel(2);
  EXPECT_TRUE(waiting.is_closed());
  EXPECT_TRUE(streaming.is_closed());
  EXPECT_TRUE(idle.is_closed());
}

TEST_F(ServerTest, StopsTwice) {
  start();
  server().stop();
  server().stop();
}

TEST_F(ServerTest, ListensOnAUnixSocket) {
  const std::string path = testing::TempDir() + "bankml_server_test.sock";
  options.hosts = {path};
  start();
  HttpClient client(path);
  client.send_request("GET", "/health");
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
  EXPECT_THAT(server().addresses(), testing::ElementsAre("unix:" + path));
}

TEST_F(ServerTest, SaysWhichAddressCannotBeBound) {
  start();
  ServerOptions same;
  same.port = server().port();
  Server second(same);
  expect_error(ErrorKind::io, std::to_string(same.port), [&] { second.start(); });
}

TEST_F(ServerTest, RefusesAnyFreePortForSeveralHosts) {
  options.hosts = {"127.0.0.1", "127.0.0.2"};
  Server several(options);
  expect_error(ErrorKind::invalid_request, "port 0", [&] { several.start(); });
}

}  // namespace
}  // namespace bankml::test
