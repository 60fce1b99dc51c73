#include "bankml/text/channel_splitter.hpp"

#include <algorithm>
#include <array>

#include "text/partial_tag.hpp"

namespace bankml {
namespace {

constexpr std::string_view kStart = "<|start|>assistant", kEnd = "<|end|>",
                           kAnalysis = "<|channel|>analysis<|message|>";

// Whether `text` begins with the tag or, as far as it goes, like it.
bool could_be(std::string_view text, std::string_view tag) {
  return text.starts_with(tag) || tag.starts_with(text);
}

}  // namespace

ChannelSplitter::ChannelSplitter(std::string_view generation_prompt, bool keeps_reasoning)
    : keeps_reasoning_(keeps_reasoning) {
  const std::size_t begun = generation_prompt.find(kStart);
  if (begun != std::string_view::npos) pending_ = generation_prompt.substr(begun + kStart.size());
}

void ChannelSplitter::add(std::string_view piece, std::string& reasoning, std::string& content) {
  pending_ += piece;
  for (bool more = true; more && !pending_.empty();) {
    switch (state_) {
      case State::header:
        more = read_header(content);
        break;
      case State::reasoning:
        more = read_text(keeps_reasoning_ ? content : reasoning);
        break;
      case State::content:
      case State::last:
        more = read_text(content);
        break;
      case State::ignored:
      case State::malformed:
        pending_.clear();
        break;
    }
  }
}

// Moves what comes before `end` of what is pending, and isn't there yet, to the content.
void ChannelSplitter::show(std::size_t end, std::string& out) {
  if (end > shown_) out += std::string_view(pending_).substr(shown_, end - shown_);
  shown_ = std::max(shown_, end);
}

// Whether the state changed, so that there may be more to read.
bool ChannelSplitter::read_header(std::string& content) {
  struct Header {
    std::string_view text;
    State next;
  };
  static constexpr std::array<Header, 6> kHeaders = {{{kAnalysis, State::reasoning},
                                                      {"<|channel|>commentary<|message|>", State::content},
                                                      {"<|channel|>final<|message|>", State::last},
                                                      {"<|channel|>analysis to=", State::ignored},
                                                      {"<|channel|>commentary to=", State::ignored},
                                                      {" to=", State::ignored}}};
  if (!begun_) {
    if (!could_be(pending_, kStart)) {
      state_ = State::malformed;
      return true;
    }
    if (pending_.size() <= kStart.size()) return false;
    pending_.erase(0, kStart.size());
    begun_ = true;
  }
  bool may_come = false;
  for (const Header& header : kHeaders) {
    may_come = may_come || header.text.starts_with(pending_);
    if (!pending_.starts_with(header.text)) continue;
    state_ = header.next;
    begun_ = false;
    if (keeps_reasoning_ && state_ == State::reasoning) show(header.text.size(), content);
    pending_.erase(0, header.text.size());
    shown_ = 0;
    return true;
  }
  if (!may_come) {
    state_ = State::malformed;
    return true;
  }
  if (keeps_reasoning_ && pending_.size() > kMark.size() && kAnalysis.starts_with(pending_))
    show(pending_.size(), content);
  return false;
}

bool ChannelSplitter::read_text(std::string& out) {
  const bool keeps_end = keeps_reasoning_ && state_ == State::reasoning;
  const std::size_t end = pending_.find(kEnd);
  if (end == std::string::npos) {
    const std::size_t held = partial_tag(pending_, kEnd);
    show(keeps_end ? pending_.size() : pending_.size() - held, out);
    pending_.erase(0, pending_.size() - held);
    shown_ = keeps_end ? held : 0;
    return false;
  }
  show(keeps_end ? end + kEnd.size() : end, out);
  pending_.erase(0, end + kEnd.size());
  shown_ = 0;
  state_ = state_ == State::last ? State::ignored : State::header;
  return true;
}

}  // namespace bankml
