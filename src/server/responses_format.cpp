// Answers of /v1/responses (docs/http-api.md 14).
#include <boost/json/array.hpp>
#include <chrono>

#include "server/answer_format.hpp"
#include "server/chat_text.hpp"
#include "server/shapes.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

constexpr std::size_t kIdLength = 32;

std::string make_id(std::string_view prefix) {
  return std::string(prefix) + random_id(kIdLength);
}

json::object text_part(const std::string& text) {
  return {{"type", "output_text"}, {"annotations", json::array()}, {"logprobs", json::array()}, {"text", text}};
}

json::object message_item(const std::string& id, const std::string& text) {
  return {{"type", "message"},
          {"status", "completed"},
          {"id", id},
          {"content", json::array{text_part(text)}},
          {"role", "assistant"}};
}

json::object reasoning_item(const std::string& id, const std::string& text) {
  return {{"id", id},
          {"summary", json::array()},
          {"type", "reasoning"},
          {"content", json::array{json::object{{"text", text}, {"type", "reasoning_text"}}}},
          {"encrypted_content", ""},
          {"status", "completed"}};
}

json::object usage(const Done& done) {
  return {{"input_tokens", done.prompt_tokens},
          {"output_tokens", done.timings.predicted_n},
          {"total_tokens", done.prompt_tokens + done.timings.predicted_n},
          {"input_tokens_details", {{"cached_tokens", done.timings.cache_n}}}};
}

// One answer and its items.
struct Answer {
  explicit Answer(const CompletionRequest& request) : text(request) {}

  json::array items() const {
    json::array out;
    if (!said.reasoning.empty()) out.push_back(reasoning_item(reasoning_id, said.reasoning));
    if (!said.content.empty()) out.push_back(message_item(message_id, said.content));
    return out;
  }

  std::string id = make_id("resp_"), message_id = make_id("msg_"), reasoning_id = make_id("rs_");
  ChatText text;
  ChatDelta said;  // so far
  bool created = false;
};

// The events of one piece: timings ride on the last of them.
class EventList {
 public:
  void add(std::string_view name, json::object data) {
    json::object event{{"type", json::string_view(name.data(), name.size())}};
    for (auto& member : data) event[member.key()] = std::move(member.value());
    events_.emplace_back(name, std::move(event));
  }
  void set_on_last(std::string_view key, json::object value) {
    if (!events_.empty()) events_.back().second[json::string_view(key.data(), key.size())] = std::move(value);
  }
  void append_to(std::string& out) const {
    for (const auto& [name, event] : events_) append_named_event(out, name, event);
  }

 private:
  std::vector<std::pair<std::string_view, json::object>> events_;
};

class ResponsesFormat final : public AnswerFormat {
 public:
  explicit ResponsesFormat(const Generation& generation) : generation_(generation) {
    answers_.reserve(generation.tasks.size());
    for (std::size_t i = 0; i < generation.tasks.size(); ++i) answers_.emplace_back(generation.request);
  }

  void append_progress(std::size_t index, const Progress& progress, const Timings& timings, std::string& out) override {
    Answer& answer = answers_[index];
    EventList events;
    if (!answer.created) add_created(answer, events);
    add_in_progress(answer, events);
    events.set_on_last("prompt_progress", progress_object(progress));
    if (params(index).timings_per_token) events.set_on_last("timings", timings_object(timings));
    events.append_to(out);
  }

  void append_piece(std::size_t index, const Piece& piece, std::string& out) override {
    Answer& answer = answers_[index];
    EventList events;
    if (!answer.created) {
      add_created(answer, events);
      add_in_progress(answer, events);
    }
    add_text(answer, answer.text.append(piece.text), events);
    if (params(index).timings_per_token || piece.ends_with_stop_word) {
      events.set_on_last("timings", timings_object(piece.timings));
    }
    events.append_to(out);
  }

