#pragma once
// How the results of a generation look in an answer: one class per API, each for whole answers and for streams.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/completion_request.hpp"
#include "server/prompt.hpp"

namespace bankml {

struct GenerationTask {
  TokenIds prompt;
  std::shared_ptr<const CompletionParams> params;
};

// All that is known of a generating request before it starts. Tasks are ordered by prompt, then by copy.
struct Generation {
  CompletionRequest request;
  std::vector<GenerationTask> tasks;
  const Tokenizer* tokenizer = nullptr;
  std::string model;         // the server's id of it
  std::string id;            // "chatcmpl-..."
  std::int64_t created = 0;  // seconds since 1970
};

// Called by one thread at a time, with the events of each task in their order. `index`: of the task. The stream
// functions append server-sent events to `out`.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  virtual void append_progress(std::size_t index, const Progress& progress, const Timings& timings,
                               std::string& out) = 0;
  virtual void append_piece(std::size_t index, const Piece& piece, std::string& out) = 0;
  virtual void append_done(std::size_t index, const Done& done, std::string& out) = 0;
  virtual void append_end(std::string& out) = 0;  // after the last task
  // In place of everything that would have followed.
  virtual void append_error(const Failed& failure, std::string& out);
  // The answer to a request that does not stream, from the results of all its tasks.
  virtual boost::json::value whole(std::span<const Done> results) = 0;
};

// "data: ..." and an empty line.
void append_event(std::string& out, const boost::json::value& data);
// The same after "event: NAME".
void append_named_event(std::string& out, std::string_view name, const boost::json::value& data);

// /completion. The generation outlives the format.
std::unique_ptr<AnswerFormat> make_native_format(const Generation& generation);
// /v1/completions.
std::unique_ptr<AnswerFormat> make_completions_format(const Generation& generation);
// /v1/chat/completions.
std::unique_ptr<AnswerFormat> make_chat_format(const Generation& generation);

// /v1/responses.
std::unique_ptr<AnswerFormat> make_responses_format(const Generation& generation);
// /v1/messages.
std::unique_ptr<AnswerFormat> make_messages_format(const Generation& generation);

// The objects of /completion for a piece and for the end, which are also the `__verbose` field of the other formats.
boost::json::object native_piece(const Generation& generation, std::size_t index, std::string_view text, TokenId token,
                                 const Timings& timings);
boost::json::object native_result(const Generation& generation, std::size_t index, const Done& done);

}  // namespace bankml
