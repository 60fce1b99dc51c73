// Answers of /v1/completions and /v1/chat/completions (docs/http-api.md 11, 12).
#include <boost/json/array.hpp>

#include "server/answer_format.hpp"
#include "server/chat_text.hpp"
#include "server/shapes.hpp"

namespace bankml {
namespace {

boost::json::string_view view(std::string_view text) noexcept {
  return {text.data(), text.size()};
}

class OpenAiFormat : public AnswerFormat {
 public:
  explicit OpenAiFormat(const Generation& generation) : generation_(generation) {}

  void append_end(std::string& out) override { out += "data: [DONE]\n\n"; }

 protected:
  const Generation& generation() const noexcept { return generation_; }
  const CompletionParams& params(std::size_t index) const { return *generation_.tasks[index].params; }

  boost::json::object envelope(boost::json::array choices, std::string_view object) const {
    return {{"choices", std::move(choices)},
            {"created", generation_.created},
            {"model", generation_.model},
            {"system_fingerprint", view(build_info())},
            {"object", view(object)}};
  }
  // What a whole answer has besides its choices; the counts are those of the first task.
  void append_summary(boost::json::object& out, std::size_t index, const Done& done) const {
    out["usage"] = usage_object(done.prompt_tokens, done.timings);
    out["id"] = generation_.id;
    append_verbose(out, index, done);
    out["timings"] = timings_object(done.timings);
  }
  void append_verbose(boost::json::object& out, std::size_t index, const Done& done) const {
    if (generation_.request.verbose) out["__verbose"] = native_result(generation_, index, done);
  }
  boost::json::value logprobs(std::size_t index, const std::vector<TokenProbability>& probabilities) const {
    if (probabilities.empty()) return nullptr;
    return boost::json::object{{"content", probability_array(probabilities, params(index).post_sampling_probs)}};
  }
  boost::json::value logprobs(std::size_t index, const Piece& piece) const {
    if (!piece.probability) return nullptr;
    return boost::json::object{
        {"content", boost::json::array{probability_object(*piece.probability, params(index).post_sampling_probs)}}};
  }
  bool shows_timings(std::size_t index, const Piece& piece) const {
    return params(index).timings_per_token || piece.ends_with_stop_word;
  }

 private:
  const Generation& generation_;
};

class CompletionsFormat final : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  void append_progress(std::size_t index, const Progress& progress, const Timings& timings, std::string& out) override {
    boost::json::object event = chunk(choice(index, {}, nullptr, nullptr));
    if (params(index).timings_per_token) event["timings"] = timings_object(timings);
    event["prompt_progress"] = progress_object(progress);
    append_event(out, event);
  }

  void append_piece(std::size_t index, const Piece& piece, std::string& out) override {
    boost::json::object event = chunk(choice(index, piece.text, logprobs(index, piece), nullptr));
    if (generation().request.verbose) {
      boost::json::object native = native_piece(generation(), index, piece.text, piece.token, piece.timings);
      if (shows_timings(index, piece)) native["timings"] = timings_object(piece.timings);
      event["__verbose"] = std::move(native);
    }
    if (shows_timings(index, piece)) event["timings"] = timings_object(piece.timings);
    append_event(out, event);
  }

  void append_done(std::size_t index, const Done& done, std::string& out) override {
    boost::json::object event =
        envelope({choice(index, {}, nullptr, view(finish_reason(done.stop)))}, "text_completion");
    append_summary(event, index, done);
    append_event(out, event);
  }

  boost::json::value whole(std::span<const Done> results) override {
    boost::json::array choices;
    for (std::size_t i = 0; i < results.size(); ++i) {
      choices.push_back(
          choice(i, results[i].text, logprobs(i, results[i].probabilities), view(finish_reason(results[i].stop))));
    }
    boost::json::object out = envelope(std::move(choices), "text_completion");
    append_summary(out, 0, results[0]);
    return out;
  }

