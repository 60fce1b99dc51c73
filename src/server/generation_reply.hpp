#pragma once
// The answer to a generating request, from the engine's events.
#include <memory>

#include "bankml/server/completion_service.hpp"
#include "bankml/server/server.hpp"
#include "server/answer_format.hpp"
#include "server/http.hpp"

namespace bankml {

using MakeFormat = std::unique_ptr<AnswerFormat> (*)(const Generation& generation);

// Submits the tasks when it is started and cancels those that are still open when it is destroyed. The first task that
// fails fails the request. `engine` outlives the reply.
std::unique_ptr<PendingReply> make_generation_reply(CompletionService& engine, Generation generation,
                                                    MakeFormat make_format);

// Answers `request` for each of the prompts, or for each copy of each.
Reply generate(const App& app, CompletionRequest request, std::vector<TokenIds> prompts, MakeFormat make_format);

}  // namespace bankml
