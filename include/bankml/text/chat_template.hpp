#pragma once
// Chat templates: messages to the text of a prompt, by a Jinja dialect equal to llama-server's.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "bankml/text/think_splitter.hpp"

namespace bankml {

// What a template can do, found by trial renderings at construction. Shown by GET /props.
struct TemplateCaps {
  bool string_content = true, typed_content = false, system_role = true;
  bool tools = true, tool_calls = true, parallel_tool_calls = true, object_arguments = false;
  bool preserve_reasoning = false, reasoning_effort = false;
};

struct TemplateOptions {
  std::string bos_token, eos_token;  // text of the special tokens, "" if there is none
  bool adds_bos = false,
       adds_eos = false;          // of the vocabulary: then a leading BOS text is taken off the rendered prompt
  bool prefill_assistant = true;  // a trailing assistant message is continued
  boost::json::object kwargs;     // server-wide template variables
  bool thinking = true;           // false: models don't think unless a request says so
  bool jinja = true;              // false: a built-in format in place of the template that names it or has its marks
};

struct RenderedPrompt {
  std::string text;
  std::string prefill;            // the trailing assistant text that is being continued, "" if none
  std::string generation_prompt;  // what add_generation_prompt appends
  ThinkTags think;                // around reasoning in this template's messages
};

// Immutable after construction: any thread may use it without locking.
class ChatTemplate {
 public:
  // `source`: Jinja text. Empty or "chatml": the built-in ChatML template.
  // Throws Error(invalid_request): with line and column if it can't be parsed, or if there is no built-in format for
  // it.
  explicit ChatTemplate(std::string_view source, TemplateOptions options = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `request` is the body of a chat completion: messages, tools, add_generation_prompt, continue_final_message,
  // chat_template_kwargs, reasoning_effort. Validated by the peer's rules in their order.
  // Throws Error(invalid_request) for bad input and for a template that raises; Error(internal) where the peer answers
  // 500 (a message without role; image parts on a text model).
  RenderedPrompt render(const boost::json::object& request) const;

  // Whether a built-in format is used: it knows messages only, no tools and no variables.
  bool is_builtin() const noexcept;
  const TemplateCaps& caps() const noexcept;
  // What a rendered message of the user starts with, found by a trial rendering; "" if there is nothing, or without
  // Jinja.
  const std::string& user_marker() const noexcept;
  const std::string& source() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace bankml
