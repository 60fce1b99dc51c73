#include "bankml/text/chat_template.hpp"

#include <boost/json/parse.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "bankml/base/error.hpp"
#include "text/template/capabilities.hpp"
#include "text/template/families.hpp"
#include "text/template/interpreter.hpp"
#include "text/template/messages.hpp"
#include "text/template/named_formats.hpp"
#include "text/template/parser.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

// For models without a template: docs/chat-templates.md section 1.
constexpr std::string_view kChatMl =
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "  {{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}";

// Of a template that can't be used, in the message.
constexpr std::size_t kShownSource = 200;

// gpt-oss templates raise this for channels in a message, which models do write; llama-server lets them pass.
constexpr std::string_view kChannelComplaint = "raise_exception(\"You have passed a message containing <|channel|>",
                           kNoComplaint = "none and (\"<|channel|>";

// Of trial renderings: by what is in front of kTrialText and what behind it, the tags around reasoning are found.
constexpr std::string_view kTrialText = "bankml-trial-reasoning",
                           kTrialQuestion = R"({"messages": [{"role": "user", "content": "text"}]})",
                           kTrialReasoning = R"({"messages": [
    {"role": "user", "content": "text"},
    {"role": "assistant", "content": "text", "reasoning_content": "bankml-trial-reasoning"}]})",
                           kTrialReasoningAndCall = R"({"messages": [
    {"role": "user", "content": "text"},
    {"role": "assistant", "content": "text", "reasoning_content": "bankml-trial-reasoning", "tool_calls": [
        {"type": "function", "id": "call00001", "function": {"name": "tool", "arguments": "{}"}}]},
    {"role": "tool", "content": "text", "tool_call_id": "call00001", "name": "tool"}]})";

// The last tag, <name> or [name], at the end of `text`, with the white space behind it. "" if `text` does not end with
// one.
std::string_view trailing_tag(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos || (text[last] != '>' && text[last] != ']')) return {};
  const std::size_t start = text.rfind(text[last] == '>' ? '<' : '[', last);
  if (start == std::string_view::npos) return {};
  const std::string_view inside = text.substr(start + 1, last - start - 1);
  return inside.empty() || inside.find_first_of(" \t\r\n") != std::string_view::npos ? std::string_view()
                                                                                     : text.substr(start);
}

// The first tag of `text`, with the white space around it. "" if something else comes first.
std::string_view leading_tag(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || (text[start] != '<' && text[start] != '[')) return {};
  const std::size_t last = text.find(text[start] == '<' ? '>' : ']', start);
  if (last == std::string_view::npos) return {};
  return text.substr(0, std::min(text.find_first_not_of(" \t\r\n", last + 1), text.size()));
}

// What `text` has after its common beginning with `other`.
std::string_view added_to(std::string_view text, std::string_view other) {
  const auto at = std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first;
  return text.substr(static_cast<std::size_t>(at - text.begin()));
}

std::string without_complaint(std::string_view source) {
  std::string text(source);
  for (std::size_t at = 0; (at = text.find(kChannelComplaint, at)) != std::string::npos;)
    text.replace(at, kChannelComplaint.size(), kNoComplaint);
  return text;
}

// `text` without its common beginning with `other` if that is all of `other`, else the last tag of `text`.
std::string_view added_or_last_tag(std::string_view text, std::string_view other) {
  return text.starts_with(other) ? text.substr(other.size()) : jinja::trimmed(trailing_tag(text));
}

jinja::Value local_date(jinja::Heap& heap, const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[64];
  return heap.make_text({buffer, std::strftime(buffer, sizeof buffer, format, &local)});
}

// Template variables of one request: the server's, overridden by the request's.
json::object merged_kwargs(const json::object& server, const json::object& request) {
  json::object kwargs = server;
  const json::value* given = request.if_contains("chat_template_kwargs");
  if (given && given->is_object()) {
    for (const auto& member : given->get_object()) kwargs[member.key()] = member.value();
  }
  return kwargs;
}

// The variables of one request beside messages and tools.
struct Variables {
  json::object kwargs;
  bool enable_thinking = false;
  std::optional<std::string> effort;
};

