// How long a token takes from the engine's thread to the client, over a real socket.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "server/fake_service.hpp"
#include "server/http_client.hpp"

namespace bankml::test {
namespace {

constexpr int kTokens = 200;

// Microseconds from the moment when the engine hands out a token to the one when the client has it, sorted. Each token
// is only made when the one before has arrived, so none of them can wait for another.
std::vector<double> token_times(FakeService& engine, int port) {
  HttpClient client(port);
  client.send_request("POST", "/completion", R"({"prompt": [104], "stream": true})");
  FakeService::Job& job = engine.job(1);
  job.sink(Started{});
  std::vector<double> times;
  for (int i = 0; i < kTokens; ++i) {
    Piece piece;
    piece.text = "token " + std::to_string(i) + ".";
    piece.timings.predicted_n = i + 1;
    const std::string text = piece.text;
    const auto made = std::chrono::steady_clock::now();
    job.sink(std::move(piece));
    EXPECT_TRUE(client.read_until(text)) << text;
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - made).count());
  }
  job.sink(Done{});
  EXPECT_TRUE(client.read_answer().complete);
  std::sort(times.begin(), times.end());
  return times;
}

TEST(StreamLatency, EveryTokenLeavesByItself) {
  FakeApp app;
  app.service().script.reset();
  ServerOptions options;
  options.port = 0;
  Server server(options);
  server.start();
  server.set_ready(app.app());
  const std::vector<double> times = token_times(app.service(), server.port());
  std::printf("from token to client: median %.0f us, 99 of 100 below %.0f us, most %.0f us\n", times[kTokens / 2],
              times[kTokens * 99 / 100], times.back());
  server.stop();
}

}  // namespace
}  // namespace bankml::test
