#include "bankml/text/chat_template.hpp"

#include <boost/json/parse.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "bankml/base/error.hpp"
#include "text/template/capabilities.hpp"
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

// Templates that contain it have channels, and with them a developer role.
constexpr std::string_view kChannelMark = "<|channel|>";

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

std::string_view trimmed(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t\r\n") - start + 1);
}

// What `text` has after its common beginning with `other`.
std::string_view added_to(std::string_view text, std::string_view other) {
  const auto at = std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first;
  return text.substr(static_cast<std::size_t>(at - text.begin()));
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
  if (const json::value* given = variables.kwargs.if_contains("enable_thinking")) {
    // Only a text is refused: most often it is a flag in quotes. Other types leave the server's choice.
    if (given->is_string())
      throw Error(ErrorKind::invalid_request, "enable_thinking must be true or false, not a text");
    if (given->is_bool()) variables.enable_thinking = given->get_bool();
  }
  for (const json::object* source : {&std::as_const(variables.kwargs), &request}) {
    const json::value* effort = source->if_contains("reasoning_effort");
    if (effort && effort->is_string()) variables.effort = std::string(effort->get_string());
  }
  if (const json::value* effort = request.if_contains("reasoning_effort"); effort && effort->is_string()) {
    if (effort->get_string() == "none") {
      variables.enable_thinking = false;
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
  jinja::Program program;  // of the template, also where a built-in format is used: its caps are shown
  std::optional<jinja::Program> format;
  TemplateCaps caps;
  std::string user_marker;
  ThinkTags think;

  Impl(std::string_view text, TemplateOptions given)
      : source(text.empty() || text == "chatml" ? kChatMl : text),
        options(std::move(given)),
        program(jinja::parse(source, limits)) {
    caps = jinja::probe_capabilities(program, jinja::kTrialLimits);
    if (options.jinja) {
      user_marker = trimmed(jinja::probe_user_prefix(program, jinja::kTrialLimits));
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
    interpreter.set("messages", jinja::messages_value(heap, chat.messages, caps));
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
    throw Error(ErrorKind::invalid_request, fmt::format("chat template: {}", error.what()));
  }

  static void set_preserve_reasoning(jinja::Interpreter& interpreter, bool keep) {
    interpreter.set("preserve_thinking", keep);
    for (const std::string_view drop : {"clear_thinking", "truncate_history_thinking", "drop_thinking"})
      interpreter.set(drop, !keep);
  }

  // By a trial rendering of an assistant's message with reasoning. Both empty: the template does not render it. Only
  // the start empty: the generation prompt opens the block, and there is nothing to put around a continued message.
  ThinkTags find_think_tags() const {
    if (source.find(kChannelMark) != std::string::npos) {
      return {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"};
    }
    static constexpr std::string_view kReasoning = "bankml-trial-reasoning";
    const json::value request = json::parse(
        R"({"messages": [{"role": "user", "content": "text"},
                         {"role": "assistant", "content": "text", "reasoning_content": "bankml-trial-reasoning"}]})");
    try {
      jinja::ChatRequest chat = jinja::read_chat_request(request.as_object(), false);
      jinja::adapt_messages(chat, caps, true);
      const std::string text = render_text(chat, Variables{{}, true, {}}, false, jinja::kTrialLimits);
      const std::size_t at = text.find(kReasoning);
      if (at != std::string::npos) {
        const std::string_view start = trailing_tag(std::string_view(text).substr(0, at));
        const std::string_view end = leading_tag(std::string_view(text).substr(at + kReasoning.size()));
        if (!end.empty()) return {std::string(start), std::string(end)};
      }
    } catch (const Error&) {
      return {};  // a template that can't render this has no tags to find
    }
    // Templates of the first reasoning models know no reasoning_content and cut it out of the content instead.
    if (source.find("content.split('</think>')") != std::string::npos) return {"<think>", "</think>"};
    return find_closed_block();
  }

  // By the empty block that some generation prompts have for models that are not to think.
  ThinkTags find_closed_block() const {
    const json::value request = json::parse(R"({"messages": [{"role": "user", "content": "text"}]})");
    try {
      jinja::ChatRequest chat = jinja::read_chat_request(request.as_object(), false);
      jinja::adapt_messages(chat, caps, true);
      const auto render_trial = [&](bool thinks) {
        return render_text(chat, Variables{{}, thinks, {}}, true, jinja::kTrialLimits);
      };
      const std::string off = render_trial(false);
      if (off == render_trial(true)) return {};
      const std::string end(trimmed(trailing_tag(off)));
      if (end.size() < 2 || end[1] != '/') return {};
      const std::string start = end.substr(0, 1) + end.substr(2);
      const std::string_view before = trimmed(std::string_view(off).substr(0, off.rfind(end)));
      if (before.ends_with(start)) return {start, end};
    } catch (const Error&) {
    }
    return {};
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
    jinja::adapt_messages(chat, caps, source.find(kChannelMark) != std::string::npos);

    RenderedPrompt prompt;
    prompt.think = think;
    prompt.text = render_text(chat, variables, false);
    std::string with_generation = render_text(chat, variables, true);
    prompt.generation_prompt = added_to(with_generation, prompt.text);
    if (chat.continued) {
      continue_message(*chat.continued, chat.continuation, prompt);
    } else if (chat.add_generation_prompt) {
      prompt.text = std::move(with_generation);
    }
    return prompt;
  }

  // Nothing at all is appended for an empty message, not even the generation prompt: the peer's way.
  void continue_message(const jinja::Message& message, jinja::Continuation how, RenderedPrompt& prompt) const {
    if (message.text.empty() && message.reasoning.empty()) return;
    const bool content =
        how == jinja::Continuation::content || (how == jinja::Continuation::whole && !message.text.empty());
    if (!think.start.empty()) {
      const std::size_t tag = prompt.generation_prompt.find(trimmed(think.start));
      prompt.generation_prompt.resize(std::min(tag, prompt.generation_prompt.size()));
      prompt.generation_prompt += think.start;
      prompt.generation_prompt += message.reasoning;
      if (content) prompt.generation_prompt += think.end;
    }
    if (content) prompt.prefill = message.text;
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
