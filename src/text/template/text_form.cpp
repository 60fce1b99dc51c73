#include "text/template/text_form.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>

namespace bankml::jinja {
namespace {

void check_size(const std::string& out, const Heap& heap) {
  if (out.size() > heap.limits.output) {
    throw RenderError(fmt::format("the rendering gives more than {} bytes", heap.limits.output));
  }
}

// Six decimals without trailing zeros, but at least one decimal.
void append_float(double number, std::string& out) {
  char buffer[400];  // DBL_MAX has 309 digits before the point
  std::snprintf(buffer, sizeof buffer, "%.6f", number);
  std::string_view text = buffer;
  if (std::isfinite(number)) {
    while (text.back() == '0') text.remove_suffix(1);
    if (text.back() == '.') text = {buffer, text.size() + 1};
  }
  out += text;
}

// One code point of UTF-8 at `text[i]`, moving `i` behind it. A byte that starts none is its own code point.
char32_t next_code_point(std::string_view text, std::size_t& i) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i++);
  const int extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  if (extra == 0 || lead > 0xF4 || i + static_cast<std::size_t>(extra) > text.size()) return lead;
  char32_t code = lead & (0x3Fu >> extra);
  for (int k = 0; k < extra; ++k) {
    if ((byte(i + static_cast<std::size_t>(k)) & 0xC0) != 0x80) return lead;
    code = code << 6 | (byte(i + static_cast<std::size_t>(k)) & 0x3Fu);
  }
  i += static_cast<std::size_t>(extra);
  return code;
}

void append_ascii_escape(char32_t code, std::string& out) {
  if (code > 0xFFFF) {
    code -= 0x10000;
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10 & 0x3FF), 0xDC00 + (code & 0x3FF));
  } else {
    out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
  }
}

void append_json_string(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const char* escape = c == '"'    ? "\\\""
                         : c == '\\' ? "\\\\"
                         : c == '\b' ? "\\b"
                         : c == '\f' ? "\\f"
                         : c == '\n' ? "\\n"
                         : c == '\r' ? "\\r"
                         : c == '\t' ? "\\t"
                                     : nullptr;
    if (escape) {
      out += escape;
      ++i;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      ++i;
    } else if (ascii && static_cast<unsigned char>(c) >= 0x80) {
      append_ascii_escape(next_code_point(text, i), out);
    } else {
      out += c;
      ++i;
    }
  }
  out += '"';
}

void append_scalar(const Value& value, std::string& out) {
  switch (value.kind()) {
    case Kind::boolean:
      out += value.boolean() ? "True" : "False";
      break;
    case Kind::integer:
      out += std::to_string(value.integer());
      break;
    case Kind::floating:
      append_float(value.floating(), out);
      break;
    case Kind::text:
      out += value.text();
      break;
    default:
      break;
  }
}

// Inside lists and dicts: strings are quoted, none and undefined have names.
void append_repr(const Value& value, std::string& out, Heap& heap, Reading reading, int depth) {
  if (reading == Reading::deep) value.mark_read();
  heap.check_depth(depth);
  heap.work();
  check_size(out, heap);
  switch (value.kind()) {
    case Kind::undefined:
      out += "Undefined";
      break;
    case Kind::none:
      out += "None";
      break;
    case Kind::function:
      throw RenderError("a function has no text");
    case Kind::text:
      if (value.text().find('\'') != std::string_view::npos) {
        append_json_string(value.text(), false, out);
      } else {
        out.append("'").append(value.text()).append("'");
      }
      break;
    case Kind::list: {
      out += value.list().tuple ? '(' : '[';
      bool first = true;
      for (const Value& item : value.list().items) {
        if (!std::exchange(first, false)) out += ", ";
        append_repr(item, out, heap, reading, depth + 1);
      }
      out += value.list().tuple ? ')' : ']';
      break;
    }
    case Kind::dict: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!std::exchange(first, false)) out += ", ";
        append_repr(key, out, heap, reading, depth + 1);
        out += ": ";
        append_repr(item, out, heap, reading, depth + 1);
      }
      out += '}';
      break;
    }
    default:
      append_scalar(value, out);
  }
}

void append_printed_at(const Value& value, std::string& out, Heap& heap, int depth) {
  heap.check_depth(depth);
  heap.work();
  if (value.is(Kind::list)) {
    for (const Value& item : value.list().items) append_printed_at(item, out, heap, depth + 1);
  } else {
    append_scalar(value, out);
  }
  check_size(out, heap);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::string& out, Heap& heap) : style_(style), out_(out), heap_(heap) {}

  void write(const Value& value, int depth) {
    heap_.check_depth(depth);
    heap_.work();
    check_size(out_, heap_);
    value.mark_read();
    switch (value.kind()) {
      case Kind::undefined:
      case Kind::none:
        out_ += "null";
        break;
      case Kind::boolean:
        out_ += value.boolean() ? "true" : "false";
        break;
      case Kind::integer:
        out_ += std::to_string(value.integer());
        break;
      case Kind::floating:
        out_ += to_short_text(value.floating());
        break;
      case Kind::text:
        append_json_string(value.text(), style_.ascii, out_);
        break;
      case Kind::list:
        write_list(value.list(), depth);
        break;
      case Kind::dict:
        write_dict(value.dict(), depth);
        break;
      case Kind::function:
        throw RenderError("a function has no JSON form");
    }
  }

 private:
  void write_list(const List& list, int depth) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items) {
      start_item(std::exchange(first, false), depth + 1);
      write(item, depth + 1);
    }
    new_line(depth);
    out_ += ']';
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : dict.entries) {
      start_item(std::exchange(first, false), depth + 1);
      append_json_string(to_text(key, heap_), style_.ascii, out_);
      out_ += style_.key_separator;
      write(item, depth + 1);
    }
    new_line(depth);
    out_ += '}';
  }

  void start_item(bool first, int depth) {
    if (!first) out_ += style_.item_separator;
    new_line(depth);
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth) * static_cast<std::size_t>(*style_.indent), ' ');
  }

  const JsonStyle& style_;
  std::string& out_;
  Heap& heap_;
};

}  // namespace

void append_printed(const Value& value, std::string& out, Heap& heap) {
  append_printed_at(value, out, heap, 0);
}

void append_text(const Value& value, std::string& out, Heap& heap, Reading reading) {
  switch (value.kind()) {
    case Kind::undefined:
      break;
    case Kind::text:
      out += value.text();
      break;
    default:
      append_repr(value, out, heap, reading, 0);
  }
  check_size(out, heap);
}

std::string to_text(const Value& value, Heap& heap) {
  std::string text;
  append_text(value, text, heap);
  heap.work_on(text.size());
  return text;
}

std::string to_short_text(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", number);
  return buffer;
}

void append_json(const Value& value, const JsonStyle& style, std::string& out, Heap& heap) {
  JsonWriter(style, out, heap).write(value, 0);
  check_size(out, heap);
}

}  // namespace bankml::jinja
