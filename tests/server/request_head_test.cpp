#include "server/request_head.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bankml::test {
namespace {

int status_of(const std::string& text) {
  HeadScanner scanner;
  return scanner.scan(text).refusal.status;
}

TEST(HeadScanner, FindsTheEndWhereverTheTextIsCut) {
  const std::string head = "GET / HTTP/1.1\r\nA: b\r\n\r\n", text = head + "body";
  for (std::size_t cut = 1; cut < head.size(); ++cut) {
    HeadScanner scanner;
    EXPECT_EQ(scanner.scan(text.substr(0, cut)).size, 0) << cut;
    EXPECT_EQ(scanner.scan(text).size, head.size()) << cut;
  }
}

TEST(HeadScanner, RefusesHeadersThatGoOnInTheNextLine) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n"), 400);
}

TEST(HeadScanner, RefusesAnotherProtocolAtItsFirstByte) {
  EXPECT_EQ(status_of("\x16\x03\x01"), 400);  // TLS
  EXPECT_EQ(status_of("\r\nGET / HTTP/1.1\r\n\r\n"), 400);
}

TEST(HeadScanner, RefusesALongTargetBeforeItsEndHasCome) {
  EXPECT_EQ(status_of("GET /" + std::string(kMaxTarget, 'x')), 414);
  EXPECT_EQ(status_of("GET /" + std::string(kMaxTarget, 'x') + " HTTP/1.1\r\n\r\n"), 414);
}

TEST(HeadScanner, LimitsHeadersInNumberAndLength) {
  std::string lines;
  for (std::size_t i = 0; i < kMaxHeaders; ++i) lines += "A: b\r\n";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + lines + "\r\n"), 0);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + lines + "A: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: " + std::string(kMaxHeaderLine, 'b') + "\r\n\r\n"), 400);
}

TEST(RequestTarget, MayNameTheServer) {
  EXPECT_EQ(without_authority("http://127.0.0.1:8080/health?a=http://b"), "/health?a=http://b");
  EXPECT_EQ(without_authority("HTTPS://host"), "/");
  EXPECT_EQ(without_authority("http://host?a"), "?a");
  EXPECT_EQ(without_authority("/http://host/x"), "/http://host/x");
  EXPECT_EQ(without_authority("*"), "*");
}

TEST(PercentDecoding, LeavesWhatIsNoSequence) {
  EXPECT_EQ(percent_decoded("/v1%2Fmodels", false), "/v1/models");
  EXPECT_EQ(percent_decoded("/%zz%4", false), "/%zz%4");
  EXPECT_EQ(percent_decoded("a+b", false), "a+b");
  EXPECT_EQ(percent_decoded("a+b", true), "a b");
}

TEST(RequestIds, AreTakenOnlyIfTheyCanStandInALogLine) {
  EXPECT_EQ(request_id("trace-1:a/b"), "trace-1:a/b");
  for (const std::string& bad : {std::string(), std::string("two words"), std::string("a\nb"), std::string(129, 'a')}) {
    const std::string id = request_id(bad);
    EXPECT_NE(id, bad);
    EXPECT_EQ(id.size(), 16);
  }
}

TEST(LoggedText, HasNoControlCharactersAndALimit) {
  EXPECT_EQ(printable_start("a\nb\x7f\t"), "a?b??");
  EXPECT_EQ(printable_start(std::string(1000, 'a')).size(), 300);
}

}  // namespace
}  // namespace bankml::test
