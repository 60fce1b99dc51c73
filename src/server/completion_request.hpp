#pragma once
// The fields that all generating endpoints share (docs/http-api.md 7), as types.
#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/server/server.hpp"

namespace bankml {

// The parser that llama-server would read an answer with: of raw texts, and of what a chat template asked for.
inline constexpr const char* kChatFormatOfTexts = "Content-only";
inline constexpr const char* kChatFormatOfTemplates = "peg-native";

// What answers only repeat in their `generation_settings`.
struct EchoedSettings {
  bool stream = false;
  bool backend_sampling = false;
  bool grammar_lazy = false;
  std::string chat_format = kChatFormatOfTexts;
  std::string reasoning_format = "none";
  std::string generation_prompt;
};

struct CompletionRequest {
  CompletionParams params;
  EchoedSettings echoed;
  bool stream = false;
  bool include_usage = false;  // in chat streams
  bool return_tokens = false;
  bool verbose = false;
  int copies = 1;  // completions of each prompt
  int sse_ping_interval_s = 0;
  std::vector<std::string> response_fields;
  std::string prefill;          // chat: the assistant text that is being continued
  bool streams_prefill = true;  // chat: whether a stream repeats it
  ThinkTags think;              // chat: around reasoning
  Thinking thinking = Thinking::apart;
};

// Whether it names a way to return a model's thinking.
bool is_reasoning_format(std::string_view name) noexcept;

// Fields that are absent take their value from `options`. `slots`: how many copies may be asked for.
// Throws Error(invalid_request) for a field of the wrong type or out of range, Error(unsupported) for what isn't built
// in.
CompletionRequest parse_completion_request(const boost::json::object& body, const ServerOptions& options,
                                           const Tokenizer& tokenizer, int slots);

}  // namespace bankml
