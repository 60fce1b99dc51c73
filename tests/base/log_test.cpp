#include "bankml/base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Log : public ::testing::Test {
 protected:
  void TearDown() override {
    configure_log({});
    std::filesystem::remove(file_);
  }
  std::string written() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string file_ = (std::filesystem::temp_directory_path() / ("bankml-log-" + std::to_string(::getpid()))).string();
};

TEST_F(Log, WritesToTheFileAsWell) {
  configure_log({.file = file_, .level = false, .time = false});
  log_info("loaded {} tensors", 3);
  EXPECT_EQ(written(), "loaded 3 tensors\n");
}

TEST_F(Log, DropsWhatIsAboveItsVerbosity) {
  configure_log({.verbosity = 2, .file = file_});
  log_info("small talk");
  log_warning("trouble");
  EXPECT_THAT(written(), HasSubstr("warning trouble\n"));
  EXPECT_THAT(written(), Not(HasSubstr("small talk")));
}

TEST_F(Log, VerbosityZeroIsSilent) {
  configure_log({.verbosity = 0, .file = file_});
  log_error("trouble");
  EXPECT_EQ(written(), "");
}

TEST_F(Log, EscapesTextInJsonLines) {
  configure_log({.file = file_, .json_lines = true});
  log_info("a \"b\"\n{}", "c\\d");
  EXPECT_THAT(written(), HasSubstr(R"("level":"info","message":"a \"b\"\u000ac\\d"})"));
}

TEST_F(Log, JsonLinesStayUtf8WhateverTheTextIs) {
  configure_log({.file = file_, .json_lines = true});
  log_info("{}", "caf\xC3\xA9 \xC3( \xFF\x9F \xF0\x9F\x98");
  EXPECT_THAT(written(), HasSubstr("\"message\":\"caf\xC3\xA9 \xEF\xBF\xBD( \xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\"}"));
}

TEST_F(Log, ATextWithLineEndsIsStillOneLine) {
  configure_log({.file = file_, .level = false, .time = false});
  log_info("path {}", "/a\r\n2026-01-01 error forged");
  EXPECT_EQ(written(), "path /a\\x0d\\x0a2026-01-01 error forged\n");
}

TEST_F(Log, TerminalSequencesAndBytesThatAreNoUtf8AreSpelledOut) {
  configure_log({.file = file_, .level = false, .time = false});
  log_info("{}",
           "\x1B[2J \x7F \xC2\x9B"
           "1m \xFF caf\xC3\xA9");
  EXPECT_EQ(written(), "\\x1b[2J \\x7f \\xc2\\x9b1m \\xff caf\xC3\xA9\n");
}

TEST_F(Log, SaysWhichFileCannotBeWritten) {
  EXPECT_THROW(configure_log({.file = "/dev/null/x"}), Error);
}

}  // namespace
}  // namespace bankml
