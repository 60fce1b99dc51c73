#pragma once
// Takes the reasoning of a model apart from its answer (docs/http-api.md, 12).
#include <string>
#include <string_view>

namespace bankml {

// What a chat template writes around reasoning. Without an end there is nothing to look for. White space inside of the
// tags belongs to the reasoning; behind each it is the template's and is taken off as far as the model writes it too.
struct ThinkTags {
  std::string start, end;
};

// Fed with what was generated, gives reasoning and content as soon as they are certain. A block counts only where the
// text begins, white space aside; reasoning of white space alone is none.
class ThinkSplitter {
 public:
  struct Parts {
    std::string reasoning, content;
  };

  // The text begins with the block that the generation prompt opened, if it did.
  ThinkSplitter(const ThinkTags& tags, std::string_view generation_prompt);

  // What has become certain with this piece, and, the first time, with the generation prompt. What is held back when no
  // more pieces come, like a part of a tag, is dropped.
  Parts add(std::string_view piece);

 private:
  enum class State { before, start_space, reasoning, end_space, content };
  bool step(Parts& parts);
  bool find_start();
  bool skip_space(std::string_view space, State next);
  bool read_reasoning(Parts& parts);

  std::string start_, end_, start_space_, end_space_;
  std::string pending_;      // not yet certain
  std::size_t skipped_ = 0;  // of the white space behind a tag
  State state_ = State::before;
  bool reasons_ = false;  // reasoning that isn't white space has been found
};

// The same for a whole text. If that leaves nothing, all of the text is content.
ThinkSplitter::Parts split_thinking(const ThinkTags& tags, std::string_view generation_prompt, std::string_view text);

}  // namespace bankml
