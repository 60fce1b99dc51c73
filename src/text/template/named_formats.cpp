#include "text/template/named_formats.hpp"

#include <algorithm>
#include <array>

namespace bankml::jinja {
namespace {

struct NamedFormat {
  std::string_view name, source;
};

// Has more than one name.
constexpr std::string_view kGranite =
    R"({% for m in messages %}{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %})";

// As short as they can be: they see checked messages with text as content, and the flag add_generation_prompt.
constexpr std::array kFormats = std::to_array<NamedFormat>({
    {"chatml",
     R"({% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},
    {"phi4",
     R"({% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %})"},
    {"llama3",
     R"({% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content|trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})"},
    {"command-r",
     R"({% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}
{%- for m in messages %}{% if m.role in names %}
{{- '<|START_OF_TURN_TOKEN|><|' + names[m.role] + '_TOKEN|>' + m.content|trim + '<|END_OF_TURN_TOKEN|>' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %})"},
    {"llama2",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}
{%- if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ m.content + '\n' }}{% elif m.role == 'user' %}{{ m.content + ' [/INST]' }}
{%- else %}{{ m.content + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"llama2-sys",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}
{%- if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}
{%- elif m.role == 'user' %}{{ m.content + ' [/INST]' }}
{%- else %}{{ m.content + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"llama2-sys-bos",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}
{%- if not ns.open %}{{ ('' if loop.first else '<s>') + '[INST] ' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}
{%- elif m.role == 'user' %}{{ m.content + ' [/INST]' }}
{%- else %}{{ m.content + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"llama2-sys-strip",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}{% set text = m.content|trim %}
{%- if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ '<<SYS>>\n' + text + '\n<</SYS>>\n\n' }}
{%- elif m.role == 'user' %}{{ text + ' [/INST]' }}
{%- else %}{{ text + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"mistral-v1",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}
{%- if not ns.open %}{{ ' [INST] ' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ m.content + ' [/INST]' }}
{%- else %}{{ ' ' + m.content + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"mistral-v3",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}
{%- if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ m.content + '[/INST]' }}
{%- else %}{{ ' ' + m.content|trim + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"mistral-v3-tekken",
     R"({% set ns = namespace(open=false) %}{% for m in messages %}
{%- if not ns.open %}{{ '[INST]' }}{% set ns.open = true %}{% endif %}
{%- if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ m.content + '[/INST]' }}
{%- else %}{{ m.content + '</s>' }}{% set ns.open = false %}{% endif %}{% endfor %})"},
    {"mistral-v7",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}
{%- else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %})"},
    {"mistral-v7-tekken",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}
{%- else %}{{ m.content + '</s>' }}{% endif %}{% endfor %})"},
    {"phi3",
     R"({% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"zephyr",
     R"({% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|endoftext|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"falcon3",
     R"({% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"gemma",
     R"({% set ns = namespace(system='') %}{% for m in messages %}
{%- if m.role == 'system' %}{% set ns.system = ns.system + m.content|trim %}{% else %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
{%- if ns.system and m.role != 'assistant' %}{{ ns.system + '\n\n' }}{% set ns.system = '' %}{% endif %}
{{- m.content|trim + '<end_of_turn>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})"},
    {"vicuna",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}
{%- elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})"},
    {"vicuna-orca",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ 'SYSTEM: ' + m.content + '\n' }}
{%- elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}
{%- elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})"},
    {"openchat",
     R"({% for m in messages %}{% if m.role != 'system' %}{{ 'GPT4 Correct ' + m.role|capitalize + ': ' }}{% endif %}
{{- m.content + '<|end_of_turn|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %})"},
    {"deepseek",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n' }}
{%- elif m.role == 'assistant' %}{{ '### Response:\n' + m.content + '\n<|EOT|>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '### Response:\n' }}{% endif %})"},
    {"deepseek2",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}
{%- elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %})"},
    {"deepseek3",
     R"({% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}
{%- elif m.role == 'assistant' %}{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %})"},
    {"granite", kGranite},
    {"granite-4.0", kGranite},
    {"granite-4.1", kGranite},
    {"llama4",
     R"({% for m in messages %}{{ '<|header_start|>' + m.role + '<|header_end|>\n\n' + m.content|trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|header_start|>assistant<|header_end|>\n\n' }}{% endif %})"},
    {"gpt-oss",
     R"({% for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content }}
{{- '<|return|>' if m.role == 'assistant' else '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %})"},
    {"exaone4",
     R"({% for m in messages %}{% if m.role in ['system', 'user', 'assistant', 'tool'] %}
{{- '[|' + m.role + '|]' + m.content|trim + ('\n' if m.role == 'user' else '[|endofturn|]\n') }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %})"},
    {"chatglm4",
     R"({{ '[gMASK]<sop>' }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"glmedge",
     R"({% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %})"},
    {"kimi-k2",
     R"({% set kinds = {'system': 'system', 'user': 'user', 'assistant': 'assistant', 'tool': 'system'} %}
{%- for m in messages %}{% if m.role in kinds %}
{{- '<|im_' + kinds[m.role] + '|>' + m.role + '<|im_middle|>' }}{% endif %}{{ m.content + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %})"},
    {"seed_oss",
     R"({% for m in messages %}{{ '<seed:bos>' + m.role + '\n' }}
{{- (m.content|trim if m.role == 'assistant' else m.content) + '<seed:eos>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<seed:bos>assistant\n' }}{% endif %})"},
    {"megrez",
     R"({% for m in messages %}{{ '<|role_start|>' + m.role + '<|role_end|>' + m.content + '<|turn_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|role_start|>assistant<|role_end|>' }}{% endif %})"},
    {"solar-open",
     R"({% for m in messages %}{{ '<|begin|>' + m.role + '<|content|>' + m.content + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|begin|>assistant' }}{% endif %})"},
});

std::string_view source_of(std::string_view name) noexcept {
  const auto* const found =
      std::ranges::find_if(kFormats, [name](const NamedFormat& format) { return format.name == name; });
  return found == kFormats.end() ? std::string_view() : found->source;
}

// The format of templates that contain all of the marks. The first row that fits wins: rows with more marks come first.
struct Marks {
  std::string_view name;
  std::array<std::string_view, 3> marks;
};
constexpr std::array kMarks = std::to_array<Marks>({
    {"phi4", {"<|im_start|>", "<|im_sep|>"}},
    {"chatml", {"<|im_start|>"}},
    {"mistral-v7", {"[INST]", "[SYSTEM_PROMPT]"}},
    {"mistral-v1", {"' [INST] ' + system_message"}},
    {"mistral-v3", {"[AVAILABLE_TOOLS]", "[INST] "}},
    {"mistral-v3-tekken", {"[AVAILABLE_TOOLS]", "[INST]"}},
    {"llama2-sys-strip", {"[INST]", "<<SYS>>", "content.strip()"}},
    {"llama2-sys-bos", {"[INST]", "<<SYS>>", "bos_token + '[INST]"}},
    {"llama2-sys", {"[INST]", "<<SYS>>"}},
    {"llama2", {"[INST]"}},
    {"chatglm4", {"[gMASK]<sop>"}},
    {"phi3", {"<|assistant|>", "<|end|>"}},
    {"zephyr", {"<|user|>", "<|endoftext|>"}},
    {"falcon3", {"<|assistant|>", "<|user|>"}},
    {"gemma", {"<start_of_turn>"}},
    {"openchat", {"GPT4 Correct "}},
    {"vicuna-orca", {"USER: ", "ASSISTANT: ", "SYSTEM: "}},
    {"vicuna", {"USER: ", "ASSISTANT: "}},
    {"deepseek", {"### Instruction:", "<|EOT|>"}},
    {"command-r", {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>"}},
    {"granite", {"<|start_of_role|>"}},
    {"llama4", {"<|header_start|>", "<|header_end|>"}},
    {"gpt-oss", {"<|start|>", "<|channel|>"}},
    {"exaone4", {"[|system|]", "[|assistant|]", "[|endofturn|]"}},
    {"kimi-k2", {"<|im_middle|>", "<|im_end|>"}},
    {"seed_oss", {"<seed:bos>"}},
    {"deepseek3", {"<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"}},
    {"deepseek2", {"'Assistant: ' + message['content'] + eos_token"}},
});

}  // namespace

std::string_view find_named_format(std::string_view text) noexcept {
  if (const std::string_view source = source_of(text); !source.empty()) return source;
  for (const Marks& row : kMarks) {
    const auto has = [text](std::string_view mark) { return text.find(mark) != std::string_view::npos; };
    if (std::ranges::all_of(row.marks, has)) return source_of(row.name);
  }
  return {};
}

}  // namespace bankml::jinja
