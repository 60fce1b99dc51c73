// Methods and filters of strings: ASCII only and byte-wise.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "text/template/builtins.hpp"
#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
constexpr std::int64_t kDefaultIndent = 4;

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

Value run_upper(Call& call) {
  std::string text(call.self.text());
  std::transform(text.begin(), text.end(), text.begin(), upper);
  return call.heap.make_text(std::move(text));
}

Value run_lower(Call& call) {
  std::string text(call.self.text());
  std::transform(text.begin(), text.end(), text.begin(), lower);
  return call.heap.make_text(std::move(text));
}

Value run_title(Call& call) {
  std::string text(call.self.text());
  bool starts_word = true;  // only white space separates words
  for (char& c : text) {
    c = starts_word ? upper(c) : lower(c);
    starts_word = kWhiteSpace.find(c) != std::string_view::npos;
  }
  return call.heap.make_text(std::move(text));
}

Value run_capitalize(Call& call) {
  std::string text(call.self.text());
  std::transform(text.begin(), text.end(), text.begin(), lower);
  if (!text.empty()) text[0] = upper(text[0]);
  return call.heap.make_text(std::move(text));
}

Value strip(Call& call, bool left, bool right) {
  const Value* set = call.argument(0, "chars");
  const std::string_view strips = set && !set->is(Kind::none) ? call.text_argument(0, "chars") : kWhiteSpace;
  std::string_view text = call.self.text();
  if (left) text.remove_prefix(std::min(text.find_first_not_of(strips), text.size()));
  if (right) text = text.substr(0, text.find_last_not_of(strips) + 1);
  return call.heap.make_text(std::string(text));
}
Value run_strip(Call& call) {
  return strip(call, true, true);
}
Value run_lstrip(Call& call) {
  return strip(call, true, false);
}
Value run_rstrip(Call& call) {
  return strip(call, false, true);
}

Value run_length(Call& call) {
  return static_cast<std::int64_t>(call.self.text().size());
}
Value run_startswith(Call& call) {
  return call.self.text().starts_with(call.text_argument(0));
}
Value run_endswith(Call& call) {
  return call.self.text().ends_with(call.text_argument(0));
}

Value split(Call& call, bool from_right) {
  call.at_most(2);
  if (!call.named.empty()) call.fail("takes no keywords");
  std::string separator = " ";  // unlike Python's, a missing separator is one space
  if (const Value* given = call.argument(0)) separator = to_text(*given, call.heap);
  if (separator.empty()) call.fail("empty separator");
  const Value* limit = call.argument(1);
  if (limit && !limit->is(Kind::integer))
    call.fail(fmt::format("the limit must be an integer, not {}", kind_name(*limit)));
  std::int64_t left = limit ? limit->integer() : -1;

  call.heap.work_on_search(call.self.text().size(), separator.size());
  List* parts = call.heap.make_list();
  std::string_view rest = call.self.text();
  for (; left != 0; --left) {
    const std::size_t at = from_right ? rest.rfind(separator) : rest.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = rest.substr(at + separator.size());
    const std::string_view before = rest.substr(0, at);
    call.heap.append(*parts, call.heap.make_text(std::string(from_right ? after : before)));
    rest = from_right ? before : after;
  }
  call.heap.append(*parts, call.heap.make_text(std::string(rest)));
  if (from_right) std::reverse(parts->items.begin(), parts->items.end());
  return parts;
}
Value run_split(Call& call) {
  return split(call, false);
}
Value run_rsplit(Call& call) {
  return split(call, true);
}

Value run_replace(Call& call) {
  call.at_most(2);
  const std::string_view text = call.self.text(), from = call.text_argument(0), to = call.text_argument(1);
  std::string out;
  const auto check = [&] {
    if (out.size() > call.heap.limits.output) call.fail(fmt::format("more than {} bytes", call.heap.limits.output));
  };
  std::size_t at = 0;
  if (from.empty()) {  // between all bytes and at both ends
    for (const char c : text) {
      out.append(to) += c;
      check();
    }
    out += to;
  } else {
    call.heap.work_on_search(text.size(), from.size());
    for (std::size_t hit; (hit = text.find(from, at)) != std::string_view::npos; at = hit + from.size()) {
      out.append(text.substr(at, hit - at)).append(to);
      check();
    }
    out += text.substr(at);
  }
  check();
  return call.heap.make_text(std::move(out));
}

