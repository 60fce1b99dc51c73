#pragma once
// Answers of models that write a chain of messages, each on a channel:
// "<|start|>assistant<|channel|>analysis<|message|>" and text up to "<|end|>".
#include <string>
#include <string_view>

namespace bankml {

// What is on the channel of analysis is reasoning, all else content. Without tools a message to one ends what is read,
// as does the end of the final message.
class ChannelSplitter {
 public:
  static constexpr std::string_view kMark = "<|channel|>";

  // `keeps_reasoning`: reasoning is content, with its marks.
  ChannelSplitter(std::string_view generation_prompt, bool keeps_reasoning);

  // Appends what has become certain with this piece.
  void add(std::string_view piece, std::string& reasoning, std::string& content);
  // Whether the text is no such chain; nothing more is read then.
  bool malformed() const noexcept { return state_ == State::malformed; }

 private:
  enum class State { header, reasoning, content, last, ignored, malformed };
  bool read_header(std::string& content);
  bool read_text(std::string& out);
  void show(std::size_t end, std::string& out);

  bool keeps_reasoning_;
  State state_ = State::header;
  bool begun_ = true;      // the start of the present message has been read
  std::string pending_;    // not yet certain
  std::size_t shown_ = 0;  // of it, is content already
};

}  // namespace bankml
