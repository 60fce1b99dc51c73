// Expressions and tests of the template dialect: docs/chat-templates.md 3.4 and the end of 3.5.
#include "text/template_helpers.hpp"

namespace bankml::jinja {
namespace {

TEST(TemplateExpressions, BindByPrecedence) {
  expect_rows({
      {"{{ 2 + 3 * 4 }}", "14"},
      {"{{ (2 + 3) * 4 }}", "20"},
      {"{{ 1 - 2 - 3 }}", "-4"},
      {"{{ 1 if 0 else 2 if 0 else 3 }}", "3"},
      {"{{ (1 if 1) + 1 }}", "2"},
      {"{{ 1 or 2 and 0 }}", "1"},
      {"{{ not 1 == 2 }}", "True"},
      {"{{ not 'a' in 'b' }}", "True"},
      {"{{ 'a' ~ 'b'|upper }}", "aB"},
      {"{{ 'a'|upper is string }}", "True"},
      {"{{ 7 is odd and 3 is odd }}", "True"},
      {"{{ 'a' is string is true }}", "True"},
      {"{{ 1 - -2 }}{{ --1 }}{{ +5 }}", "315"},
      {"{{ 3 == 3 == true }}", "True"},
  });
}

TEST(TemplateExpressions, ApplyASignBeforeAFilter) {
  expect_rows({{"{{ -1|abs }}", "1"}, {"{% set x = 3 %}{{ -x|abs }}", "3"}, {"{{ 5 -1 }}", "4"}});
}

TEST(TemplateExpressions, LeaveTheElseOfAConditionalOut) {
  expect_rows({{"{{ 'a' if false }}|", "|"},
               {"{{ ('a' if false) is undefined }}", "True"},
               {"{{ 'a' if true else 'b' }}", "a"}});
}

TEST(TemplateExpressions, TakeEmptyThingsForFalse) {
  for (const char* falsy : {"unknown", "none", "false", "0", "0.0", "''", "[]", "{}"}) {
    EXPECT_EQ(render(std::string("{{ 'yes' if ") + falsy + " else 'no' }}"), "no") << falsy;
  }
  for (const char* truthy : {"true", "-1", "0.5", "' '", "[none]", "{'a': none}", "range"}) {
    EXPECT_EQ(render(std::string("{{ 'yes' if ") + truthy + " else 'no' }}"), "yes") << truthy;
  }
}

TEST(TemplateExpressions, ReturnOperandsFromAndAndOr) {
  expect_rows({{"{{ 1 or 2 }}{{ 0 or 'x' }}{{ '' and 1 }}|{{ 1 and 'y' }}", "1x|y"}, {"{{ unknown or none }}|", "|"}});
}

TEST(TemplateExpressions, LetUndefinedSpreadThroughMembers) {
  expect_rows({
      {"{{ unknown }}|{{ unknown.a.b is undefined }}|{{ unknown[0] is undefined }}", "|True|True"},
      {"{{ none.a is undefined }}{{ (1).a is undefined }}{{ 'x'.a is undefined }}", "TrueTrueTrue"},
      {"{{ unknown + 'a' }}{{ 'a' ~ unknown }}", "aa"},
      {"{{ 'x' in unknown }}{{ unknown == none }}{{ unknown == other }}", "FalseFalseTrue"},
      {"{% for x in unknown %}x{% else %}none{% endfor %}", "none"},
  });
  expect_errors({"{{ unknown + 1 }}", "{{ unknown < 1 }}", "{{ unknown * 2 }}", "{{ unknown() }}", "{{ unknown.f() }}",
                 "{{ unknown + [1] }}", "{{ unknown in [1] }}", "{{ unknown[1:] }}"});
}

TEST(TemplateExpressions, TreatNoneAsEmptyTextOnlyNextToAString) {
  expect_rows({{"{{ none }}|{{ none + 'a' }}{{ 'a' ~ none }}|{{ [none] ~ '' }}|{{ none|string }}", "|aa|[None]|None"}});
  expect_errors({"{{ none + 1 }}", "{{ none + none }}", "{{ none < 1 }}", "{{ 1 in none }}"});
}

TEST(TemplateExpressions, CompareBooleansWithNumbers) {
  expect_rows({{"{{ true }}{{ False }}", "TrueFalse"},
               {"{{ true == 1 }}{{ false == 0 }}{{ true == 1.0 }}{{ 1 == 1.0 }}", "TrueTrueTrueTrue"}});
  expect_errors({"{{ true + 1 }}", "{{ -true }}", "{{ true < 2 }}"});
}

TEST(TemplateExpressions, ComputeInDouble) {
  expect_rows({
      {"{{ 7 + 2 }} {{ 7 - 2 }} {{ 7 * 2 }} {{ 7 % 3 }}", "9 5 14 1"},
      {"{{ 4 / 2 }} {{ 3 / 2 }} {{ 1 / 3 }}", "2.0 1.5 0.333333"},
      {"{{ -7 % 3 }} {{ 7.5 % 2 }}", "-1 1.5"},
      {"{{ 1 / 0 }}", "inf"},
      {"{{ 9223372036854775807 + 1 }}", "-9223372036854775808"},
      {"{{ 7 - 2.0 }} {{ 2.5 * 2 }}", "5.0 5.0"},
  });
  expect_errors(
      {"{{ 'a' - 'b' }}", "{{ [1] * 2 }}", "{{ '%s' % 'a' }}", "{{ - 'a' }}", "{{ 'ab' * 1.5 }}", "{{ [1] - [2] }}"});
}

TEST(TemplateExpressions, PrintFloatsWithUpToSixDecimals) {
  expect_rows({{"{{ 2.0 }} {{ 0.1 }} {{ 0.1 + 0.2 }} {{ 1000000.0 }} {{ 123456789.125 }} {{ 0.0000001 }} {{ -0.5 }}",
                "2.0 0.1 0.3 1000000.0 123456789.125 0.0 -0.5"}});
}

TEST(TemplateExpressions, ConcatenateWhenOneSideIsAString) {
  expect_rows({
      {"{{ 'a' + 1 }}{{ 1.5 + 'a' }}{{ 'a' + true }}", "a11.5aaTrue"},
      {"{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }}", "a1True1.0"},
      {"{{ 1 + 2 + 'a' + 3 + 4 }}", "3a34"},
      {"{{ [1] + 'x' }}{{ {'a': 1} ~ '' }}", "[1]x{'a': 1}"},
      {"{{ 'ab' * 3 }}{{ 2 * 'c' }}{{ 'x' * 0 }}{{ 'x' * -1 }}", "abababcc"},
      {"{{ [1] + [2] }}", "12"},
  });
  expect_errors({"{{ 1 ~ 2 }}", "{{ 1 + 2 ~ 3 }}", "{{ [1] ~ [2] }}", "{{ [1] + none }}"});
}

TEST(TemplateExpressions, OrderNumbersOnly) {
  expect_rows({{"{{ 1.5 < 2 }}{{ 2 >= 2 }}{{ 3 > 4 }}{{ 3 <= 4 }}", "TrueTrueFalseTrue"}});
  expect_errors({"{{ 'a' < 'b' }}", "{{ 'a' < 1 }}", "{{ [1] < [2] }}", "{{ 1 < 2 < 3 }}"});
}

TEST(TemplateExpressions, CompareByValue) {
  expect_rows({
      {"{{ [1] == [1] }}{{ [1] == [2] }}{{ {'a': 1} == {'a': 1} }}", "TrueFalseTrue"},
      {"{{ '1' == 1 }}{{ none == none }}{{ none != 1 }}{{ (1, 2) == [1, 2] }}", "FalseTrueTrueFalse"},
  });
}

TEST(TemplateExpressions, FindMembers) {
  expect_rows({
      {"{{ 'b' in 'abc' }}{{ 1 in [1, 2] }}{{ 'k' in {'k': 0} }}{{ 1 in {'a': 1} }}", "TrueTrueTrueFalse"},
      {"{{ 'a' not in 'b' }}{{ none in [none] }}{{ '1' in [1] }}", "TrueTrueFalse"},
  });
  expect_errors({"{{ 1 in 'a1' }}", "{{ 1 in 5 }}", "{{ [1] in {'a': 1} }}", "{{ none in 'abc' }}"});
}

TEST(TemplateExpressions, PrintListsElementByElement) {
  expect_rows({
      {"{{ ['a', ['b', 1.5, none, true], {'k': 1}] }}", "ab1.5True"},
      {"{{ {'a': 1} }}|{{ range }}|{{ 'x'.upper }}", "||"},
      {"{{ (1, 2) }}", "12"},
  });
}

TEST(TemplateExpressions, TurnContainersToPythonLikeText) {
  expect_rows({
      {"{{ ['a', 1.5, none, true, {'k': [1]}] ~ '' }}", "['a', 1.5, None, True, {'k': [1]}]"},
      {"{{ [\"it's\", 'q\"', 'n\\n'] ~ '' }}", "[\"it's\", 'q\"', 'n\n']"},
      {"{{ {'a': 1}.items() ~ '' }}{{ (1, 'a') ~ '' }}{{ [] ~ '' ~ {} }}", "[('a', 1)](1, 'a')[]{}"},
      {"{{ {1: none} ~ '' }}", "{1: None}"},
  });
  expect_errors({"{{ range ~ '' }}"});
}

TEST(TemplateExpressions, TakeElementsOfListsAndBytesOfStrings) {
  expect_rows({
      {"{{ [1, 2, 3][0] }}{{ [1, 2, 3][-1] }}{{ [1, 2, 3][5] is undefined }}", "13True"},
      {"{{ 'abc'[0] }}|{{ 'abc'[-1] }}|{{ 'abc'[5] }}|", "a|||"},
      {"{{ [1, 2].0 }}{{ [[1, 2]][0][1] }}", "12"},
      {"{{ [1]['x'] is undefined }}{{ {'a': 1}[0] is undefined }}", "TrueTrue"},
      {"{{ {'a': 1}[unknown] is undefined }}", "True"},
  });
  expect_errors({"{{ [1][none] }}", "{{ [1, 2][true] }}", "{{ 'abc'[1.0] }}", "{{ 1[0] }}", "{{ {'a': 1}[[1]] }}",
                 "{{ range.x }}"});
}

TEST(TemplateExpressions, Slice) {
  expect_rows({
      {"{{ 'abcdef'[1:4] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[4:1:-1] }}",
       "bcd ef ace fedcba edc"},
      {"{{ [1,2,3][-2:] }} {{ [1,2,3][:-1] }} {{ [1,2,3][10:] }}|{{ [1,2,3][:10] }} {{ [1,2,3][::-2] }}",
       "23 12 |123 31"},
      {"{{ [1,2,3][5:1] }}|{{ [1,2,3][-10:2] }}|{{ [1,2,3][2:-10:-1] }}|{{ [1,2,3][10::-1] }}|{{ [1,2,3][:0:-1] }}",
       "|12|321|321|32"},
      {"{{ [1, 2, 3][1:-9223372036854775807] }}|{{ [1, 2, 3][::9223372036854775807] }}", "|1"},
  });
  expect_errors({"{{ [1][::0] }}", "{{ [1][none:] }}", "{{ 'abc'['1':] }}", "{{ {'a': 1}[1:] }}", "{{ none[1:] }}"});
}

TEST(TemplateExpressions, PreferMethodsAfterADotAndKeysInBrackets) {
  expect_rows({
      {"{{ {'items': 1}.items }}|{{ {'items': 1}['items'] }}", "|1"},
      {"{{ {'get': 1}.get }}{{ {'keys': 1}.keys }}{{ {'values': 1}.values }}{{ {'length': 1}.length }}|", "|"},
      {"{{ {'upper': 1}.upper }}{{ {'count': 4}.count }}", "14"},
      {"{{ {'a': 1}['items']() ~ '' }}{{ 'x'['upper']() }}", "[('a', 1)]X"},
      {"{{ 'x'.upper() }}{{ {'a': 2}.a }}", "X2"},
  });
}

TEST(TemplateExpressions, KeepTheOrderOfDicts) {
  expect_rows({
      {"{{ {'b': 1, 'a': 2, 'b': 3} ~ '' }}", "{'b': 3, 'a': 2}"},
      {"{{ {1: 2}[1] }}{{ {true: 3}[true] }}{{ {none: 3}[none] }}{{ {(1, 2): 4}[(1, 2)] }}", "2334"},
      {"{{ {'a': 1,} ~ '' ~ [1,] }}", "{'a': 1}[1]"},
  });
  expect_errors({"{{ {unknown: 1} }}", "{{ {[1]: 1} }}"});
}

TEST(TemplateExpressions, CallWithPositionalKeywordAndSpreadArguments) {
  expect_rows({
      {"{% macro m(a, b) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1, 2) }} {{ m(b=1, a=2) }} {{ m(*[3, 4]) }}",
       "1-2 2-1 3-4"},
      {"{% set f = range %}{{ f(3) }}", "012"},
  });
  expect_errors({"{{ 1() }}", "{{ nofunction() }}", "{{ 'a'.nomethod() }}"});
}

TEST(TemplateExpressions, ReadLiterals) {
  expect_rows({
      {"{{ 'a' 'b' \"c\" }}", "abc"},
      {R"({{ 'a\n\t\\\'\"b' }})", "a\n\t\\'\"b"},
      {"{{ 'real\nnewline' }}", "real\nnewline"},
      {"{{ true }}{{ True }}{{ none }}{{ None }}|{{ 12 }}{{ 1.50 }}", "TrueTrue|121.5"},
  });
  expect_errors({R"({{ 'a\qb' }})", R"({{ 'a\u0041' }})", "{{ 1_000 }}", "{{ 1e5 }}", "{{ .5 }}", "{{ 1. }}",
                 "{{ (1,) }}", "{{ () }}", "{{ 5 // 2 }}", "{{ 2 ** 3 }}", "{{ 99999999999999999999 }}", "{{ 'open }}",
                 "{{ 1, 2 }}", "{{ }}", "{{ a b }}"},
                "line 1");
}

// Rows: a test. Columns: undefined, none, 'a', 'A', '', 1, 1.5, true, false, 0, [1], {'a': 1}, (1, 2), range. E: an
// error.
TEST(TemplateExpressions, AnswerTests) {
  constexpr std::string_view kValues[] = {"unknown", "none",  "'a'", "'A'", "''",       "1",      "1.5",
                                          "true",    "false", "0",   "[1]", "{'a': 1}", "(1, 2)", "range"};
  constexpr Row kRows[] = {
      {"defined", "FTTTTTTTTTTTTT"},        {"undefined", "TFFFFFFFFFFFFF"},    {"none", "FTFFFFFFFFFFFF"},
      {"string", "FFTTTFFFFFFFFF"},         {"number", "FFFFFTTFFTFFFF"},       {"integer", "FFFFFTFFFTFFFF"},
      {"float", "FFFFFFTFFFFFFF"},          {"boolean", "FFFFFFFTTFFFFF"},      {"true", "FFFFFFFTFFFFFF"},
      {"false", "FFFFFFFFTFFFFF"},          {"mapping", "FFFFFFFFFFFTFF"},      {"sequence", "TFTTTFFFFFTFTF"},
      {"iterable", "TFTTTFFFFFTFTF"},       {"callable", "FFFFFFFFFFFFFT"},     {"odd", "EEEEETEEEFEEEE"},
      {"even", "EEEEEFEEETEEEE"},           {"lower", "EETFTEEEEEEEEE"},        {"upper", "EEFTTEEEEEEEEE"},
      {"divisibleby(2)", "EEEEEFEEETEEEE"}, {"in([1, 'a'])", "FFTFFTFTFFFFFF"}, {"eq(1)", "FFFFFTFFFFFFFF"},
      {"equalto('a')", "FFTFFFFFFFFFFF"},   {"ne(1)", "FFTTTFTFFTFFFF"},        {"lt(2)", "FFFFTTTFFTFFFF"},
      {"lessthan(2)", "FFFFTTTFFTFFFF"},    {"gt(0)", "FFTTFTTFFFFFFF"},        {"greaterthan(0)", "FFTTFTTFFFFFFF"},
      {"ge(1)", "FFTTFTTFFFFFFF"},          {"le(1)", "EEEEEEEEEEEEEE"},        {"sameas(1)", "EEEEEEEEEEEEEE"},
  };
  for (const Row& row : kRows) {
    std::string answers;
    for (const std::string_view value : kValues) {
      try {
        answers += render(std::string("{{ ").append(value).append(" is ").append(row.source).append(" }}"))[0];
      } catch (const Error&) {
        answers += 'E';
      }
    }
    EXPECT_EQ(answers, row.expected) << row.source;
  }
  expect_rows({{"{{ 1 is not none }}{{ unknown is not defined }}", "TrueTrue"}});
  expect_errors({"{{ 4 is divisibleby(0) }}", "{{ 1 is eq }}", "{{ 4 is divisibleby 2 }}"});
}

}  // namespace
}  // namespace bankml::jinja
