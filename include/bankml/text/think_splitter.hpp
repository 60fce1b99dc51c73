#pragma once
// Takes the reasoning of a model apart from its answer (docs/http-api.md, 12).
#include <optional>
#include <string>
#include <string_view>

#include "bankml/text/channel_splitter.hpp"

namespace bankml {

// What a chat template writes around reasoning. Without an end there is nothing to look for. White space inside of the
// tags belongs to the reasoning; behind each it is the template's and is taken off as far as the model writes it too.
struct ThinkTags {
  std::string start, end;
};

// What becomes of a block of reasoning: a part of its own; content, with its tags; or content as everything else is
// that the model wrote, whatever form its template has for it.
enum class Thinking { apart, aloud, unparsed };

// Fed with what was generated, gives reasoning and content as soon as they are certain. A block counts only where the
// text begins, white space aside; reasoning of white space alone is none.
class ThinkSplitter {
 public:
  struct Parts {
    std::string reasoning, content;
  };

  // The text begins with the block that the generation prompt opened, if it did.
  ThinkSplitter(const ThinkTags& tags, std::string_view generation_prompt, Thinking thinking = Thinking::apart);

  // What has become certain with this piece, and, the first time, with the generation prompt. What is held back when no
  // more pieces come, like a part of a tag, is dropped.
  Parts add(std::string_view piece);
  // Whether what came so far can't be an answer by this template. Only chains of messages know such a thing.
  bool malformed() const noexcept { return channels_ && channels_->malformed(); }

 private:
  enum class State { before, start_space, reasoning, end_space, content };
  bool step(Parts& parts);
  bool find_start();
  bool skip_space(std::string_view space, State next);
  bool read_reasoning(Parts& parts);

  std::optional<ChannelSplitter> channels_;  // does all of the work then
  bool apart_;
  std::string start_, end_, start_space_, end_space_;
  std::string pending_;      // not yet certain
  std::size_t skipped_ = 0;  // of the white space behind a tag
  State state_ = State::before;
  bool reasons_ = false;  // reasoning that isn't white space has been found
};

// The same for a whole text. If that leaves nothing, all of the text is content. Throws Error(internal) for a malformed
// one.
ThinkSplitter::Parts split_thinking(ThinkSplitter splitter, std::string_view text);

// Throws what split_thinking() does for a malformed text.
void check_well_formed(const ThinkSplitter& splitter);

}  // namespace bankml
