#include "bankml/text/think_splitter.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace bankml {
namespace {

// Of models whose answers are a chain of messages, each with a channel:
// "<|start|>assistant<|channel|>analysis<|message|>" and text up to "<|end|>". What isn't analysis is content.
constexpr std::string_view kChannel = "<|channel|>", kAnalysis = "<|channel|>analysis", kMessage = "<|message|>",
                           kMessageStart = "<|start|>", kMessageEnd = "<|end|>";

constexpr std::string_view kSpace = " \t\n\v\f\r";

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

// A tag and the white space behind it.
std::pair<std::string_view, std::string_view> cut_tag(std::string_view text) {
  text = without_leading_space(text);
  const std::size_t end = text.find_last_not_of(kSpace) + 1;
  return {text.substr(0, end), text.substr(end)};
}

// Length of the longest end of `text` that could become `tag`.
std::size_t partial_tag(std::string_view text, std::string_view tag) {
  std::size_t n = std::min(text.size(), tag.size() - 1);
  while (!tag.starts_with(text.substr(text.size() - n))) --n;
  return n;
}

// Whether `text` begins with the tag or, as far as it goes, like it.
bool could_be(std::string_view text, std::string_view tag) {
  return text.starts_with(tag) || tag.starts_with(text);
}

// Moves what is certain from `pending`; says whether a message ended.
bool read_content(std::string& out, std::string& pending, bool in_message) {
  const std::size_t end = in_message ? pending.find(kMessageEnd) : std::string::npos;
  const std::size_t held = in_message ? partial_tag(pending, kMessageEnd) : 0;
  const std::size_t certain = end != std::string::npos ? end : pending.size() - held;
  out += pending.substr(0, certain);
  pending.erase(0, end != std::string::npos ? end + kMessageEnd.size() : certain);
  return end != std::string::npos;
}

}  // namespace

ThinkSplitter::ThinkSplitter(const ThinkTags& tags, std::string_view generation_prompt) {
  std::tie(start_, start_space_) = cut_tag(tags.start);
  std::tie(end_, end_space_) = cut_tag(tags.end);
  if (start_.starts_with(kChannel)) {
    start_ = kChannel;
    end_ = kMessageEnd;
    end_space_ = {};
  }
  if (end_.empty()) {
    state_ = State::content;
  } else if (start_.empty()) {
    state_ = State::reasoning;
  } else if (const std::size_t opened = generation_prompt.find(start_); opened != std::string_view::npos) {
    pending_ = generation_prompt.substr(opened);
  }
}

ThinkSplitter::Parts ThinkSplitter::add(std::string_view piece) {
  Parts parts;
  pending_ += piece;
  while (!pending_.empty() && step(parts)) {
  }
  return parts;
}

// Whether the state changed, so that there may be more to do.
bool ThinkSplitter::step(Parts& parts) {
  switch (state_) {
    case State::before:
      return find_start();
    case State::start_space:
      return skip_space(start_space_, State::reasoning);
    case State::reasoning:
      return read_reasoning(parts);
    case State::end_space:
      return skip_space(end_space_, start_ == kChannel ? State::before : State::content);
    case State::content:
      return read_content(parts.content, pending_, start_ == kChannel) && (state_ = State::before, true);
  }
  return false;
}

bool ThinkSplitter::find_start() {
  const std::string_view text = without_leading_space(pending_);
  if (start_ == kChannel && (could_be(text, kChannel) || could_be(text, kMessageStart))) {
    const std::size_t header = pending_.find(kMessage);
    if (header == std::string::npos) return false;
    const bool thinks = std::string_view(pending_).substr(0, header).find(kAnalysis) != std::string_view::npos;
    pending_.erase(0, header + kMessage.size());
    reasons_ = false;
    state_ = thinks ? State::reasoning : State::content;
    return true;
  }
  if (text.size() < start_.size() && start_.starts_with(text)) return false;
  const bool found = text.starts_with(start_);
  pending_ = text.substr(found ? start_.size() : 0);
  state_ = found ? State::start_space : State::content;
  return true;
}

bool ThinkSplitter::skip_space(std::string_view space, State next) {
  std::size_t n = 0;
  while (skipped_ < space.size() && n < pending_.size() && pending_[n] == space[skipped_]) ++skipped_, ++n;
  pending_.erase(0, n);
  if (skipped_ < space.size() && pending_.empty()) return false;
  skipped_ = 0;
  state_ = next;
  return true;
}

bool ThinkSplitter::read_reasoning(Parts& parts) {
  const std::size_t found = pending_.find(end_);
  const bool ends = found != std::string::npos;
  const std::size_t certain = ends ? found : pending_.size() - partial_tag(pending_, end_);
  const std::string_view text = std::string_view(pending_).substr(0, certain);
  reasons_ = reasons_ || text.find_first_not_of(kSpace) != std::string_view::npos;
  if (reasons_) parts.reasoning += text;
  if (ends) {
    state_ = State::end_space;
    pending_.erase(0, found + end_.size());
  } else if (reasons_) {
    pending_.erase(0, certain);
  }
  return ends;
}

ThinkSplitter::Parts split_thinking(const ThinkTags& tags, std::string_view generation_prompt, std::string_view text) {
  ThinkSplitter::Parts parts = ThinkSplitter(tags, generation_prompt).add(text);
  if (parts.reasoning.empty() && parts.content.empty()) parts.content = text;
  return parts;
}

}  // namespace bankml
