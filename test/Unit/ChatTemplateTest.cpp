//===- ChatTemplateTest.cpp - Rendering of chat templates -----------------===//

#include "jinja/ChatTemplate.h"
#include "Sampled.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/JsonDigits.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace qwen;
using nlohmann::ordered_json;

static const std::filesystem::path kInputs =
    std::filesystem::path(QWEN_SOURCE_DIR) / "test/Inputs/tokenizer";

static std::string render(std::string_view source,
                          const char *context = R"({})") {
  return ChatTemplate::parse(source)
      .render(ordered_json::parse(context), ordered_json::object())
      .bytes();
}

/// Message of the Error that parsing or rendering throws.
static std::string errorOf(const std::string &source,
                           const char *context = "{}") {
  try {
    return "no error: " + render(source, context);
  } catch (const Error &error) {
    return error.what();
  }
}

//===----------------------------------------------------------------------===//
// Against transformers
//===----------------------------------------------------------------------===//

TEST(ChatTemplate, EqualsTransformers) {
  std::ifstream cases(kInputs / "templates.jsonl");
  ASSERT_TRUE(cases);
  std::map<std::string, int> matches;
  for (std::string line; std::getline(cases, line);) {
    const ordered_json entry = ordered_json::parse(line);
    const auto name = entry["template"].get<std::string>();
    std::ifstream file(kInputs / "templates" / name);
    std::ostringstream source;
    source << file.rdbuf();
    ordered_json context = entry["kwargs"];
    context["messages"] = entry["messages"];
    // The tokens of the tokenizer of the cases.
    context["eos_token"] = "<|im_end|>";
    context["pad_token"] = "<|endoftext|>";
    const std::string text = ChatTemplate::parse(source.str())
                                 .render(context, ordered_json::object())
                                 .bytes();
    EXPECT_EQ(text, entry["text"].get<std::string>()) << line;
    matches[name] += text == entry["text"].get<std::string>();
  }
  EXPECT_EQ(matches.size(), 6u);
  for (const auto &[name, count] : matches)
    EXPECT_EQ(count, 16) << name;
}

//===----------------------------------------------------------------------===//
// The language
//===----------------------------------------------------------------------===//

// Jinja2 3.1 gives the expected texts, with trim_blocks and lstrip_blocks.

