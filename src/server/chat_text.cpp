#include "server/chat_text.hpp"

#include <utility>

#include "bankml/text/utf8.hpp"

namespace bankml {

ChatDelta ChatText::append(std::string_view piece) {
  ChatDelta delta;
  if (!std::exchange(begun_, true) && request_.streams_prefill) delta.content = request_.prefill;
  delta.content += piece;
  return delta;
}

ChatDelta chat_message(const CompletionRequest& request, std::string_view text) {
  ChatDelta message;
  message.content = request.prefill;
  const bool is_parsed = request.echoed.chat_format != kChatFormatOfTexts;
  message.content += is_parsed ? text.substr(0, complete_utf8_prefix(text)) : text;
  return message;
}

}  // namespace bankml
