// Answers of /completion (docs/http-api.md 10).
#include <boost/json/array.hpp>

#include "server/answer_format.hpp"
#include "server/errors.hpp"
#include "server/json_writer.hpp"
#include "server/shapes.hpp"

namespace bankml {

void append_event(std::string& out, const boost::json::value& data) {
  out += "data: ";
  append_json(out, data);
  out += "\n\n";
}

void append_named_event(std::string& out, std::string_view name, const boost::json::value& data) {
  (out += "event: ").append(name) += '\n';
  append_event(out, data);
}

void AnswerFormat::append_error(const Failed& failure, std::string& out) {
  append_event(out, boost::json::object{{"error", error_object(failure)}});
}

boost::json::object native_piece(const Generation& generation, std::size_t index, std::string_view text, TokenId token,
                                 const Timings& timings) {
  return {{"index", index},
          {"content", boost::json::string_view(text.data(), text.size())},
          {"tokens", boost::json::array{token}},
          {"stop", false},
          {"id_slot", -1},
          {"tokens_predicted", timings.predicted_n},
          {"tokens_evaluated", generation.tasks[index].prompt.size()}};
}

boost::json::object native_result(const Generation& generation, std::size_t index, const Done& done) {
  const CompletionRequest& request = generation.request;
  const GenerationTask& task = generation.tasks[index];
  boost::json::array tokens;
  if (request.return_tokens && !request.stream) tokens = boost::json::array(done.tokens.begin(), done.tokens.end());
  const std::string_view stop_type = stop_type_name(done.stop);
  boost::json::object out{{"index", index},
                          {"content", request.stream ? std::string() : done.text},
                          {"tokens", std::move(tokens)},
                          {"id_slot", done.id_slot},
                          {"stop", true},
                          {"model", generation.model},
                          {"tokens_predicted", done.timings.predicted_n},
                          {"tokens_evaluated", done.prompt_tokens},
                          {"generation_settings", generation_settings(*task.params, request.echoed, false)},
                          {"prompt", generation.tokenizer->decode_clean(task.prompt, true)},
                          {"has_new_line", done.has_new_line},
                          {"truncated", done.truncated},
                          {"stop_type", boost::json::string_view(stop_type.data(), stop_type.size())},
                          {"stopping_word", done.stopping_word},
                          {"tokens_cached", done.slot_tokens},
                          {"timings", timings_object(done.timings)}};
  if (!request.stream && !done.probabilities.empty()) {
    out["completion_probabilities"] = probability_array(done.probabilities, task.params->post_sampling_probs);
  }
  return out;
}

namespace {

class NativeFormat final : public AnswerFormat {
 public:
  explicit NativeFormat(const Generation& generation) : generation_(generation) {}

  void append_progress(std::size_t index, const Progress& progress, const Timings& timings, std::string& out) override {
    boost::json::object event = native_piece(generation_, index, {}, 0, timings);
    if (params(index).timings_per_token) event["timings"] = timings_object(timings);
    event["prompt_progress"] = progress_object(progress);
    append_event(out, event);
  }

  void append_piece(std::size_t index, const Piece& piece, std::string& out) override {
    boost::json::object event = native_piece(generation_, index, piece.text, piece.token, piece.timings);
    if (params(index).timings_per_token || piece.ends_with_stop_word) event["timings"] = timings_object(piece.timings);
    if (piece.probability) {
      event["completion_probabilities"] =
          boost::json::array{probability_object(*piece.probability, params(index).post_sampling_probs)};
    }
    append_event(out, event);
  }

  void append_done(std::size_t index, const Done& done, std::string& out) override {
    append_event(out, result(index, done));
  }

  void append_end(std::string&) override {}

  boost::json::value whole(std::span<const Done> results) override {
    if (results.size() == 1) return result(0, results[0]);
    boost::json::array list;
    for (std::size_t i = 0; i < results.size(); ++i) list.push_back(result(i, results[i]));
    return list;
  }

 private:
  const CompletionParams& params(std::size_t index) const { return *generation_.tasks[index].params; }

  boost::json::object result(std::size_t index, const Done& done) const {
    boost::json::object out = native_result(generation_, index, done);
    const auto& names = generation_.request.response_fields;
    return names.empty() ? out : pick_fields(out, names);
  }

  const Generation& generation_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_native_format(const Generation& generation) {
  return std::make_unique<NativeFormat>(generation);
}

}  // namespace bankml
