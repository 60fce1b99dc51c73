#include "text/clean_spaces.hpp"

#include <string_view>

namespace bankml {
namespace {

// Rewrites `text` without the spaces before a place where drops_space(rest of the text from there) holds.
template <class DropsSpace>
void drop_spaces_before(std::string& text, DropsSpace&& drops_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && text[i - 1] == ' ' && drops_space(std::string_view(text).substr(i))) out.pop_back();
    out += text[i];
  }
  text = std::move(out);
}

void join_lone_apostrophes(std::string& text) {
  constexpr std::string_view kLone = " ' ";
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(kLone, done)) != text.npos; done = at + kLone.size()) {
    out.append(text, done, at - done);
    out += '\'';
  }
  text = out.append(text, done);
}

}  // namespace

void clean_spaces(std::string& text) {
  drop_spaces_before(text, [](std::string_view rest) { return std::string_view("?!.,").find(rest[0]) != rest.npos; });
  join_lone_apostrophes(text);
  drop_spaces_before(text, [](std::string_view rest) {
    return rest.starts_with("'s") || rest.starts_with("'m") || rest.starts_with("'re") || rest.starts_with("'ve");
  });
}

}  // namespace bankml