Variables read_variables(const json::object& server, const json::object& request, bool thinks) {
  Variables variables{merged_kwargs(server, request), thinks, {}};
  bool named = false;  // enable_thinking, which counts more than an effort
  if (const json::value* given = variables.kwargs.if_contains("enable_thinking")) {
    // Only a text is refused: most often it is a flag in quotes. Other types leave the server's choice.
    if (given->is_string())
      throw Error(ErrorKind::invalid_request, "enable_thinking must be true or false, not a text");
    if (given->is_bool()) variables.enable_thinking = given->get_bool();
    named = given->is_bool();
  }
  for (const json::object* source : {&std::as_const(variables.kwargs), &request}) {
    const json::value* effort = source->if_contains("reasoning_effort");
    if (effort && effort->is_string()) variables.effort = std::string(effort->get_string());
  }
  if (const json::value* effort = request.if_contains("reasoning_effort"); effort && effort->is_string()) {
    if (effort->get_string() == "none") {
      if (!named) variables.enable_thinking = false;
      variables.effort.reset();
    }
  }
  return variables;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  TemplateOptions options;
  static constexpr jinja::Limits limits{};
  const jinja::Family& family;
  jinja::Program program;  // of the template, also where a built-in format is used: its caps are shown
  std::optional<jinja::Program> format;
  TemplateCaps caps;
  std::string user_marker;
  ThinkTags think;

  Impl(std::string_view text, TemplateOptions given)
      : source(text.empty() || text == "chatml" ? kChatMl : text),
        options(std::move(given)),
        family(jinja::find_family(source)),
        program(jinja::parse(without_complaint(source), limits)) {
    caps = jinja::probe_capabilities(program, jinja::kTrialLimits);
    if (options.jinja) {
      user_marker = jinja::trimmed(jinja::probe_user_prefix(program, jinja::kTrialLimits));
      think = find_think_tags();
      return;
    }
    const std::string_view named = jinja::find_named_format(source);
    if (named.empty()) {
      throw Error(ErrorKind::invalid_request,
                  fmt::format("no built-in chat format is called '{0}' or recognised in it; templates need --jinja",
                              std::string_view(source).substr(0, kShownSource)));
    }
    format.emplace(jinja::parse(named, limits));
  }

  // One rendering, with BOS and EOS taken off where the tokenizer adds them.
  std::string render_text(const jinja::ChatRequest& chat, const Variables& variables, bool generation_prompt,
                          const jinja::Limits& bounds = limits) const try {
    jinja::Heap heap(bounds);
    jinja::Interpreter interpreter(program, heap);
    interpreter.set("messages", jinja::messages_value(heap, chat.messages, caps, family.reasoning));
    interpreter.set("bos_token", jinja::Value::borrowed(options.bos_token));
    interpreter.set("eos_token", jinja::Value::borrowed(options.eos_token));
    if (!chat.tools.empty()) interpreter.set("tools", jinja::tools_value(heap, chat.tools));
    interpreter.set("datetime", local_date(heap, "%b %d %Y"));
    interpreter.set("date_string", local_date(heap, "%d %b %Y"));
    const json::value* keep = variables.kwargs.if_contains("preserve_reasoning");
    if (!keep || keep->is_bool()) set_preserve_reasoning(interpreter, !keep || keep->get_bool());
    for (const auto& member : variables.kwargs) interpreter.set(member.key(), heap.from_json(member.value()));
    interpreter.set("enable_thinking", variables.enable_thinking);
    for (const std::string_view name : {"reasoning_effort", "reasoning_strength"}) {
      if (variables.effort) interpreter.set(name, jinja::Value::borrowed(*variables.effort));
    }
    interpreter.set("add_generation_prompt", generation_prompt ? jinja::Value(true) : jinja::Value());

    std::string text = interpreter.run();
    if (options.adds_bos && !options.bos_token.empty() && text.starts_with(options.bos_token))
      text.erase(0, options.bos_token.size());
    if (options.adds_eos && !options.eos_token.empty() && text.ends_with(options.eos_token)) {
      text.resize(text.size() - options.eos_token.size());
    }
    return text;
  } catch (const jinja::RenderError& error) {  // from the variables: nested too deep, or too large
    throw Error(failure_kind(), fmt::format("chat template: {}", error.what()));
  } catch (const Error& error) {
    throw Error(error.kind() == ErrorKind::invalid_request ? failure_kind() : error.kind(), error.what());
  }

  ErrorKind failure_kind() const {
    return family.refuses_as_internal ? ErrorKind::internal : ErrorKind::invalid_request;
  }

  static void set_preserve_reasoning(jinja::Interpreter& interpreter, bool keep) {
    interpreter.set("preserve_thinking", keep);
    for (const std::string_view drop : {"clear_thinking", "truncate_history_thinking", "drop_thinking"})
      interpreter.set(drop, !keep);
  }

  // What a trial request renders as; nothing where the template fails.
  std::optional<std::string> render_trial(std::string_view request, bool generation_prompt, bool thinks) const {
    try {
      const json::value parsed = json::parse(request);
      jinja::ChatRequest chat = jinja::read_chat_request(parsed.as_object(), false);
      jinja::adapt_messages(chat, caps, family);
      return render_text(chat, Variables{{}, thinks, {}}, generation_prompt, jinja::kTrialLimits);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Both empty: the template does not render reasoning. Only the start empty: the generation prompt opens the block,
  // and there is nothing to put around a continued message.
  ThinkTags find_think_tags() const {
    if (!family.think_end.empty()) return {std::string(family.think_start), std::string(family.think_end)};
    const std::optional<std::string> on = render_trial(kTrialQuestion, true, true),
                                     off = render_trial(kTrialQuestion, true, false);
    if (ThinkTags tags = find_opened_block(on.value_or(""), off.value_or("")); !tags.end.empty()) return tags;
    for (const std::string_view request : {kTrialReasoning, kTrialReasoningAndCall}) {
      const std::optional<std::string> text = render_trial(request, false, true);
      if (!text && request == kTrialReasoning) return {};  // a template that can't render this has no tags to find
      if (ThinkTags tags = find_tags_around_reasoning(text.value_or("")); !tags.end.empty()) return tags;
    }
    // Templates of the first reasoning models know no reasoning_content and cut it out of the content instead.
    if (source.find("content.split('</think>')") != std::string::npos) return {"<think>", "</think>"};
    return find_closed_block(on.value_or(""), off.value_or(""));
  }

  // By an assistant's message with reasoning.
  static ThinkTags find_tags_around_reasoning(std::string_view text) {
    const std::size_t at = text.find(kTrialText);
    if (at == std::string_view::npos) return {};
    const std::string_view end = leading_tag(text.substr(at + kTrialText.size()));
    return end.empty() ? ThinkTags() : ThinkTags{std::string(trailing_tag(text.substr(0, at))), std::string(end)};
  }

  // By generation prompts of which one opens the block and the other closes it, as they write the tags.
  static ThinkTags find_opened_block(std::string_view on, std::string_view off) {
    const std::string_view start = jinja::trimmed(trailing_tag(on)), end = added_or_last_tag(off, on),
                           end_tag = jinja::trimmed(end);
    if (start.size() < 2 || end_tag.size() != start.size() + 1) return {};
    const bool closes = end_tag[0] == start[0] && end_tag[1] == '/' && end_tag.substr(2) == start.substr(1);
    return closes ? ThinkTags{std::string(start), std::string(end)} : ThinkTags();
  }

  // By the empty block that some generation prompts have for models that are not to think.
  static ThinkTags find_closed_block(std::string_view on, std::string_view off) {
    if (off == on) return {};
    const std::string end(jinja::trimmed(trailing_tag(off)));
    if (end.size() < 2 || end[1] != '/') return {};
    const std::string start = end.substr(0, 1) + end.substr(2);
    const std::string_view before = jinja::trimmed(off.substr(0, off.rfind(end)));
    return before.ends_with(start) ? ThinkTags{start, end} : ThinkTags();
  }

  // A message at the end that is the assistant's stays: built-in formats can't leave it open. Nothing is asked to
  // follow it.
  RenderedPrompt render_builtin(jinja::ChatRequest chat) const {
    if (chat.continued) chat.messages.push_back(std::move(*chat.continued));
    jinja::Heap heap(limits);
    jinja::Interpreter interpreter(*format, heap);
    interpreter.set("messages", jinja::messages_value(heap, chat.messages, TemplateCaps()));
    interpreter.set("add_generation_prompt", chat.add_generation_prompt);
    RenderedPrompt prompt;
    prompt.text = interpreter.run();
    return prompt;
  }

  RenderedPrompt render(const json::object& request) const {
    jinja::ChatRequest chat = jinja::read_chat_request(request, options.prefill_assistant);
    const Variables variables = read_variables(options.kwargs, request, options.thinking && !think.end.empty());
    if (format) return render_builtin(std::move(chat));
    jinja::adapt_messages(chat, caps, family);

    RenderedPrompt prompt;
    prompt.think = think;
    prompt.text = render_text(chat, variables, false);
    std::string with_generation = render_text(chat, variables, true);
    prompt.generation_prompt = added_to(with_generation, prompt.text);
    if (chat.continued) {
      continue_message(chat, prompt);
    } else if (chat.add_generation_prompt) {
      prompt.text = std::move(with_generation);
    }
    return prompt;
  }

  // Nothing at all is appended for an empty message, not even the generation prompt: the peer's way.
  void continue_message(const jinja::ChatRequest& chat, RenderedPrompt& prompt) const {
    const std::string_view text = chat.continued_text, reasoning = chat.continued->reasoning;
    if (text.empty() && reasoning.empty()) return;
    const bool content = chat.continuation == jinja::Continuation::content ||
                         (chat.continuation == jinja::Continuation::whole && !text.empty());
    if (!think.start.empty()) {
      const std::size_t tag = prompt.generation_prompt.find(jinja::trimmed(think.start));
      prompt.generation_prompt.resize(std::min(tag, prompt.generation_prompt.size()));
      prompt.generation_prompt += think.start;
      prompt.generation_prompt += reasoning;
      if (content) prompt.generation_prompt += think.end;
    }
    if (content) prompt.prefill = text;
    prompt.text += prompt.generation_prompt + prompt.prefill;
  }
};

ChatTemplate::ChatTemplate(std::string_view source, TemplateOptions options)
    : impl_(std::make_unique<const Impl>(source, std::move(options))) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

RenderedPrompt ChatTemplate::render(const json::object& request) const {
  return impl_->render(request);
}
bool ChatTemplate::is_builtin() const noexcept {
  return impl_->format.has_value();
}
const TemplateCaps& ChatTemplate::caps() const noexcept {
  return impl_->caps;
}
const std::string& ChatTemplate::user_marker() const noexcept {
  return impl_->user_marker;
}
const std::string& ChatTemplate::source() const noexcept {
  return impl_->source;
}

}  // namespace bankml