Value run_format(Call& call) {
  const std::string_view text = call.self.text();
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{') {
      out += text[i];
      continue;
    }
    if (i + 1 == text.size() || text[i + 1] != '}') call.fail("only plain {} placeholders are supported");
    if (used == call.positional.size()) call.fail("more placeholders than arguments");
    append_text(call.positional[used++], out, call.heap);
    ++i;
  }
  return call.heap.make_text(std::move(out));
}

// strtoll and strtod read the longest prefix that is a number; none, or one out of range, gives the default.
Value run_int(Call& call) {
  call.at_most(2);
  const Value* base = call.argument(1, "base");
  if (base && (!base->is(Kind::integer) || base->integer() < 2 || base->integer() > 36))
    call.fail("the base must be 2 to 36");
  const std::string text(call.self.text());
  char* end = nullptr;
  errno = 0;
  const std::int64_t number = std::strtoll(text.c_str(), &end, base ? static_cast<int>(base->integer()) : 10);
  if (end != text.c_str() && errno == 0) return number;
  const Value* fallback = call.argument(0, "default");
  return fallback ? *fallback : Value(std::int64_t{0});
}

Value run_float(Call& call) {
  call.at_most(1);
  const std::string text(call.self.text());
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && errno == 0) return number;
  const Value* fallback = call.argument(0, "default");
  if (!fallback) return 0.0;
  return fallback->is(Kind::integer) ? Value(fallback->number()) : *fallback;
}

std::string indentation(Call& call) {
  const Value* width = call.argument(0, "width");
  if (!width) return std::string(static_cast<std::size_t>(kDefaultIndent), ' ');
  if (width->is(Kind::text)) return std::string(width->text());
  if (!width->is(Kind::integer) || width->integer() < 0 ||
      width->integer() > static_cast<std::int64_t>(call.heap.limits.output)) {
    call.fail("the width must be a string or a number of spaces");
  }
  return std::string(static_cast<std::size_t>(width->integer()), ' ');
}

Value run_indent(Call& call) {
  call.at_most(3);
  const std::string margin = indentation(call);
  const bool first = call.flag(1, "first"), blank = call.flag(2, "blank");
  const std::string_view text = call.self.text();
  std::string out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    if (start == 0 ? first : end > start || (blank && end < text.size())) out += margin;
    out += text.substr(start, end - start + 1);
    if (out.size() > call.heap.limits.output) call.fail(fmt::format("more than {} bytes", call.heap.limits.output));
    start = end + 1;
  }
  return call.heap.make_text(std::move(out));
}

Value run_slice(Call& call) {
  if (call.positional.size() != 3) call.fail("needs start, stop and step");
  return slice(call.heap, call.self, &call.positional[0], &call.positional[1], &call.positional[2]);
}

Value run_join(Call& call) {
  call.fail("not available for strings");
}

constexpr Builtin kMethods[] = {
    {"upper", run_upper},       {"lower", run_lower},
    {"title", run_title},       {"capitalize", run_capitalize},
    {"strip", run_strip},       {"trim", run_strip},
    {"lstrip", run_lstrip},     {"rstrip", run_rstrip},
    {"length", run_length},     {"count", run_length},
    {"split", run_split},       {"rsplit", run_rsplit},
    {"format", run_format},     {"startswith", run_startswith},
    {"endswith", run_endswith}, {"replace", run_replace},
    {"int", run_int},           {"float", run_float},
    {"indent", run_indent},     {"slice", run_slice},
    {"join", run_join},
};

}  // namespace

const Builtin* find_string_method(std::string_view name) {
  return find_in(kMethods, name);
}

}  // namespace bankml::jinja
