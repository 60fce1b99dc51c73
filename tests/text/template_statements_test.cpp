// White space, statements, scopes, syntax errors and limits of the template dialect: docs/chat-templates.md 3.2
// and 3.3.
#include "text/template_helpers.hpp"

namespace bankml::jinja {
namespace {

TEST(TemplateWhiteSpace, DropsOneNewlineAtTheEndOfTheSource) {
  expect_rows(
      {{"a\n", "a"}, {"a\n\n", "a\n"}, {"a\r\n", "a"}, {"a\r\nb", "a\nb"}, {"a\rb", "a\rb"}, {"", ""}, {"\n", ""}});
}

TEST(TemplateWhiteSpace, DropsTheNewlineBehindBlocksAndComments) {
  expect_rows({
      {"a{% if true %}\nb{% endif %}\nc", "abc"},
      {"a{# x #}\nb", "ab"},
      {"a{{ 1 }}\nb", "a1\nb"},
      {"a{% if true %}\n\nb{% endif %}", "a\nb"},
      {"a{% if true %} \nb{% endif %}", "a \nb"},
  });
}

TEST(TemplateWhiteSpace, DropsIndentationBeforeBlocksAndComments) {
  expect_rows({
      {"a\n  {% if true %}b{% endif %}", "a\nb"},
      {"a\n \t{# x #}b", "a\nb"},
      {"  {% if true %}b{% endif %}", "b"},
      {"a\n  {{ 1 }}", "a\n  1"},
      {"a  {% if true %}b{% endif %}", "a  b"},
      {"{% if true %}  {% endif %}|", "  |"},
      {"{% if true %}\n  {% endif %}|", "|"},
      {"{% if true %}x\n  {% endif %}|", "x\n|"},
      {"x {% if true %}b{% endif %}", "x b"},
  });
}

// Every kind of tag with every combination of dashes, between the same blanks and newlines.
TEST(TemplateWhiteSpace, StripsOnTheSideOfADash) {
  struct Case {
    std::string_view tag, plain, left, right, both;
  };
  constexpr Case kCases[] = {
      // "a \n <tag> \n b" without a dash, with one at the left, at the right, at both sides
      {"{%@set x = 1@%}", "a \n \n b", "a \n b", "a \nb", "ab"},
      {"{#@ x @#}", "a \n \n b", "a \n b", "a \nb", "ab"},
      {"{{@1@}}", "a \n 1 \n b", "a1 \n b", "a \n 1b", "a1b"},
  };
  const auto fill = [](std::string_view tag, bool left, bool right) {
    std::string text = "a \n ";
    bool first = true;
    for (const char c : tag) {
      if (c != '@')
        text += c;
      else
        text += std::exchange(first, false) ? (left ? "- " : " ") : (right ? " -" : " ");
    }
    return text + " \n b";
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(render(fill(c.tag, false, false)), c.plain) << c.tag;
    EXPECT_EQ(render(fill(c.tag, true, false)), c.left) << c.tag;
    EXPECT_EQ(render(fill(c.tag, false, true)), c.right) << c.tag;
    EXPECT_EQ(render(fill(c.tag, true, true)), c.both) << c.tag;
  }
}

TEST(TemplateWhiteSpace, StripsOverSeveralLinesWithADash) {
  expect_rows({{"a\n\n \t\r\n{%- if true -%}\n\n  b\n\n{%- endif %}", "ab"}, {"a \n\n{{- 'x' -}}\n \nb", "axb"}});
}

TEST(TemplateWhiteSpace, KeepsTheFirstCharacterBeforeABlock) {
  expect_rows({{"x  {% if true %}y{% endif %}", "x  y"}});
}

TEST(TemplateLexer, ClosesATagOutsideOfDictsAndStrings) {
  expect_rows({
      {"{{ {'a': {'b': 1}}.a.b }}", "1"},
      {"{{ '}}' ~ \"%}\" }}", "}}%}"},
      {"{% set x = '%}' %}{{ x }}", "%}"},
      {"{ {a} % } #}", "{ {a} % } #}"},
  });
}

TEST(TemplateParser, ReportsLineAndColumn) {
  expect_errors({"a\n{{ 1 + }}"}, "line 2, column 8");
  expect_errors({"{% if a %}\nx"}, "endif");
  expect_errors({"{% raw %}{% endraw %}"}, "unknown statement 'raw'");
}

TEST(TemplateParser, RefusesBrokenSyntax) {
  expect_errors({"{{",
                 "{%",
                 "{#",
                 "{{ 'a",
                 "{{ 1 ",
                 "{% if %}{% endif %}",
                 "{% for x %}{% endfor %}",
                 "{% for x in y %}",
                 "{% endfor %}",
                 "{% else %}",
                 "{% include 'x' %}",
                 "{% with a = 1 %}{% endwith %}",
                 "{% do x %}",
                 "{% set %}",
                 "{% set a = b = 1 %}",
                 "{% macro %}{% endmacro %}",
                 "{% call x %}{% endcall %}",
                 "{{ a. }}",
                 "{{ a[ }}",
                 "{{ a[] }}",
                 "{{ f(1 }}",
                 "{{ {1} }}",
                 "{{ [1 }}",
                 "{{ a ! b }}",
                 "{{ $ }}",
                 "{{ a | }}",
                 "{{ a is }}",
                 "{% for x in [1] recursive %}{% endfor %}",
                 "{%+ if true %}{% endif %}",
                 "{% filter trim|upper %}{% endfilter %}",
                 "{{ not }}",
                 "{{ 1 if }}",
                 "{{ f(**a) }}"});
}

TEST(TemplateStatements, AssignNamesTuplesAndMembers) {
  expect_rows({
      {"{% set x = 1 %}{{ x }}", "1"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = [3, 4] %}{{ a }}{{ b }}", "1234"},
      {"{% set x = 1, 2 %}{{ x|string }}", "(1, 2)"},
      {"{% set d = {'a': 1} %}{% set d.b = 2 %}{{ d.b }}{{ d|length }}", "22"},
      {"{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x is string }}", "a1bTrue"},
  });
  expect_errors({"{% set x.y = 1 %}", "{% set a, b = [1, 2, 3] %}", "{% set a, b = 'xy' %}",
                 "{% set d = {} %}{% set d['b'] = 2 %}", "{% set x | upper %}a{% endset %}"});
}

TEST(TemplateStatements, ChooseABranch) {
  constexpr std::string_view kSource = "{% if x == 1 %}a{% elif x == 2 %}b{% else %}c{% endif %}";
  EXPECT_EQ(render(kSource, R"({"x": 1})"), "a");
  EXPECT_EQ(render(kSource, R"({"x": 2})"), "b");
  EXPECT_EQ(render(kSource), "c");
}

TEST(TemplateStatements, LoopOverListsAndDicts) {
  expect_rows({
      {"{% for x in [1, 2] %}{{ x }}{% endfor %}", "12"},
      {"{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}{% for k, v in {'a': 1} %}{{ k }}{{ v }}{% endfor %}",
       "aba1"},
      {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% "
       "endfor %}",
       "a112"},
      {"{% for a, b, c in [[1, 2, 3]] %}{{ c }}{% endfor %}", "3"},
      {"{% for x in [] %}{% else %}none{% endfor %}", "none"},
      {"{% for x in [1] if false else [2] %}{{ x }}{% endfor %}", "2"},
  });
  expect_errors({"{% for x in 'abc' %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in 3 %}{% endfor %}",
                 "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}"});
}

TEST(TemplateStatements, DescribeTheLoop) {
  expect_rows({
      {"{% for x in [3, 4] %}{{ loop.index0 }}{{ loop.index }}{{ loop.revindex0 }}{{ loop.revindex }}{{ loop.length "
       "}};{% endfor %}",
       "01122;12012;"},
      {"{% for x in [3, 4] %}{{ loop.first }}{{ loop.last }};{% endfor %}", "TrueFalse;FalseTrue;"},
      {"{% for x in [3, 4] %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}", "-4;3-;"},
      {"{% for x in [3] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "FalseFalse"},
      {"{% for x in [1, 2, 3] if x > 1 %}{{ x }}{{ loop.length }}{{ loop.first }};{% endfor %}", "22True;32False;"},
      {"{% for x in [1] %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}{{ loop is "
       "defined }}",
       "121False"},
  });
  expect_errors({"{% for x in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}"});
}

TEST(TemplateStatements, BreakAndContinueKeepTheTextBeforeThem) {
  expect_rows({
      {"{% for x in [1, 2, 3] %}{{ x }}{% if x == 2 %}{% break %}{% endif %},{% endfor %}", "1,2"},
      {"{% for x in [1, 2, 3] %}{{ x }}{% if x == 2 %}{% continue %}{% endif %},{% endfor %}", "1,23,"},
      {"{% for x in [1, 2] %}{% continue %}{% else %}E{% endfor %}{% for x in [1] %}a{% else %}E{% endfor %}", "Ea"},
  });
  expect_errors({"{% break %}", "a{% continue %}", "{% for x in [1] %}{% set y %}{% break %}{% endset %}{% endfor %}"});
}

TEST(TemplateScopes, ShareOneScopeAmongIterations) {
  expect_rows({
      {"{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{% endfor %}{{ x }}", "161"},
      {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
      {"{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "3"},
      {"{% for x in [1] %}{% endfor %}{{ x is defined }}", "False"},
      {"{% set x %}{% set y = 2 %}a{% endset %}{{ x }}{{ y }}", "a2"},
  });
}

TEST(TemplateScopes, RunMacrosInTheScopeOfTheirCaller) {
  expect_rows({
      {"{% macro m() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}", "5"},
      {"{% macro m() %}{% set y = 9 %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}{{ y }}", "95"},
      {"{% macro b(n) %}{% if n %}{{ n }}{{ b(n - 1) }}{% endif %}{% endmacro %}{{ b(3) }}", "321"},
      {"{% for i in [1] %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "1"},
  });
}

TEST(TemplateMacros, BindArguments) {
  expect_rows({
      {"{% macro m(a, b=2) %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=5) }}{{ m(1, 2, 3) }}{{ m(1, "
       "z=2) }}",
       "[12][13][52][12][12]"},
      {"{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1, c=9) }}", "129"},
      {"{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(4) }}|", "|"},
      {"{% macro m() %}x{% endmacro %}{% set f = m %}{{ f() }}{{ m }}", "x"},
  });
  expect_errors({"{% macro m(a) %}{% endmacro %}{{ m() }}"}, "'a'");
}

TEST(TemplateMacros, CallWithABlock) {
  expect_rows({
      {"{% macro m() %}({{ caller() }}){% endmacro %}{% call m() %}body{% endcall %}", "(body)"},
      {"{% macro m() %}({{ caller(1, 2) }}){% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}", "(1-2)"},
      {"{% macro m() %}{% set z = 3 %}{{ caller() }}{% endmacro %}{% set z = 1 %}{% call m() %}{{ z }}{% endcall %}",
       "1"},
      {"{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "False"},
      // A caller that outlives its block.
      {"{% set ns = namespace() %}{% macro m() %}{% set ns.f = caller %}{% endmacro %}{% call m() %}late{% endcall "
       "%}{{ ns.f() }}",
       "late"},
  });
  expect_errors({"{% call unknown() %}a{% endcall %}"});
}

TEST(TemplateStatements, FilterBlocksAndIgnoreGeneration) {
  expect_rows({
      {"{% filter upper %}abc{{ 'd' }}{% endfilter %}{% filter replace('a', 'b') %}abc{% endfilter %}", "ABCDbbc"},
      {"{% generation %}x{% endgeneration %}y", "xy"},
  });
}

TEST(TemplateErrors, NameTheLine) {
  expect_errors({"a\nb{{ 1 + none }}"}, "line 2");
}

// Limits

TEST(TemplateLimits, BoundTheNestingOfTheSource) {
  const auto repeat = [](std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  Limits long_source;
  long_source.source = std::size_t{4} << 20;
  for (const int times : {1000, 100000}) {
    expect_errors({"{{ " + repeat("(", times) + "1" + repeat(")", times) + " }}",
                   "{{ " + repeat("[", times) + repeat("]", times) + " }}", "{{ " + repeat("not ", times) + "1 }}",
                   "{{ " + repeat("- ", times) + "1 }}", "{{ a" + repeat(".a", times) + " }}",
                   "{{ a" + repeat("|string", times) + " }}", "{{ a" + repeat(" is string", times) + " }}",
                   "{{ a" + repeat("()", times) + " }}", "{{ 1" + repeat(" if 1 else 1", times) + " }}",
                   repeat("{% if 1 %}", times), repeat("{% for x in y %}", times)},
                  "200 levels", long_source);
  }
  EXPECT_EQ(render("{{ 0" + repeat(" + 1", 5000) + " }}"), "5000");
  EXPECT_EQ(render("{{ " + repeat("(", 100) + "1" + repeat(")", 100) + " }}"), "1");
}

TEST(TemplateLimits, BoundRecursion) {
  expect_errors({"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"}, "200 levels");
  expect_errors(
      {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "{% set l = [] %}{% set _ = l.append(l) %}{{ l|string }}",
       "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", "{% set d = {} %}{% set d.d = d %}{{ d ~ '' }}",
       "{% set l = [] %}{% set _ = l.append(l) %}{% set m = [] %}{% set _ = m.append(m) %}{{ l == m }}"},
      "200 levels");
  EXPECT_EQ(render("{% macro m(n) %}{% if n %}{% for x in [1] %}{% if x %}{{ m(n - 1) }}{% endif %}{% endfor %}{% "
                   "endif %}x{% endmacro %}"
                   "{{ m(100)|length }}"),
            "101");
}

TEST(TemplateLimits, BoundTheOutput) {
  Limits small;
  small.output = 1000;
  expect_errors(
      {"{% for i in range(100) %}0123456789_{% endfor %}", "{{ 'x' * 1001 }}", "{{ ('x' * 900)|replace('x', 'yy') }}",
       "{{ ('x' * 900)|replace('', 'y') }}", "{{ ('\\n' * 900)|indent(2, blank=true) }}",
       "{{ ['x' * 900, 'x' * 900] ~ '' }}", "{{ ['x' * 900, 'x' * 900]|tojson }}", "{{ ['x' * 900, 'x' * 900]|join }}",
       "{% set s = 'x' * 900 %}{{ s ~ s }}",
       "{% macro m() %}{{ 'x' * 600 }}{{ 'x' * 600 }}{% endmacro %}{% set s = m() %}"},
      "1000", small);
}

TEST(TemplateLimits, BoundLoops) {
  Limits small;
  small.loop_steps = 1000;
  small.range_length = 100;
  expect_errors({"{% for i in range(40) %}{% for j in range(40) %}{% endfor %}{% endfor %}",
                 "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}"},
                "1000 loop steps", small);
  expect_errors({"{{ range(101) }}", "{{ range(0, -1000, -1) }}"}, "100 elements", small);
  EXPECT_EQ(render("{{ range(100)|length }}", "{}", small), "100");
}

TEST(TemplateLimits, BoundMemoryAndWork) {
  Limits small;
  small.memory = 100'000;
  expect_errors({"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
                 "{% set l = [] %}{% for i in range(2000) %}{% set _ = l.append('x' * 100) %}{% endfor %}",
                 "{% set d = {} %}{% for i in range(2000) %}{% set d.x = {'a': i} %}{% endfor %}"},
                "memory", small);
  EXPECT_EQ(render("{% for i in range(2000) %}{% set s = 'x' * 100 %}{% endfor %}ok", "{}", small), "ok")
      << "texts are given back";
  Limits brief;
  brief.work = 10'000;
  expect_errors(
      {"{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"},
      "steps", brief);
}

// Copies that only the nesting of loops, calls and expressions keeps alive count too.
TEST(TemplateLimits, BoundTheMemoryOfNestedCopies) {
  Limits small;
  small.memory = 100'000;
  small.loop_steps = 1000;
  std::string loops, arguments = "1", texts = "'x'", names;
  for (int i = 0; i < 10; ++i) {
    loops += "{% for a in l %}";
    arguments = "m(*l, " + arguments + ")";
    texts = "('x' * 20000 ~ 'y' ~ " + texts + ")";
  }
  for (int i = 0; i < 10; ++i) loops += "{% endfor %}";
  for (int i = 0; i < 500; ++i) names += "{{ n" + std::to_string(i) + " }}";
  expect_errors({"{% set l = range(1000) %}" + loops,
                 "{% macro m() %}{% endmacro %}{% set l = range(1000) %}{{ " + arguments + " }}",
                 "{% macro m() %}{{ m(1) }}{% endmacro %}{{ " + texts + " }}",
                 "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(50) }}" + names,
                 "{% macro m(n=m()) %}{% endmacro %}{{ m() }}" + names},
                "memory", small);
  EXPECT_EQ(render("{% set l = range(1000) %}{% for i in l %}{% if loop.first %}{% for j in l[:9] %}{{ j }}{% endfor "
                   "%}{% endif %}{% endfor %}",
                   "{}", Limits{.memory = 100'000}),
            "012345678");
}

// What a step does to each byte of a long text, or to each element of a long list, is work.
TEST(TemplateLimits, BoundTheWorkOnLongValues) {
  Limits brief;
  brief.work = 100'000;
  const std::string texts =
      "{% set a = 'x' * 50000 %}{% set b = 'x' * 50000 %}{% set d = {a: 1} %}{% set w = ' ' * 50000 %}"
      "{% set l = range(9000) %}{% for i in range(1000) %}";
  for (const char* step :
       {"{% set c = a == b %}", "{% set c = d[b] %}", "{% set c = d.get(b) %}", "{% set c = w|trim|length %}",
        "{% set c = a|replace('x', '')|length %}", "{% set c = a is lower %}", "{% set c = a|int %}",
        "{% set c = a.startswith(b) %}", "{% set c = [a, b]|min|length %}", "{% set c = 5 is lt(a) %}",
        "{% set c = l|select('odd', 1)|length %}", "{% set c = l|max %}", "{% set c = 'y' in a %}"}) {
    expect_errors({texts + step + "{% endfor %}"}, "steps", brief);
  }
  // A search whose every place fails at its very end.
  const std::string late = "{% set a = 'x' * 400000 %}{% set b = 'x' * 200000 ~ 'y' %}";
  Limits normal;
  normal.work = 20'000'000;
  expect_errors({late + "{{ b in a }}", late + "{{ a|replace(b, '') }}", late + "{{ a.split(b) }}"}, "steps", normal);
}

TEST(TemplateLimits, BoundTheSource) {
  Limits small;
  small.source = 100;
  EXPECT_EQ(render(std::string(100, 'x'), "{}", small), std::string(100, 'x'));
  expect_errors({std::string(101, 'x')}, "at most 100 bytes, found 101", small);
}

}  // namespace
}  // namespace bankml::jinja