 private:
  static boost::json::object choice(std::size_t index, std::string_view text, boost::json::value logprobs,
                                    boost::json::value finish_reason) {
    return {{"text", view(text)},
            {"index", index},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish_reason)}};
  }
  boost::json::object chunk(boost::json::object choice) const {
    boost::json::object out = envelope({std::move(choice)}, "text_completion");
    out["id"] = generation().id;
    return out;
  }
};

class ChatFormat final : public OpenAiFormat {
 public:
  explicit ChatFormat(const Generation& generation)
      : OpenAiFormat(generation), texts_(generation.tasks.size(), ChatText(generation.request)) {}

  void append_progress(std::size_t index, const Progress& progress, const Timings& timings, std::string& out) override {
    boost::json::object event = chunk(index, role_delta(), nullptr);
    if (params(index).timings_per_token) event["timings"] = timings_object(timings);
    event["prompt_progress"] = progress_object(progress);
    append_event(out, event);
  }

  // Logprobs and timings ride on the last event of the token; a token without visible text sends none.
  void append_piece(std::size_t index, const Piece& piece, std::string& out) override {
    std::vector<boost::json::object> deltas;
    if (!texts_[index].begun()) deltas.push_back(role_delta());
    const ChatDelta delta = texts_[index].append(piece.text);
    if (!delta.reasoning.empty()) deltas.push_back({{"reasoning_content", delta.reasoning}});
    if (!delta.content.empty()) deltas.push_back({{"content", delta.content}});
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      const bool last = i + 1 == deltas.size();
      boost::json::object event =
          chunk(index, std::move(deltas[i]), nullptr, last ? logprobs(index, piece) : boost::json::value());
      if (last && shows_timings(index, piece)) event["timings"] = timings_object(piece.timings);
      append_event(out, event);
    }
  }

  void append_done(std::size_t index, const Done& done, std::string& out) override {
    texts_[index].finish();
    boost::json::object event = chunk(index, {}, view(finish_reason(done.stop)));
    if (generation().request.include_usage) {
      append_event(out, event);
      event = chunk_envelope({});
      event["usage"] = usage_object(done.prompt_tokens, done.timings);
    }
    event["timings"] = timings_object(done.timings);
    append_verbose(event, index, done);
    append_event(out, event);
  }

  boost::json::value whole(std::span<const Done> results) override {
    boost::json::array choices;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Done& done = results[i];
      const ChatDelta said = chat_message(generation().request, done.text);
      boost::json::object message{{"role", "assistant"}, {"content", said.content}};
      if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
      boost::json::object choice{
          {"finish_reason", view(finish_reason(done.stop))}, {"index", i}, {"message", std::move(message)}};
      if (!done.probabilities.empty()) choice["logprobs"] = logprobs(i, done.probabilities);
      choices.push_back(std::move(choice));
    }
    boost::json::object out = envelope(std::move(choices), "chat.completion");
    append_summary(out, 0, results[0]);
    return out;
  }

 private:
  static boost::json::object role_delta() { return {{"role", "assistant"}, {"content", nullptr}}; }

  boost::json::object chunk(std::size_t index, boost::json::object delta, boost::json::value finish_reason,
                            boost::json::value logprobs = nullptr) const {
    boost::json::object choice{
        {"finish_reason", std::move(finish_reason)}, {"index", index}, {"delta", std::move(delta)}};
    if (!logprobs.is_null()) choice["logprobs"] = std::move(logprobs);
    return chunk_envelope({std::move(choice)});
  }
  boost::json::object chunk_envelope(boost::json::array choices) const {
    return {{"choices", std::move(choices)},
            {"created", generation().created},
            {"id", generation().id},
            {"model", generation().model},
            {"system_fingerprint", view(build_info())},
            {"object", "chat.completion.chunk"}};
  }

  std::vector<ChatText> texts_;  // per task
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completions_format(const Generation& generation) {
  return std::make_unique<CompletionsFormat>(generation);
}

std::unique_ptr<AnswerFormat> make_chat_format(const Generation& generation) {
  return std::make_unique<ChatFormat>(generation);
}

}  // namespace bankml
