// Functions, filters and methods of the template dialect: docs/chat-templates.md 3.5.
#include <ctime>

#include "text/template_helpers.hpp"

namespace bankml::jinja {
namespace {

TEST(TemplateBuiltins, DefaultReplacesUndefinedAndNone) {
  expect_rows({
      {"{{ unknown|default('a') }}{{ none|default('b') }}{{ ''|default('c') }}{{ ''|default('d', true) }}", "abd"},
      {"{{ 0|default('e', boolean=true) }}{{ unknown|d('f') }}{{ unknown.default('g') }}", "efg"},
      {"{{ false|default('x') }}{{ []|default('a') }}{{ []|default('y', true) }}", "Falsey"},
  });
  expect_errors({"{{ {}|default('a') }}", "{{ unknown|default }}", "{{ 'a'|default('b', 1, 2) }}"});
}

TEST(TemplateBuiltins, StringAndSafe) {
  expect_rows({
      {"{{ 1|string }}{{ true|string }}{{ none|string }}{{ unknown|string }}{{ [1, 'a']|string }}",
       "1TrueNone[1, 'a']"},
      {"{{ 1.0|string }}{{ 1.5|string }}", "11.5"},
      {"{{ 'a'|safe }}{{ 1|safe }}{{ none|safe }}{{ unknown|safe }}", "a1None"},
  });
  expect_errors({"{{ [1]|safe }}", "{{ range|string }}"});
}

TEST(TemplateBuiltins, ChangeTheCaseOfAsciiOnly) {
  expect_rows({
      {"{{ 'aB c'|upper }}{{ 'aB'|lower }}{{ 'äÄ'|upper }}", "AB CabäÄ"},
      {"{{ 'hello world-x'|title }}{{ 'hELLO\\twORLD'|title }}", "Hello World-xHello\tWorld"},
      {"{{ 'hELLO wORLD'|capitalize }}", "Hello world"},
      {"{{ 1|upper }}{{ none|upper }}{{ [1, 'a']|upper }}{{ true|lower }}{{ {'a': 1}|title }}",
       "1NONE[1, 'A']true{'a': 1}"},
  });
}

TEST(TemplateBuiltins, Strip) {
  expect_rows({
      {"{{ ' a '|trim }}|{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|", "a|a|a | a|"},
      {"{{ 'xxaxx'.strip('x') }}{{ 'xyaxy'|trim('xy') }}{{ 'xxa'.lstrip('x') }}{{ 'axx'.rstrip('x') }}", "aaaa"},
      {"{{ '\\n\\ta\\r\\n\\v\\f'|trim }}|{{ 1|trim }}|{{ none|trim }}|{{ '  '|trim }}|", "a|1|None||"},
      {"{{ 'a'.strip(chars='a') }}|", "|"},
  });
  expect_errors({"{{ 1|lstrip }}", "{{ none|rstrip }}"});
}

TEST(TemplateBuiltins, LengthCountsBytes) {
  expect_rows({{"{{ 'héé'|length }}{{ 'abc'|count }}{{ 'abc'.length() }}{{ [1]|length }}{{ {'a': 1}|length }}{{ "
                "unknown|length }}",
                "533110"},
               {"{{ {'a': 1}|count }}{{ [1]|count }}", "11"}});
  expect_errors({"{{ none|length }}", "{{ 1|length }}"});
}

TEST(TemplateBuiltins, StartsWithAndEndsWithTakeOneString) {
  expect_rows({{"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('bc') }}{{ 'abc'|startswith('b') }}", "TrueTrueFalse"}});
  expect_errors({"{{ 'abc'.startswith(('a', 'b')) }}", "{{ 'abc'.startswith() }}", "{{ 'abc'.endswith(1) }}"});
}

TEST(TemplateBuiltins, SplitAtOneSpaceUnlessToldOtherwise) {
  expect_rows({
      {"{{ 'a b  c'.split()|string }}{{ 'a\\nb'.split()|string }}", "['a', 'b', '', 'c']['a\nb']"},
      {"{{ 'a,b,c'.split(',')|string }}{{ 'a,b,c'.split(',', 1)|string }}{{ ',a,'.split(',')|string }}{{ "
       "''.split(',')|string }}",
       "['a', 'b', 'c']['a', 'b,c']['', 'a', '']['']"},
      {"{{ 'a,b,c'.rsplit(',', 1)|string }}{{ 'aXXbXXc'.rsplit('XX')|string }}{{ 'a,b'.split(',', 0)|string }}",
       "['a,b', 'c']['a', 'b', 'c']['a,b']"},
      {"{{ '<think>x</think>y'.split('</think>')[-1].lstrip('\\n') }}", "y"},
  });
  expect_errors({"{{ 'a'.split('') }}", "{{ 'a b'.split(' ', maxsplit=1) }}", "{{ 1|split }}"});
}

TEST(TemplateBuiltins, ReplaceEveryOccurrence) {
  expect_rows(
      {{"{{ 'aab'.replace('a', 'xy') }}{{ 'aab'|replace('a', '') }}{{ 'ab'|replace('', '-') }}", "xyxybb-a-b-"}});
  expect_errors({"{{ 'a'.replace('a', 'x', 1) }}", "{{ 'a'|replace('a') }}", "{{ 'a'|replace(1, 2) }}",
                 "{{ 1|replace('1', '2') }}"});
}

TEST(TemplateBuiltins, FormatPlainPlaceholders) {
  expect_rows({{"{{ 'a{}b{}'.format(1, 'x') }}{{ '{}'.format([1, 'a']) }}{{ '{}'.format(none) }}{{ '%s'|format('a') }}",
                "a1bx[1, 'a']None%s"}});
  expect_errors({"{{ '{0}'.format(1) }}", "{{ '{}{}'.format(1) }}", "{{ '{y}'.format(y=1) }}", "{{ 'a{'.format(1) }}"});
}

TEST(TemplateBuiltins, ConvertToNumbers) {
  expect_rows({
      {"{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '4.7'|int }} {{ 4.7|int }} {{ ' 42 '|int }} {{ '12abc'|int }}",
       "42 0 7 4 4 42 12"},
      {"{{ -3.9|int }} {{ 'a'|int(default=5) }} {{ '1f'|int(base=16) }} {{ '99999999999999999999'|int(3) }} {{ "
       "true|int }}",
       "-3 5 31 3 1"},
      {"{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2) }} {{ 1|float }} {{ '1e3'|float }}",
       "1.5 0.0 2.0 1.0 1000.0"},
      {"{{ (-1.5)|abs }} {{ -5|abs }}", "1.5 5"},
  });
  expect_errors({"{{ none|int }}", "{{ unknown|float }}", "{{ 'a'|abs }}", "{{ true|abs }}", "{{ [1]|int }}",
                 "{{ '1'|int(0, 99) }}"});
}

TEST(TemplateBuiltins, Indent) {
  expect_rows({
      {"{{ 'a\\nb'|indent(2) }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(2) }}|{{ 'a\\nb\\n'|indent(2) }}|",
       "a\n  b|  a\n  b|a\n\n  b|a\n  b\n|"},
      {"{{ 'a\\nb'|indent }}|{{ 'a\\nb'|indent('xx') }}|{{ '\\na'|indent(2, true) }}", "a\n    b|a\nxxb|  \n  a"},
      {"{{ 'a\\n\\nb'|indent(2, blank=true) }}", "a\n  \n  b"},
  });
  expect_errors({"{{ 'a'|indent(-1) }}", "{{ none|indent }}"});
}

TEST(TemplateBuiltins, SliceTakesThreeNumbers) {
  expect_rows(
      {{"{{ [1, 2, 3, 4]|slice(0, 4, 2) }}{{ [1, 2, 3]|slice(3, 0, -1) }}{{ 'abc'|slice(0, 2, 1) }}", "1332ab"}});
  expect_errors({"{{ [1]|slice(2) }}", "{{ [1]|slice }}", "{{ 'abc'|slice(1, 2) }}"});
}

TEST(TemplateBuiltins, JoinStringsAndNumbers) {
  expect_rows({
      {"{{ ['a', 'b', 1]|join(', ') }}{{ ['a', 'b']|join }}{{ [1.5, 2]|join('-') }}{{ ['a', 'b']|join(1) }}",
       "a, b, 1ab1.5-2a1b"},
      {"{{ [{'x': 'a'}, {'x': 'b'}]|join(',', attribute='x') }}{{ unknown|join(',') }}{{ ['a', 'b']|join(d='+') }}",
       "a,ba+b"},
  });
  expect_errors({"{{ [none]|join }}", "{{ [true]|join }}", "{{ [[1]]|join }}", "{{ 'abc'|join }}",
                 "{{ ','.join(['a']) }}", "{{ {'a': 1}|join }}"});
}

TEST(TemplateBuiltins, TakeTheEndsOfLists) {
  expect_rows(
      {{"{{ [1, 2]|first }}{{ [1, 2]|last }}{{ []|first is undefined }}{{ unknown|last is undefined }}{{ (1, "
        "2)|list|string }}",
        "12TrueTrue[1, 2]"}});
  expect_errors({"{{ 'abc'|first }}", "{{ 'abc'|list }}", "{{ {'a': 1}|first }}", "{{ none|list }}"});
}

TEST(TemplateBuiltins, MapAttributes) {
  expect_rows(
      {{"{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|string }}{{ [{'a': 1}, {}]|map(attribute='a', default=5)|string "
        "}}{{ [[1, 2]]|map(attribute=1) }}",
        "[1, 2][1, 5]2"}});
  expect_errors({"{{ ['a']|map('upper') }}", "{{ [1]|map }}", "{{ {'a': 1}|map(attribute='a') }}"});
}

TEST(TemplateBuiltins, SelectElements) {
  expect_rows({
      {"{{ [{'a': 1}, {'a': 0}, {}]|selectattr('a')|list|length }}{{ [{'a': 1}, {'a': 0}, {}]|rejectattr('a')|length "
       "}}",
       "12"},
      {"{{ [{'a': 1}, {'a': 2}]|selectattr('a', 'equalto', 2)|string }}{{ [{'a': 'x'}]|selectattr('a', 'in', "
       "['x'])|length }}",
       "[{'a': 2}]1"},
      {"{{ [{'a': 1}, {'b': 2}]|rejectattr('a', 'eq', 1)|string }}", "[{'b': 2}]"},
      {"{{ [0, 1, 2]|select('equalto', 1)|string }}{{ [0, 1, 2]|reject('equalto', 1)|string }}{{ [{'a': "
       "1}]|select('a')|length }}",
       "[1][0, 2]1"},
  });
  expect_errors({"{{ [1]|selectattr('a') }}", "{{ [{}]|selectattr('a', 'defined') }}",
                 "{{ [{'a': 1}]|selectattr('a', 'nosuch', 1) }}", "{{ [1]|select }}"});
}

TEST(TemplateBuiltins, SortAndExtremes) {
  expect_rows({
      {"{{ [3, 1, 2]|sort }}{{ [3, 1, 2]|sort(true) }}{{ ['b', 'a', 'C']|sort }}{{ [{'a': 2}, {'a': "
       "1}]|sort(attribute='a')|string }}",
       "123321Cab[{'a': 1}, {'a': 2}]"},
      {"{{ [3, 1, 2]|min }}{{ [3, 1, 2]|max }}{{ ['b', 'a']|min }}{{ []|min is undefined }}{{ [1, 'a']|max }}",
       "13aTruea"},
      {"{{ [1, 2, 3]|reverse|string }}", "[3, 2, 1]"},
  });
  expect_errors({"{{ [{'a': 1}]|min(attribute='a') }}", "{{ 'abc'|reverse }}", "{{ [1, 1]|unique }}"});
}

TEST(TemplateBuiltins, AppendAndPopChangeTheList) {
  expect_rows({
      {"{% set l = [1] %}{{ l.append(2) }}|{{ l|length }}", "12|2"},
      {"{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}|{{ l }}", "31|2"},
  });
  expect_errors({"{{ [].pop() }}", "{{ [1].pop(3) }}", "{{ [1].append() }}"});
}

TEST(TemplateBuiltins, ReadDicts) {
  expect_rows({
      {"{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b', 3) }}{{ {'a': 1}.get('b') is none }}", "13True"},
      {"{{ {'a': 1, 'b': 2}.keys()|string }}{{ {'a': 1}.values()|string }}{{ {'a': 1}|items|string }}",
       "['a', 'b'][1][('a', 1)]"},
      {"{{ {'b': 1, 'a': 2}|dictsort|string }}{{ {'b': 1, 'a': 2}|dictsort(by='value')|string }}{{ {'b': 1, 'a': "
       "2}|dictsort(reverse=true)|string }}",
       "{'a': 2, 'b': 1}{'b': 1, 'a': 2}{'b': 1, 'a': 2}"},
      {"{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}", "a2b1"},
  });
  expect_errors({"{{ {'a': 1}.get() }}", "{{ {'a': 1}.update({}) }}", "{{ {'a': 1}.pop('a') }}", "{{ [1]|items }}"});
}

TEST(TemplateBuiltins, GiveEmptyResultsForUndefined) {
  for (const char* filter : {"upper", "trim", "replace('a', 'b')", "join(',')", "string"}) {
    EXPECT_EQ(render(std::string("{{ (unknown|") + filter + ") is string }}"), "True") << filter;
  }
  for (const char* filter :
       {"list", "map(attribute='a')", "selectattr('a')", "reject('eq', 1)", "sort", "reverse", "unique", "items"}) {
    EXPECT_EQ(render(std::string("{{ unknown|") + filter + "|string }}"), "[]") << filter;
  }
  expect_errors({"{{ unknown|tojson }}", "{{ unknown|dictsort }}", "{{ unknown|split(',') }}", "{{ unknown|indent }}",
                 "{{ unknown|lstrip }}", "{{ unknown|abs }}"});
}

TEST(TemplateBuiltins, WriteJson) {
  expect_rows({
      {"{{ {'a': [1, 2.5, 'x\"\\n', none, true, {}, []]}|tojson }}", R"({"a": [1, 2.5, "x\"\n", null, true, {}, []]})"},
      {"{{ {'a': [1], 'b': {}}|tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
      {"{{ {'a': 1}|tojson(false, 4) }}{{ [1]|tojson(indent=0) }}", "{\n    \"a\": 1\n}[\n1\n]"},
      {"{{ [1, 2]|tojson(indent=none) }}{{ [1, 2]|tojson(separators=(',', ':')) }}{{ {'a': 1}|tojson(separators=(',', "
       "':')) }}",
       "[1, 2][1,2]{\"a\":1}"},
      {"{{ 'é😀'|tojson }}{{ 'é😀'|tojson(ensure_ascii=true) }}", "\"é😀\"\"\\u00e9\\ud83d\\ude00\""},
      {"{{ '<>&/\\b\\f\\v'|tojson }}", "\"<>&/\\b\\f\\u000b\""},
      {"{{ 0.1234567|tojson }} {{ 1000000.0|tojson }} {{ 2.0|tojson }} {{ [unknown]|tojson }}",
       "0.123457 1e+06 2 [null]"},
      {"{{ tojson({'b': 1, 'a': 2}) }}{{ {1: 2}|tojson }}{{ (1, 2)|tojson }}", "{\"b\": 1, \"a\": 2}{\"1\": 2}[1, 2]"},
  });
  expect_errors({"{{ {}|tojson(sort_keys=true) }}", "{{ range|tojson }}"});
}

TEST(TemplateBuiltins, OfferGlobalFunctions) {
  expect_rows({
      {"{{ range(3) }}|{{ range(1, 3) }}|{{ range(5, 0, -2) }}|{{ range(0) }}|{{ range(1, 4)|string }}",
       "012|12|531||[1, 2, 3]"},
      {"{% set ns = namespace(a=1, b='x') %}{% set ns.a = 5 %}{{ ns.a }}{{ ns.b }}{{ ns.c is undefined }}", "5xTrue"},
  });
  expect_errors({"{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ range() }}", "{{ range(2.5) }}", "{{ namespace(1) }}",
                 "{{ strftime_now() }}"});
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  EXPECT_EQ(render("{{ strftime_now('%Y') }}"), std::to_string(1900 + local.tm_year));
}

TEST(TemplateBuiltins, RaiseTheTemplatesOwnText) {
  try {
    render("a\n{{ raise_exception('roles must alternate') }}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_STREQ(error.what(), "roles must alternate");
  }
}

TEST(TemplateBuiltins, ResolveNamesOnlyWhenReached) {
  expect_rows({{"{% if false %}{{ 'a'|nofilter }}{{ 'a' is notest }}{{ nofunction() }}{% endif %}ok", "ok"}});
  expect_errors({"{{ 'a'|nofilter }}"}, "nofilter");
  expect_errors({"{{ 'a' is notest }}"}, "notest");
  expect_errors({"{{ nofunction() }}"}, "nofunction");
  expect_errors({"{{ '{}'|from_json }}", "{{ [1, 2]|sum }}", "{{ 'z'|wordcount }}"});
}

}  // namespace
}  // namespace bankml::jinja
