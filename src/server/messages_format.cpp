// Answers of /v1/messages (docs/http-api.md 15).
#include <boost/json/array.hpp>
#include <optional>

#include "server/answer_format.hpp"
#include "server/chat_text.hpp"
#include "server/errors.hpp"
#include "server/shapes.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

enum class Block { thinking, text };

json::object usage(const Timings& timings, int prompt_tokens, int output_tokens) {
  return {{"cache_read_input_tokens", timings.cache_n},
          {"input_tokens", prompt_tokens - timings.cache_n},
          {"output_tokens", output_tokens}};
}

json::value stop_sequence(const Done& done) {
  return done.stopping_word.empty() ? json::value() : json::value(done.stopping_word);
}

const char* stop_reason(const Done& done) noexcept {
  return done.stop == StopType::eos || done.stop == StopType::word ? "end_turn" : "max_tokens";
}

// A request asks for a single answer here: there are no copies.
class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(const Generation& generation) : generation_(generation), text_(generation.request) {}

  void append_progress(std::size_t, const Progress&, const Timings&, std::string&) override {}

  void append_piece(std::size_t, const Piece& piece, std::string& out) override {
    start_message(piece.timings, out);
    const ChatDelta delta = text_.append(piece.text);
    append_delta(Block::thinking, delta.reasoning, out);
    append_delta(Block::text, delta.content, out);
  }

  void append_done(std::size_t, const Done& done, std::string& out) override {
    text_.finish();
    start_message(done.timings, out);
    end_block(out);
    append(out, {{"type", "message_delta"},
                 {"delta", {{"stop_reason", stop_reason(done)}, {"stop_sequence", stop_sequence(done)}}},
                 {"usage", {{"output_tokens", done.timings.predicted_n}}}});
    append(out, {{"type", "message_stop"}});
  }

  void append_error(const Failed& failure, std::string& out) override {
    append_named_event(out, "error", error_object(failure));
  }

  void append_end(std::string&) override {}

  json::value whole(std::span<const Done> results) override {
    const Done& done = results[0];
    const ChatDelta message = chat_message(generation_.request, done.text);
    json::array content;
    if (!message.reasoning.empty()) {
      content.push_back(json::object{{"type", "thinking"}, {"thinking", message.reasoning}, {"signature", ""}});
    }
    if (!message.content.empty()) content.push_back(json::object{{"type", "text"}, {"text", message.content}});
    return head(std::move(content), stop_reason(done), stop_sequence(done),
                usage(done.timings, done.prompt_tokens, done.timings.predicted_n));
  }

 private:
  json::object head(json::array content, json::value reason, json::value sequence, json::object used) const {
    return {{"id", generation_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"content", std::move(content)},
            {"model", generation_.model},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)},
            {"usage", std::move(used)}};
  }

  static void append(std::string& out, const json::object& event) {
    append_named_event(out, event.at("type").get_string(), event);
  }

  void start_message(const Timings& timings, std::string& out) {
    if (std::exchange(started_, true)) return;
    const int prompt_tokens = static_cast<int>(generation_.tasks[0].prompt.size());
    append(out, {{"type", "message_start"}, {"message", head({}, nullptr, nullptr, usage(timings, prompt_tokens, 0))}});
  }

  // Blocks follow each other: another kind of text ends the one before.
  void append_delta(Block kind, const std::string& text, std::string& out) {
    if (text.empty()) return;
    const bool thinks = kind == Block::thinking;
    if (open_ != kind) {
      end_block(out);
      open_ = kind;
      json::object block =
          thinks ? json::object{{"type", "thinking"}, {"thinking", ""}} : json::object{{"type", "text"}, {"text", ""}};
      append(out, {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
    }
    json::object delta = thinks ? json::object{{"type", "thinking_delta"}, {"thinking", text}}
                                : json::object{{"type", "text_delta"}, {"text", text}};
    append(out, {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }

  void end_block(std::string& out) {
    if (!open_) return;
    if (open_ == Block::thinking) {
      append(out, {{"type", "content_block_delta"},
                   {"index", index_},
                   {"delta", {{"type", "signature_delta"}, {"signature", ""}}}});
    }
    append(out, {{"type", "content_block_stop"}, {"index", index_}});
    open_.reset();
    ++index_;
  }

  const Generation& generation_;
  ChatText text_;
  bool started_ = false;
  std::optional<Block> open_;
  int index_ = 0;  // of the open or next block
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_format(const Generation& generation) {
  return std::make_unique<MessagesFormat>(generation);
}

}  // namespace bankml
