#include "text/template/operators.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "text/template/builtins.hpp"

namespace bankml::jinja {
namespace {

constexpr std::string_view kSymbols[] = {
    "+", "~", "-", "*", "/", "%", "==", "!=", "<", ">", "<=", ">=", "in", "not in"};

[[noreturn]] void fail(Operator op, const Value& a, const Value& b) {
  throw RenderError(fmt::format("operator {} is not defined for {} and {}", kSymbols[static_cast<int>(op)],
                                kind_name(a), kind_name(b)));
}

// Everything is computed in double, as the peer does; integers stay integers except under division.
Value arithmetic(Operator op, const Value& a, const Value& b) {
  const double x = a.number(), y = b.number();
  double result = 0;
  switch (op) {
    case Operator::add:
      result = x + y;
      break;
    case Operator::subtract:
      result = x - y;
      break;
    case Operator::multiply:
      result = x * y;
      break;
    case Operator::divide:
      return x / y;
    case Operator::modulo:
      result = std::fmod(x, y);
      break;
    case Operator::lt:
      return x < y;
    case Operator::gt:
      return x > y;
    case Operator::le:
      return x <= y;
    case Operator::ge:
      return x >= y;
    default:
      fail(op, a, b);
  }
  if (a.is(Kind::integer) && b.is(Kind::integer)) return to_integer(result);
  return result;
}

Value repeated(Heap& heap, std::string_view text, std::int64_t times) {
  std::string out;
  if (times <= 0 || text.empty()) return heap.make_text(std::move(out));
  if (static_cast<std::uint64_t>(times) > heap.limits.output / text.size()) {
    throw RenderError(fmt::format("a string of more than {} bytes", heap.limits.output));
  }
  out.reserve(text.size() * static_cast<std::size_t>(times));
  for (std::int64_t i = 0; i < times; ++i) out += text;
  return heap.make_text(std::move(out));
}

Value concatenated(Heap& heap, const List& a, const List& b) {
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return heap.make_list(std::move(items));
}

}  // namespace

Value binary(Heap& heap, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::eq:
      return heap.equal(a, b);
    case Operator::ne:
      return !heap.equal(a, b);
    case Operator::in:
      return contains(heap, a, b);
    case Operator::not_in:
      return !contains(heap, a, b);
    case Operator::concat:
      fail(op, a, b);  // the interpreter has taken the case of a string
    default:
      break;
  }
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == Operator::add && a.is(Kind::list) && b.is(Kind::list)) return concatenated(heap, a.list(), b.list());
  if (op == Operator::multiply && a.is(Kind::text) && b.is(Kind::integer)) return repeated(heap, a.text(), b.integer());
  if (op == Operator::multiply && a.is(Kind::integer) && b.is(Kind::text)) return repeated(heap, b.text(), a.integer());
  fail(op, a, b);
}

std::optional<Value> element(Heap& heap, const Value& object, const Value& index) {
  switch (object.kind()) {
    case Kind::undefined:
      return std::nullopt;
    case Kind::dict: {
      if (index.is(Kind::undefined)) return std::nullopt;
      const Value* found = heap.find(object.dict(), index);
      return found ? std::optional(*found) : std::nullopt;
    }
    case Kind::text:
    case Kind::list: {
      if (index.is(Kind::text) || index.is(Kind::undefined)) return std::nullopt;
      if (!index.is(Kind::integer)) break;
      object.mark_array();
      if (object.is(Kind::text)) {
        const auto at = static_cast<std::uint64_t>(index.integer());
        if (at >= object.text().size()) return std::nullopt;  // also the negative ones
        return heap.make_text({object.text()[at]});
      }
      const auto& items = object.list().items;
      const auto size = static_cast<std::int64_t>(items.size());
      const std::int64_t at = index.integer() < 0 ? index.integer() + size : index.integer();
      if (at < 0 || at >= size) return std::nullopt;
      return items[static_cast<std::size_t>(at)];
    }
    case Kind::function:
      break;
    default:
      if (index.is(Kind::text)) return std::nullopt;
  }
  throw RenderError(fmt::format("{} can't be indexed by {}", kind_name(object), kind_name(index)));
}

Value member(Heap& heap, const Value& object, std::string_view name) {
  if (object.is(Kind::function)) throw RenderError(fmt::format("a function has no member '{}'", name));
  const Value* found = object.is(Kind::dict) ? heap.find(object.dict(), name) : nullptr;
  return found ? *found : Value();
}

}  // namespace bankml::jinja