TEST(ChatTemplate, ControlsWhiteSpace) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(render("a\n  {%+ if true +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(render("  {{ 1 }}\n  {{- 2 -}}  \n3"), "  123");
  EXPECT_EQ(render("a\n  {# note #}\nb {#- x -#} c"), "a\nbc");
  EXPECT_EQ(render("x {% if true %}y{% endif %} z"), "x y z");
  EXPECT_EQ(render("{% raw %}{{ a }}{% endraw %}!"), "{{ a }}!");
  EXPECT_EQ(render("a\r\nb\rc\n\n"), "a\nb\nc\n");
  EXPECT_EQ(render("{ {a} }%}"), "{ {a} }%}");
}

TEST(ChatTemplate, KeepsDigitsOfIntegers) {
  const std::string numbers =
      "[18446744073709551615, -123456789012345678901234, "
      "9223372036854775807, 1.5]";
  const auto rendered = [&](std::string_view source) {
    return ChatTemplate::parse(source)
        .render(parseWithDigits(R"({"a": )" + numbers + "}", "the context"),
                ordered_json::object())
        .bytes();
  };
  EXPECT_EQ(rendered("{{ a | tojson }}"), numbers);
  EXPECT_EQ(rendered("{{ a }}"), numbers);
  EXPECT_EQ(rendered("{{ a[1] | string }}{{ a[0] is integer }}"
                     "{{ a[0] is float }}{{ a[0] > a[2] }}{{ a[1] < 0 }}"),
            "-123456789012345678901234TrueFalseTrueTrue");
  EXPECT_EQ(rendered("{{ a[0] == a[0] }}{{ a[1] + 1 < 0 }}"), "TrueTrue");
}

TEST(ChatTemplate, EvaluatesExpressions) {
  EXPECT_EQ(render("{{ (1 + 2 * 3 - 7 // 2) ~ 'x' }}"), "4x");
  EXPECT_EQ(render("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}"),
            "-4 2 3.5 1024");
  EXPECT_EQ(render("{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 }} {{ 123456.5 }}"),
            "1.0 1e+16 1e-05 0.1 123456.5");
  EXPECT_EQ(render("{{ 'a' in 'cat' and 1 in [1] and 'k' in {'k': 1} }}"),
            "True");
  EXPECT_EQ(render("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' not in 'b' }}"),
            "True False True");
  EXPECT_EQ(render("{{ 'a' if false }}|{{ 'a' if false else 'b' }}"), "|b");
  EXPECT_EQ(render("{{ none }} {{ true }} {{ [1, 'a', none] }} {{ (1,) }}"),
            "None True [1, 'a', None] (1,)");
  EXPECT_EQ(render("{{ {'a': 1, 'b': \"it's\"} }}"), "{'a': 1, 'b': \"it's\"}");
  EXPECT_EQ(render("{{ 'caf\u00e9'[::-1] }} {{ 'abc'[-1] }} {{ [1,2,3][1:] }}"),
            "\u00e9fac c [2, 3]");
  EXPECT_EQ(render("{{ [1,2,3,4][::2] }} {{ [1,2,3][5:] }} {{ 'abc'[:-1] }}"),
            "[1, 3] [] ab");
  EXPECT_EQ(render("{{ 'a' 'b' }} {{ 'x\\n\\u00e9\\x41\\q' }}"),
            "ab x\n\u00e9A\\q");
  EXPECT_EQ(render("{{ not (1 == 1.0) or 0 or 'last' }}"), "last");
  EXPECT_EQ(render("{{ a.b.c }}{{ a['b'].c }}", R"({"a": {"b": {"c": 1}}})"),
            "11");
  EXPECT_EQ(render("{{ missing }}{{ a.missing }}", R"({"a": {}})"), "");
  EXPECT_EQ(render("{{ [1, 2] + [3] }} {{ 2 * 'ab' }}"), "[1, 2, 3] abab");
  EXPECT_EQ(render("{{ {'a': 1, 'a': 2} }}"), "{'a': 2}");
}

TEST(ChatTemplate, RunsStatements) {
  EXPECT_EQ(render("{% for x in [1,2,3] %}{{ loop.index }}{{ loop.first }}"
                   "{{ loop.last }}{{ loop.revindex0 }};{% endfor %}"),
            "1TrueFalse2;2FalseFalse1;3FalseTrue0;");
  EXPECT_EQ(render("{% for x in [1,2,3] if x != 2 %}{{ x }}{{ loop.length }}"
                   "{% endfor %}"),
            "1232");
  EXPECT_EQ(render("{% for x in [] %}a{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}"
                   "{% endfor %}"),
            "a=1");
  EXPECT_EQ(render("{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}"
                   "{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}"
                   "{% endfor %}"),
            "13");
  EXPECT_EQ(render("{% for x in [1,[2,[3]]] recursive %}{{ loop(x) if x is "
                   "not number else x }}{{ loop.depth }};{% endfor %}"),
            "11;2"
            "2;3"
            "3;2;1;");
  // A loop has its own names; a namespace is shared.
  EXPECT_EQ(render("{% set a = 1 %}{% set n = namespace(a=1) %}{% for x in "
                   "[2] %}{% set a = x %}{% set n.a = x %}{{ a }}{% endfor %}"
                   "{{ a }}{{ n.a }}"),
            "212");
  EXPECT_EQ(render("{% set a, b = 1, 2 %}{{ a }}{{ b }}"), "12");
  EXPECT_EQ(render("{% set a %} x {% endset %}[{{ a }}]"), "[ x ]");
  EXPECT_EQ(render("{% set a | trim | upper %} x {% endset %}[{{ a }}]"),
            "[X]");
  EXPECT_EQ(render("{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}"
                   "{{ m('x') }}{{ m('x', b='y') }}{{ m() }}"),
            "xBxyB");
  EXPECT_EQ(render("{% macro m() %}<{{ caller('x') }}>{% endmacro %}"
                   "{% call(v) m() %}{{ v }}!{% endcall %}"),
            "<x!>");
  EXPECT_EQ(render("{% filter upper %}abc{% endfilter %}"), "ABC");
  EXPECT_EQ(render("{% with a = 1 %}{{ a }}{% endwith %}{{ a }}"), "1");
  EXPECT_EQ(render("{% generation %}a{% endgeneration %}"), "a");
  EXPECT_EQ(
      render("{% if a %}1{% elif b %}2{% else %}3{% endif %}", R"({"b": 1})"),
      "2");
}

TEST(ChatTemplate, HasFiltersTestsAndMethods) {
  EXPECT_EQ(render("{{ {'b': [1, true, none, 1.5], 'a': '<\u00e9\"\\n>'} | "
                   "tojson }}"),
            "{\"b\": [1, true, null, 1.5], \"a\": \"<\u00e9\\\"\\n>\"}");
  EXPECT_EQ(render("{{ {'b': [1], 'a': {}} | tojson(indent=2) }}"),
            "{\n  \"b\": [\n    1\n  ],\n  \"a\": {}\n}");
  EXPECT_EQ(render("{{ {'b': 1, 'a': '\U0001F600'} | tojson(sort_keys=true, "
                   "ensure_ascii=true) }}"),
            "{\"a\": \"\\ud83d\\ude00\", \"b\": 1}");
  EXPECT_EQ(render("{{ ' a b '.split() }}{{ 'a,b,c'.split(',', 1) }}"
                   "{{ 'a,b,c'.rsplit(',', 1) }}"),
            "['a', 'b']['a', 'b,c']['a,b', 'c']");
  EXPECT_EQ(render("{{ 'xxaxx'.strip('x') }}{{ '\\n a'.lstrip() }}"
                   "{{ 'a  '.rstrip() }}|"),
            "aaa|");
  EXPECT_EQ(render("{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x','c')) "
                   "}} {{ 'aXbX'.replace('X', '-') }}"),
            "True True a-b-");
  EXPECT_EQ(render("{{ 'hello world'.title() }} {{ 'aB'|upper }} "
                   "{{ 'aB'|capitalize }} {{ ' x '|trim }}"),
            "Hello World AB Ab x");
  EXPECT_EQ(render("{{ ' a b '.rsplit(none, 1) }}{{ ' a b '.split(none, 1) }}"),
            "[' a', 'b']['a', 'b ']");
  EXPECT_EQ(render("{{ \"it's (me)\"|title }} {{ \"it's\".title() }} "
                   "{{ '1' is upper }} {{ 3|round }} {{ 2.5|round }}"),
            "It's (Me) It'S False 3 2.0");
  EXPECT_EQ(render("{{ [3,1,2]|sort|join('-') }} {{ [1,2]|last }} "
                   "{{ 'ab'|length }} {{ [1,2]|sum }} {{ [1,1]|unique|list }}"),
            "1-2-3 2 2 3 [1]");
  EXPECT_EQ(render("{{ m|selectattr('r', 'equalto', 'u')|map(attribute='c')|"
                   "join(',') }}",
                   R"({"m": [{"r": "u", "c": "1"}, {"r": "a", "c": "2"}]})"),
            "1");
  EXPECT_EQ(render("{{ [0,1,'']|select|list }}{{ ['a']|map('upper')|list }}"
                   "{{ [1,2]|reject('odd')|list }}"),
            "[1]['A'][2]");
  EXPECT_EQ(render("{{ x|default('d') }}{{ ''|default('e', true) }}"
                   "{{ '12'|int + 1 }}{{ 'z'|int }}{{ '<'|e }}"),
            "de130&lt;");
  EXPECT_EQ(render("{{ {'a': 1}|items|list }}{{ {'a': 1}.get('b', 2) }}"
                   "{{ {'b':1,'a':2}|dictsort }}"),
            "[('a', 1)]2[('a', 2), ('b', 1)]");
  EXPECT_EQ(render("{{ 'a\\nb'|indent(2) }} {{ range(3)|list }}"),
            "a\n  b [0, 1, 2]");
  EXPECT_EQ(render("{{ 'ababc'.find('abc') }} {{ 'abcab'.rfind('ab') }} "
                   "{{ 'aXaXb'.split('aXb') }} {{ 'aaa'.rsplit('aa') }} "
                   "{{ 'aaa'.count('aa') }} {{ 'ab'.replace('', '-') }} "
                   "{{ 'aaa'.replace('a', 'b', 2) }} {{ '' in 'a' }} "
                   "{{ 'ba' is in 'aaba' }}"),
            "2 3 ['aX', ''] ['a', ''] 1 -a-b- bba True True");
  EXPECT_EQ(render("{{ [[2], [1, 2], [1]]|sort }} {{ ['b', 'A']|sort }} "
                   "{{ [[none, 2], [none, 1]]|min }} "
                   "{{ [1, 3, 2]|sort(reverse=true) }}"),
            "[[1], [1, 2], [2]] ['A', 'b'] [None, 1] [3, 2, 1]");
  EXPECT_EQ(render("{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} "
                   "{{ {'a': 1, 'b': 2} == {'b': 2, 'c': 1} }}"),
            "True False");
  EXPECT_EQ(render("{{ x is defined }}{{ none is none }}{{ 's' is string }}"
                   "{{ {} is mapping }}{{ [] is iterable }}{{ 's' is "
                   "sequence }}{{ 3 is divisibleby 3 }}{{ 1 is not number }}"),
            "FalseTrueTrueTrueTrueTrueTrueFalse");
  EXPECT_EQ(render("{{ tools is defined }}{{ tools is none }}"
                   "{{ add_generation_prompt }}"),
            "TrueTrueFalse");
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST(ChatTemplate, NamesLineAndConstruct) {
  const std::pair<const char *, const char *> cases[] = {
      {"a\n{% if x %}", "line 2: no 'endif' ends what begins here"},
      {"{% for x in y %}{% endif %}", "the tag 'endif' is not supported"},
      {"\n\n{% include 'x' %}", "line 3: the tag 'include' is not supported"},
      {"{{ a", "line 1: the tag {{ has no end"},
      {"{{ a b }}", "expected the end of the expression, found 'b'"},
      {"{{ }}", "expected an expression, found the end of the tag"},
      {"{# x", "the comment has no end"},
      {"{% raw %}", "raw has no endraw"},
      {"{{ 'a }}", "the string has no end"},
      {"{{ '\\ud800' }}", "the escape \\u in the string has no valid code"},
      {"{{ a ? b }}", "unexpected '?'"},
      {"{{ (1] }}", "unexpected ']'"},
      {"{{ a | nosuch }}", "the filter 'nosuch' is not supported"},
      {"{{ a is nosuch }}", "the test 'nosuch' is not supported"},
      {"{{ 'a'.nosuch() }}", "the method 'nosuch' of strings is not supported"},
      {"{{ nosuch() }}", "'nosuch' is undefined, so it cannot be called"},
      {"{{ f(*a) }}", "arguments by '*' are not supported"},
      {"{{ 99999999999999999999 }}", "is too large"},
      {"{% set true = 1 %}", "cannot set 'true'"},
      {"{% for loop in x %}{% endfor %}", "a loop cannot set 'loop'"},
      {"{% set a.b = 1 %}", "'a': it is not a namespace"},
      {"{% break %}", "'break' outside of a loop"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "expected a default"},
      {"{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}",
       "line 2: 'm' takes 1 arguments and is called with 2"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "has no argument 'b'"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "given 'a' twice"},
      {"\n{{ a.b.c }}", "line 2: 'a' is undefined, so it has no 'b'"},
      {"{{ {}.b.c }}", "a dict has no 'b', so it has no 'c'"},
      {"{{ 'a' + 1 }}", "'+' of a string and a int is not supported"},
      {"{{ a + 'b' }}", "'a' is undefined, so it cannot be an operand of '+'"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "a number is too large"},
      {"{{ 2 ** 64 }}", "a number is too large"},
      {"{{ 1 < 'a' }}", "cannot order"},
      {"{% for x in 5 %}{% endfor %}", "cannot loop over a int"},
      {"{% for a, b in [1] %}{% endfor %}", "cannot loop over a int"},
      {"{% for a, b in [[1]] %}{% endfor %}", "1 values for 2 names"},
      {"{{ x | tojson }}", "a value of type undefined cannot be written"},
      {"{{ {1: 2} }}", "the key of a dict is a int"},
      {"{{ [1][::0] }}", "the step of a part is 0"},
      {"{{ [1].append(2) }}", "lists cannot be changed by 'append'"},
      {"{{ 'a'.replace('b') }}", "'replace' needs the argument 'new'"},
      {"{{ 'a'.split('') }}", "split by an empty string"},
      {"{{ range(100001) }}", "a range of more than 100000"},
      {"a\nb\n{{ raise_exception('No user query.') }}",
       "chat template, line 3: the template says: No user query."},
      {"{{ raise_exception('a\n\x1b[31m\u009b\u202eb') }}",
       "the template says: a\\n\\u001b[31m\\u009b\\u202eb"},
      {"\xff", "the chat template is not UTF-8"},
  };
  for (const auto &[source, part] : cases) {
    const std::string found = errorOf(source);
    EXPECT_NE(found.find(part), std::string::npos)
        << source << "\n  gave: " << found;
  }
  EXPECT_THROW(ChatTemplate::parse("x").render(ordered_json::array(),
                                               ordered_json::object()),
               Error);
}

/// `text`, `count` times.
static std::string repeat(const std::string &text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i)
    result += text;
  return result;
}

TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string tooMuch = "takes too many steps or too much memory";
  const std::string tooDeep = "nested too deeply";
  const size_t many = 100'000;
  const std::pair<std::string, std::string> cases[] = {
      // Depth of the source.
      {"{{ " + repeat("(", many) + "1" + repeat(")", many) + " }}", tooDeep},
      {"{{ " + repeat("[", many) + repeat("]", many) + " }}", tooDeep},
      {"{{ " + repeat("not ", many) + "1 }}", tooDeep},
      {"{{ " + repeat("-", many) + "1 }}", tooDeep},
      {"{{ 1" + repeat("+1", many) + " }}", tooDeep},
      {"{{ a" + repeat(".a", many) + " }}", tooDeep},
      {"{{ a" + repeat("|trim", many) + " }}", tooDeep},
      {"{{ a" + repeat(" if a else a", many / 2) + " }}", tooDeep},
      {repeat("{% if 1 %}", many), tooDeep},
      // Depth at run time.
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", tooDeep},
      {"{% macro m(n) %}{% call m(n) %}{% endcall %}{% endmacro %}{{ m(1) }}",
       tooDeep},
      {"{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", tooDeep},
      {"{% set n = namespace(a=[]) %}{% for i in range(9999) %}"
       "{% set n.a = [n.a] %}{% endfor %}",
       tooDeep},
      // Work.
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
       "{% endfor %}",
       tooMuch},
      {"{% set n = namespace(a='x') %}{% for i in range(99) %}"
       "{% set n.a = n.a ~ n.a %}{% endfor %}",
       tooMuch},
      {"{% set n = namespace(a='x') %}{% for i in range(99) %}"
       "{% set n.a = n.a + n.a %}{% endfor %}",
       tooMuch},
      {"{% set n = namespace(a='x') %}{% for i in range(99) %}"
       "{% set n.a = n.a.replace('x', 'xxxxxxxxxx') %}{% endfor %}",
       tooMuch},
      {"{% set n = namespace(a=[1]) %}{% for i in range(99) %}"
       "{% set n.a = n.a + n.a %}{% endfor %}",
       tooMuch},
      {"{{ 'x' * 9223372036854775807 }}", tooMuch},
      {"{{ 'xxxxxxxxxxxxxxxx' * 1152921504606846977 }}", tooMuch},
      {"{{ [1] * 999999999 }}", tooMuch},
      {"{% for i in range(99999) %}" + repeat("0123456789", 100) +
           "{% endfor %}",
       tooMuch},
      {"{{ ('a\\n' * 99999)|indent(1000) }}", tooMuch},
      {"{{ ('-' * 99999).join('-' * 99999) }}", tooMuch},
      // Lists that share their parts.
      {"{% set n = namespace(a=[1]) %}{% for i in range(90) %}"
       "{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
       tooDeep},
  };
  for (const auto &[source, part] : cases) {
    const std::string found = errorOf(source);
    EXPECT_NE(found.find(part), std::string::npos)
        << source.substr(0, 100) << "\n  gave: " << found.substr(0, 200);
  }
  // Marks of origin take memory too.
  EXPECT_NE(
      errorOf("{{ (a ~ 'b') * 12000000 }}", R"({"a": "x"})").find(tooMuch),
      std::string::npos);
  // The size of the source.
  EXPECT_EQ(errorOf(repeat("x", (1 << 20) + 1)),
            "the chat template has 1048577 bytes when at most 1048576 are "
            "allowed");
  const std::string deep =
      "{\"a\": " + repeat("[", many) + repeat("]", many) + "}";
  EXPECT_NE(errorOf("{{ a }}", deep.c_str()).find(tooDeep), std::string::npos);
}

