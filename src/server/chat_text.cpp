#include "server/chat_text.hpp"

#include <utility>

#include "bankml/base/utf8.hpp"

namespace bankml {

ChatDelta ChatText::append(std::string_view piece) {
  ChatDelta delta;
  if (!std::exchange(begun_, true)) {
    ThinkSplitter::Parts continued = splitter_.add(request_.prefill);
    if (request_.streams_prefill) delta = {std::move(continued.reasoning), std::move(continued.content)};
  }
  const ThinkSplitter::Parts parts = splitter_.add(piece);
  delta.reasoning += parts.reasoning;
  delta.content += parts.content;
  return delta;
}

ChatDelta chat_message(const CompletionRequest& request, std::string_view text) {
  const bool is_parsed = request.echoed.chat_format != kChatFormatOfTexts;
  const std::string whole =
      request.prefill + std::string(is_parsed ? text.substr(0, complete_utf8_prefix(text)) : text);
  ThinkSplitter::Parts parts = split_thinking(request.think, request.echoed.generation_prompt, whole);
  return {std::move(parts.reasoning), std::move(parts.content)};
}

}  // namespace bankml
