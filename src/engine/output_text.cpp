#include "engine/output_text.hpp"

#include <algorithm>

#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

// Whether the end of `text` is the beginning of `word`, but not all of it.
bool ends_with_part_of(std::string_view text, std::string_view word) noexcept {
  for (std::size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == word.substr(0, n)) return true;
  }
  return false;
}

}  // namespace

OutputText::OutputText(std::vector<std::string> stop_words) : stop_words_(std::move(stop_words)) {
  std::erase_if(stop_words_, [](const std::string& word) { return word.empty(); });
}

void OutputText::cut(std::size_t size) {
  text_.resize(size);
  sent_ = std::min(sent_, size);
}

OutputText::Step OutputText::push(std::string_view piece, bool last) {
  text_ += piece;
  unseen_ += piece.size();
  if (complete_utf8_prefix(text_) < text_.size()) return {};

  Step step;
  step.complete = true;
  const std::string_view unsent = std::string_view(text_).substr(sent_);
  std::size_t match = std::string_view::npos;
  for (const std::string& word : stop_words_) {
    const std::size_t reach = word.size() + unseen_;
    const std::size_t found = unsent.find(word, unsent.size() > reach ? unsent.size() - reach : 0);
    if (found < match) {
      match = found;
      step.stop_word = &word;
    }
  }
  unseen_ = 0;
  if (step.stop_word) {
    text_.resize(sent_ + match);
  } else if (!last && std::any_of(stop_words_.begin(), stop_words_.end(),
                                  [&](const std::string& word) { return ends_with_part_of(unsent, word); })) {
    return step;  // held back
  }
  step.text = text_.substr(sent_);
  sent_ = text_.size();
  return step;
}

}  // namespace bankml
