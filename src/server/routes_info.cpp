// GET /health, /props, /v1/models, /metrics, /slots, /cache (docs/http-api.md 6).
#include <fmt/core.h>

#include <boost/json/array.hpp>
#include <chrono>
#include <cstdlib>

#include "bankml/model/model.hpp"
#include "server/openapi.hpp"
#include "server/routes.hpp"
#include "server/shapes.hpp"

namespace bankml {
namespace {

// Numbers of vocabulary kinds in /v1/models.
constexpr int kSpmVocabulary = 1, kBpeVocabulary = 2;

std::int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The real time at which the process (its static initialisation) began.
const std::int64_t kStartSeconds = now_seconds();

std::string special_text(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  return token ? std::string(tokenizer.piece(*token, true)) : std::string();
}

// What stands for a picture in the prompts of multimodal models: the environment's word, or a new one with each start,
// so that no text contains it by chance.
const std::string& media_marker() {
  static const std::string marker = [] {
    constexpr std::size_t kLength = 32;
    const char* const given = std::getenv("LLAMA_MEDIA_MARKER");
    return given != nullptr ? std::string(given) : fmt::format("<__media_{}__>", random_id(kLength));
  }();
  return marker;
}

boost::json::object caps_object(const TemplateCaps& caps) {
  return {{"supports_object_arguments", caps.object_arguments},
          {"supports_parallel_tool_calls", caps.parallel_tool_calls},
          {"supports_preserve_reasoning", caps.preserve_reasoning},
          {"supports_reasoning_effort", caps.reasoning_effort},
          {"supports_string_content", caps.string_content},
          {"supports_system_role", caps.system_role},
          {"supports_tool_calls", caps.tool_calls},
          {"supports_tools", caps.tools},
          {"supports_typed_content", caps.typed_content}};
}

// `tokenizer`: where the listing shall show texts, else nullptr.
boost::json::object slot_object(const SlotSnapshot& slot, const Tokenizer* tokenizer) {
  boost::json::object out{
      {"id", slot.id}, {"n_ctx", slot.context}, {"speculative", false}, {"is_processing", slot.processing}};
  if (!slot.had_task) return out;
  out["id_task"] = slot.task;
  out["n_prompt_tokens"] = slot.tokens;
  out["n_prompt_tokens_processed"] = slot.processed;
  out["n_prompt_tokens_cache"] = slot.cached;
  out["n_checkpoints"] = slot.checkpoints;
  out["checkpoint_bytes"] = slot.checkpoint_bytes;
  if (slot.params) {
    const auto& echoed = slot.params->echoed;
    out["params"] = generation_settings(*slot.params, echoed ? *echoed : EchoedSettings(), tokenizer == nullptr);
  }
  out["next_token"] = boost::json::array{boost::json::object{{"has_next_token", slot.has_next_token},
                                                             {"has_new_line", slot.has_new_line},
                                                             {"n_remain", slot.n_remain},
                                                             {"n_decoded", slot.n_decoded}}};
  if (tokenizer != nullptr && slot.texts) {
    out["prompt"] = tokenizer->decode_clean(slot.texts->prompt, true);
    out["generated"] = slot.texts->generated;
  }
  return out;
}

boost::json::array strings(const std::vector<std::string>& list) {
  return boost::json::array(list.begin(), list.end());
}

}  // namespace

ModelInfo describe_model(const Model& model, std::string path) {
  ModelInfo info;
  info.path = std::move(path);
  info.file_type = model.config().file_type;
  info.context_train = model.config().context;
  info.dim = model.config().dim;
  info.parameters = model.parameters();
  for (const GgufTensor& tensor : model.file().tensors()) info.bytes += tensor.data.size();
  return info;
}

Reply get_health(const RouteContext&, const Request&) {
  return json_response(boost::json::object{{"status", "ok"}});
}

Reply get_props(const RouteContext& context, const Request&) {
  const App& app = context.app;
  CompletionParams params;
  params.sampling = context.options.defaults.sampling;
  boost::json::object out{{"default_generation_settings",
                           {{"params", generation_settings(params, {}, true)}, {"n_ctx", app.engine->slot_context()}}},
                          {"total_slots", app.engine->slot_count()},
                          {"model_alias", app.model.id},
                          {"model_ftype", app.model.file_type},
                          {"model_path", app.model.path},
                          {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
                          {"media_marker", media_marker()},
                          {"endpoint_slots", context.options.slots},
                          {"endpoint_props", context.options.props},
                          {"endpoint_metrics", context.options.metrics},
                          {"ui", context.options.ui},
                          {"ui_settings", boost::json::object()},
                          {"chat_template", app.chat_template->source()}};
  if (!app.tool_use_template.empty()) out["chat_template_tool_use"] = app.tool_use_template;
  out["chat_template_caps"] = caps_object(app.chat_template->caps());
  out["bos_token"] = special_text(*app.tokenizer, app.tokenizer->bos());
  out["eos_token"] = special_text(*app.tokenizer, app.tokenizer->eos());
  const std::string_view build = build_info();
  out["build_info"] = boost::json::string_view(build.data(), build.size());
  out["is_sleeping"] = false;
  out["cors_proxy_enabled"] = false;
  return json_response(out);
}

Reply post_props(const RouteContext& context, const Request&) {
  if (!context.options.props)
    throw Error(ErrorKind::unsupported, "changing properties is off: start the server with --props");
  return json_response(boost::json::object{{"success", true}});
}

Reply get_models(const RouteContext& context, const Request&) {
  const ModelInfo& model = context.app.model;
  const boost::json::object details{{"parent_model", ""}, {"format", "gguf"},     {"family", ""},
                                    {"families", {""}},   {"parameter_size", ""}, {"quantization_level", ""}};
  const boost::json::object entry{{"name", model.id},  {"model", model.id}, {"modified_at", ""},
                                  {"size", ""},        {"digest", ""},      {"type", "model"},
                                  {"description", ""}, {"tags", {""}},      {"capabilities", {"completion"}},
                                  {"parameters", ""},  {"details", details}};
  const boost::json::object meta{{"vocab_type", context.app.tokenizer->is_spm() ? kSpmVocabulary : kBpeVocabulary},
                                 {"n_vocab", context.app.tokenizer->size()},
                                 {"n_ctx", context.app.engine->slot_context()},
                                 {"n_ctx_train", model.context_train},
                                 {"n_embd", model.dim},
                                 {"n_params", model.parameters},
                                 {"size", model.bytes},
                                 {"ftype", model.file_type}};
  const boost::json::object data{
      {"id", model.id},    {"aliases", strings(model.aliases)}, {"tags", strings(model.tags)},
      {"object", "model"}, {"created", now_seconds()},          {"owned_by", "bankmld"},
      {"meta", meta}};
  return json_response(boost::json::object{
      {"models", boost::json::array{entry}}, {"object", "list"}, {"data", boost::json::array{data}}});
}

Reply get_metrics(const RouteContext& context, const Request&) {
  if (!context.options.metrics) throw Error(ErrorKind::unsupported, "metrics are off: start the server with --metrics");
  return Response{.status = 200,
                  .content_type = "text/plain; version=0.0.4",
                  .body = context.metrics.render(context.app.engine->metrics()),
                  .headers = {{"Process-Start-Time-Unix", std::to_string(kStartSeconds)}}};
}

Reply get_openapi(const RouteContext&, const Request&) {
  return Response{.status = 200,
                  .content_type = "application/json; charset=utf-8",
                  .body = std::string(openapi_document()),
                  .headers = {}};
}

Reply get_slots(const RouteContext& context, const Request& request) {
  // Clients compare these two texts (docs/http-api.md 6).
  if (!context.options.slots) {
    throw Error(ErrorKind::unsupported, "This server does not support slots endpoint. Start it with `--slots`");
  }
  boost::json::array out;
  bool idle = false;
  for (const SlotSnapshot& slot : context.app.engine->slots()) {
    idle = idle || !slot.processing;
    out.push_back(slot_object(slot, context.options.slot_texts ? context.app.tokenizer : nullptr));
  }
  if (!idle && !request.query_value("fail_on_no_slot").empty()) throw Error(ErrorKind::busy, "no slot available");
  return json_response(out);
}

Reply get_cache(const RouteContext& context, const Request&) {
  const auto now = std::chrono::steady_clock::now();
  boost::json::array conversations;
  for (const CachedConversation& conversation : context.app.engine->cached_conversations()) {
    const std::chrono::duration<double> age = now - conversation.saved;
    conversations.push_back({{"tokens", conversation.tokens},
                             {"bytes", conversation.bytes},
                             {"age_s", age.count()},
                             {"hits", conversation.hits},
                             {"id_task", conversation.task}});
  }
  const EngineMetrics metrics = context.app.engine->metrics();
  return json_response(
      boost::json::object{{"conversations", std::move(conversations)},
                          {"tokens", metrics.cache_tokens},
                          {"bytes", metrics.cache_bytes},
                          {"limit_bytes", metrics.cache_limit_bytes},
                          {"tokens_reused", {{"slot", metrics.reused_from_slot}, {"ram", metrics.reused_from_ram}}}});
}

}  // namespace bankml
