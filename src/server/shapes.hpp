#pragma once
// The objects that answers are made of (docs/http-api.md 9).
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/completion_request.hpp"

namespace bankml {

// The settings a request ran with. `brief`: without texts and lists, as GET /props and GET /slots show them.
boost::json::object generation_settings(const CompletionParams& params, const EchoedSettings& echoed, bool brief);

boost::json::object timings_object(const Timings& timings);
boost::json::object progress_object(const Progress& progress);
boost::json::object usage_object(int prompt_tokens, const Timings& timings);

// One entry of `completion_probabilities` or of OpenAI's logprobs, with its alternatives.
boost::json::object probability_object(const TokenProbability& probability, bool post_sampling);
boost::json::array probability_array(const std::vector<TokenProbability>& probabilities, bool post_sampling);

std::string_view stop_type_name(StopType stop) noexcept;
// "stop" or "length".
std::string_view finish_reason(StopType stop) noexcept;

// Only the named fields; "a/b" picks a nested value and keeps that name. Missing ones are left out.
boost::json::object pick_fields(const boost::json::object& object, const std::vector<std::string>& names);

// `length` random letters and digits.
std::string random_id(std::size_t length);

// Starts with a b, as clients of llama-server expect, and the build whose answers these are.
std::string_view build_info() noexcept;

}  // namespace bankml
