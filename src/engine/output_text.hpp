#pragma once
// The text of one answer as its tokens arrive: whole UTF-8 characters only, stop words cut off, and text held back that
// may turn out to be the start of a stop word (docs/http-api.md, section 9).
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bankml {

class OutputText {
 public:
  explicit OutputText(std::vector<std::string> stop_words);

  struct Step {
    bool complete = false;                   // false: the text ends inside a character, nothing happens yet
    std::string text;                        // to be sent now; may be empty
    const std::string* stop_word = nullptr;  // the stop word that ended the text, which is cut before it
  };
  // Adds a token's bytes. `last`: an end-of-generation token, which releases held text.
  Step push(std::string_view piece, bool last);

  const std::string& text() const noexcept { return text_; }  // sent or not
  // Cuts the text to `size` bytes.
  void cut(std::size_t size);

 private:
  std::vector<std::string> stop_words_;
  std::string text_;
  std::size_t sent_ = 0;
  std::size_t unseen_ = 0;  // bytes not yet searched for stop words: tokens that ended inside a character
};

}  // namespace bankml
