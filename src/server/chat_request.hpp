#pragma once
// The front end of the chat endpoints (docs/http-api.md 12 to 15): bodies of the other APIs become chat bodies, chat
// bodies are checked and rendered.
#include <boost/json/object.hpp>

#include "bankml/text/chat_template.hpp"
#include "server/completion_request.hpp"
#include "server/prompt.hpp"
#include "server/routes.hpp"

namespace bankml {

// The prompt of a chat body, after llama-server's checks of the fields that only chats have. Enough where nothing is
// generated. Throws Error(invalid_request), or Error(internal) where llama-server answers 500.
RenderedPrompt render_chat(const App& app, const boost::json::object& body);

struct ChatRequest {
  CompletionRequest completion;
  TokenIds prompt;
};

// A chat body as a request to generate. Throws as render_chat and parse_completion_request, and Error(unsupported) for
// answers that would have to be constrained or searched for tool calls.
ChatRequest parse_chat_request(const RouteContext& context, const boost::json::object& body);

// The chat body that means the same as a body of /v1/responses. Throws Error(invalid_request).
boost::json::object chat_body_of_responses(const boost::json::object& body);

// The chat body that means the same as a body of /v1/messages. Throws Error(internal) without `messages`, as
// llama-server, Error(invalid_request) for other faults.
boost::json::object chat_body_of_messages(const boost::json::object& body);

}  // namespace bankml