  void append_done(std::size_t index, const Done& done, std::string& out) override {
    Answer& answer = answers_[index];
    answer.text.finish();
    EventList events;
    if (!answer.created) {
      add_created(answer, events);
      add_in_progress(answer, events);
    }
    add_closing(answer, events);
    events.add("response.completed", {{"response",
                                       {{"id", answer.id},
                                        {"object", "response"},
                                        {"created_at", generation_.created},
                                        {"status", "completed"},
                                        {"model", generation_.model},
                                        {"output", answer.items()},
                                        {"usage", usage(done)}}}});
    events.set_on_last("timings", timings_object(done.timings));
    events.append_to(out);
  }

  void append_end(std::string&) override {}

  json::value whole(std::span<const Done> results) override {
    if (results.size() == 1) return response(0, results[0]);
    json::array list;
    for (std::size_t i = 0; i < results.size(); ++i) list.push_back(response(i, results[i]));
    return list;
  }

 private:
  const CompletionParams& params(std::size_t index) const { return *generation_.tasks[index].params; }

  json::object response(std::size_t index, const Done& done) {
    Answer& answer = answers_[index];
    answer.said = chat_message(generation_.request, done.text);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {{"completed_at", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
            {"created_at", generation_.created},
            {"id", answer.id},
            {"model", generation_.model},
            {"object", "response"},
            {"output", answer.items()},
            {"status", "completed"},
            {"usage", usage(done)}};
  }

  static void add_created(Answer& answer, EventList& events) {
    answer.created = true;
    events.add("response.created", {{"response", running(answer)}});
  }
  static void add_in_progress(const Answer& answer, EventList& events) {
    events.add("response.in_progress", {{"response", running(answer)}});
  }
  static json::object running(const Answer& answer) {
    return {{"id", answer.id}, {"object", "response"}, {"status", "in_progress"}};
  }

  static void add_text(Answer& answer, const ChatDelta& delta, EventList& events) {
    if (!delta.reasoning.empty()) {
      if (answer.said.reasoning.empty()) {
        json::object item = reasoning_item(answer.reasoning_id, {});
        item["content"] = json::array();
        item["status"] = "in_progress";
        events.add("response.output_item.added", {{"item", std::move(item)}});
      }
      answer.said.reasoning += delta.reasoning;
      events.add("response.reasoning_text.delta", {{"delta", delta.reasoning}, {"item_id", answer.reasoning_id}});
    }
    if (delta.content.empty()) return;
    if (answer.said.content.empty()) {
      events.add("response.output_item.added", {{"item",
                                                 {{"content", json::array()},
                                                  {"id", answer.message_id},
                                                  {"role", "assistant"},
                                                  {"status", "in_progress"},
                                                  {"type", "message"}}}});
      events.add("response.content_part.added",
                 {{"item_id", answer.message_id}, {"part", {{"type", "output_text"}, {"text", ""}}}});
    }
    answer.said.content += delta.content;
    events.add("response.output_text.delta", {{"item_id", answer.message_id}, {"delta", delta.content}});
  }

  static void add_closing(Answer& answer, EventList& events) {
    ChatDelta& said = answer.said;
    if (!said.reasoning.empty()) said.reasoning.insert(0, answer.text.unshown().reasoning);
    if (!said.content.empty()) said.content.insert(0, answer.text.unshown().content);
    if (!said.reasoning.empty()) {
      events.add("response.output_item.done", {{"item", reasoning_item(answer.reasoning_id, said.reasoning)}});
    }
    if (said.content.empty()) return;
    events.add("response.output_text.done", {{"item_id", answer.message_id}, {"text", said.content}});
    events.add("response.content_part.done", {{"item_id", answer.message_id}, {"part", text_part(said.content)}});
    events.add("response.output_item.done", {{"item", message_item(answer.message_id, said.content)}});
  }

  const Generation& generation_;
  std::vector<Answer> answers_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_responses_format(const Generation& generation) {
  return std::make_unique<ResponsesFormat>(generation);
}

}  // namespace bankml
