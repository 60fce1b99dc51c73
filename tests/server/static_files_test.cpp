#include "server/static_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace bankml::test {
namespace {

namespace fs = std::filesystem;

class StaticFilesTest : public testing::Test {
 protected:
  StaticFilesTest() {
    fs::create_directories(root / "sub");
    write(root / "index.html", "<p>home");
    write(root / "sub" / "index.html", "<p>sub");
    write(root / "app.js", "run()");
    write(root / "empty", "");
    write(base / "secret.txt", "secret");
    fs::create_directories(base / "www-other");
    write(base / "www-other" / "file.txt", "secret");
    fs::create_symlink(base / "secret.txt", root / "link.txt");
    fs::create_symlink(base, root / "up");
    fs::create_symlink("app.js", root / "inside.js");
  }
  ~StaticFilesTest() override { fs::remove_all(base); }

  static void write(const fs::path& path, std::string_view text) { std::ofstream(path) << text; }
  std::string body(std::string_view path) const {
    const auto response = static_file(root, path, {});
    return response ? response->body : "nothing";
  }
  std::string type(std::string_view path) const {
    return static_file(root, path, {}).value_or(Response{}).content_type;
  }

  const fs::path base = fs::path(testing::TempDir()) / ("static_files_" + std::to_string(::getpid()));
  const fs::path root = base / "www";
};

TEST_F(StaticFilesTest, GivesFilesWithTheirTypes) {
  EXPECT_EQ(body("/app.js"), "run()");
  EXPECT_EQ(type("/app.js"), "text/javascript; charset=utf-8");
  EXPECT_EQ(type("/"), "text/html; charset=utf-8");
  EXPECT_EQ(body("/empty"), "");
  EXPECT_EQ(type("/empty"), "application/octet-stream");
}

TEST_F(StaticFilesTest, GivesTheIndexOfADirectory) {
  EXPECT_EQ(body("/"), "<p>home");
  EXPECT_EQ(body("/sub/"), "<p>sub");
  EXPECT_EQ(body("/sub/index.html"), "<p>sub");
}

TEST_F(StaticFilesTest, SendsTheNameOfADirectoryToThePathWithASlash) {
  fs::create_directories(root / "a b:c");
  write(root / "a b:c" / "index.html", "odd");
  for (const auto& [path, location] : {std::pair("/sub", "./sub/"), {"/a b:c", "./a%20b:c/"}}) {
    const auto response = static_file(root, path, {});
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 301);
    EXPECT_THAT(response->headers, testing::ElementsAre(testing::Pair("Location", location)));
  }
}

TEST_F(StaticFilesTest, GivesAFileOnceToThoseWhoHaveIt) {
  const Headers headers = static_file(root, "/app.js", {})->headers;
  const auto tag = std::ranges::find(headers, "ETag", &Headers::value_type::first);
  ASSERT_NE(tag, headers.end());
  Request again;
  again.headers = {{"If-None-Match", tag->second}};
  EXPECT_EQ(static_file(root, "/app.js", again)->status, 304);
  EXPECT_EQ(static_file(root, "/app.js", again)->body, "");
  write(root / "app.js", "run(2)");
  EXPECT_EQ(static_file(root, "/app.js", again)->status, 200);
}

TEST_F(StaticFilesTest, FollowsLinksThatStayInside) {
  EXPECT_EQ(body("/inside.js"), "run()");
  EXPECT_EQ(body("/sub/../app.js"), "run()");
}

TEST_F(StaticFilesTest, FindsNothingOutsideTheDirectory) {
  for (const char* path : {"/../secret.txt", "/sub/../../secret.txt", "/link.txt", "/up/secret.txt", "//etc/passwd",
                           "/../www-other/file.txt", "/..", "/up"}) {
    EXPECT_EQ(body(path), "nothing") << path;
  }
}

TEST_F(StaticFilesTest, FindsNothingWhereThereIsNoFile) {
  using namespace std::string_view_literals;
  for (const std::string_view path :
       {"/nothing"sv, "app.js"sv, ""sv, "/app.js/x"sv, "/app.js/"sv, "/app.js\0.html"sv}) {
    EXPECT_EQ(body(path), "nothing") << path;
  }
}

}  // namespace
}  // namespace bankml::test
