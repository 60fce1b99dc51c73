#pragma once
// What the text of a chat's answer says, for the formats of all chat APIs.
#include <string>
#include <string_view>

#include "bankml/text/think_splitter.hpp"
#include "server/completion_request.hpp"

namespace bankml {

// What a model thought and what it said.
struct ChatDelta {
  std::string reasoning, content;
};

// The text of one streamed answer, piece by piece.
class ChatText {
 public:
  // `request` outlives the object.
  explicit ChatText(const CompletionRequest& request);

  // False until the first piece.
  bool begun() const noexcept { return begun_; }
  // What a piece adds. The first one brings the text that is being continued.
  ChatDelta append(std::string_view piece);
  // What the answer begins with and no delta had.
  const ChatDelta& unshown() const noexcept { return unshown_; }
  // After the last piece. Throws Error(internal), as the peer answers 500, if all that was no answer by the template.
  void finish() const;

 private:
  const CompletionRequest& request_;
  ThinkSplitter splitter_;
  ChatDelta unshown_;
  bool begun_ = false;
};

// The whole text of an answer, with what it continues. Under a template an unfinished character at the end is left out.
// Throws as ChatText::finish().
ChatDelta chat_message(const CompletionRequest& request, std::string_view text);

}  // namespace bankml
