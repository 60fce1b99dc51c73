#pragma once
// Renders template snippets for the tests of the dialect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/base/error.hpp"
#include "text/template/interpreter.hpp"
#include "text/template/parser.hpp"

namespace bankml::jinja {

inline std::string render(std::string_view source, std::string_view variables = "{}", const Limits& limits = {}) {
  const Program program = parse(source, limits);
  const boost::json::value json = boost::json::parse(variables);
  Heap heap(limits);
  Interpreter interpreter(program, heap);
  for (const auto& member : json.as_object()) interpreter.set(member.key(), heap.from_json(member.value()));
  return interpreter.run();
}

struct Row {
  std::string_view source, expected;
};
inline void expect_rows(std::initializer_list<Row> rows, std::string_view variables = "{}") {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.source);
    try {
      EXPECT_EQ(render(row.source, variables), row.expected);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

// Every source fails with invalid_request and a message that has `part` in it.
inline void expect_errors(const std::vector<std::string>& sources, std::string_view part = "",
                          const Limits& limits = {}) {
  for (const std::string& source : sources) {
    SCOPED_TRACE(source);
    try {
      ADD_FAILURE() << "rendered: " << render(source, "{}", limits);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string(part)));
    }
  }
}

}  // namespace bankml::jinja