// With searches that take quadratic time or are not counted, this takes hours.
TEST(ChatTemplate, WorkIsCountedByBytes) {
  const std::string setup = "{% set t = 'a' * 1000000 %}"
                            "{% set p = 'a' * 500000 ~ 'b' %}"
                            "{% set q = 'b' ~ 'a' * 500000 %}"
                            "{% set n = [1] * 100000 %}";
  const char *const expressions[] = {"p in t",
                                     "p is in(t)",
                                     "t.find(p)",
                                     "t.rfind(q)",
                                     "t.count(p)",
                                     "t.split(p)",
                                     "t.rsplit(q)",
                                     "t.replace(p, '')",
                                     "t.strip(q)",
                                     "{}[n]",
                                     "([1] * 99)|map(attribute=t)",
                                     "[[t], [t]]|min"};
  for (size_t i = 0; i < std::size(expressions); i += test::isSampled() ? 5 : 1)
    EXPECT_NE(errorOf(setup + "{% for i in range(99999) %}{% set x = " +
                      expressions[i] + " %}{% endfor %}")
                  .find("takes too many steps"),
              std::string::npos)
        << expressions[i];

  // A single search is within the limit.
  EXPECT_EQ(render(setup + "{{ p in t }} {{ t.rfind(q) }} {{ t.count(p) }}"),
            "False -1 0");
  // 2^40 comparisons if each level is compared twice.
  const std::string deep = repeat("[", 40) + "1" + repeat("]", 40);
  EXPECT_EQ(render("{{ " + deep + " < " + deep + " }}"), "False");
  std::string keys;
  for (int i = 0; i < 50'000; ++i)
    keys += "'" + std::to_string(i) + "': 1,";
  EXPECT_NE(errorOf("{% set d = {" + keys + "} %}").find("too many steps"),
            std::string::npos);
  // NaN has no order, and std::sort needs one.
  EXPECT_EQ(render("{{ ([3, 'nan'|float, 1] * 1000)|sort|length }}"), "3000");
}

TEST(ChatTemplate, StopsWhereItIsAsked) {
  const ChatTemplate forever =
      ChatTemplate::parse("\n{% for a in range(99999) %}{% for b in "
                          "range(99999) %}{% endfor %}{% endfor %}");
  int questions = 0;
  try {
    forever.render(ordered_json::object(), ordered_json::object(),
                   [&] { return ++questions == 100; });
    ADD_FAILURE() << "it ends";
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(),
                 "chat template, line 2: the rendering was stopped");
  }
  EXPECT_EQ(questions, 100);
}

TEST(ChatTemplate, LongConversationsRender) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 10'000; ++i)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"},
                        {"content", std::string(400, 'x')}});
  std::ifstream file(kInputs / "templates/Qwen-Qwen3-0.6B.jinja");
  std::ostringstream source;
  source << file.rdbuf();
  const std::string text =
      ChatTemplate::parse(source.str())
          .render({{"messages", messages}, {"add_generation_prompt", true}},
                  ordered_json::object())
          .bytes();
  EXPECT_GT(text.size(), 10'000u * 400u);
}
