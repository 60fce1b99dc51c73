#include "server/chat_text.hpp"

#include <utility>

#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

// The text that is being continued stands at the end of the generation prompt, but is read as part of the answer.
ThinkSplitter splitter_of(const CompletionRequest& request) {
  std::string_view opening = request.echoed.generation_prompt;
  if (opening.ends_with(request.prefill)) opening.remove_suffix(request.prefill.size());
  return ThinkSplitter(request.think, opening, request.thinking);
}

}  // namespace

ChatText::ChatText(const CompletionRequest& request) : request_(request), splitter_(splitter_of(request)) {}

ChatDelta ChatText::append(std::string_view piece) {
  ChatDelta delta;
  if (!std::exchange(begun_, true)) {
    ThinkSplitter::Parts continued = splitter_.add(request_.prefill);
    (request_.streams_prefill ? delta : unshown_) = {std::move(continued.reasoning), std::move(continued.content)};
  }
  const ThinkSplitter::Parts parts = splitter_.add(piece);
  delta.reasoning += parts.reasoning;
  delta.content += parts.content;
  return delta;
}

void ChatText::finish() const {
  check_well_formed(splitter_);
}

ChatDelta chat_message(const CompletionRequest& request, std::string_view text) {
  const bool is_parsed = request.echoed.chat_format != kChatFormatOfTexts;
  const std::string whole =
      request.prefill + std::string(is_parsed ? text.substr(0, complete_utf8_prefix(text)) : text);
  ThinkSplitter::Parts parts = split_thinking(splitter_of(request), whole);
  return {std::move(parts.reasoning), std::move(parts.content)};
}

}  // namespace bankml
