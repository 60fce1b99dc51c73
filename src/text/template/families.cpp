#include "text/template/families.hpp"

#include <algorithm>

namespace bankml::jinja {
namespace {

constexpr std::string_view kThinkLine = "<think>\n", kThinkLineEnd = "\n</think>\n\n";

// The first that fits counts. Measured with each family's published templates.
constexpr Family kFamilies[] = {
    // Muse
    {.marks = {" to=self<|message|>", "<|eom|>"},
     .think_start = " to=self<|message|>",
     .think_end = "<|eom|><|start|>assistant to=user<|message|>",
     .refuses_as_internal = true},
    // gpt-oss
    {.marks = {"<|channel|>"},
     .think_start = "<|channel|>analysis<|message|>",
     .think_end = "<|end|><|start|>assistant<|channel|>final<|message|>",
     .reasoning = ReasoningForm::thinking_before_calls,
     .keeps_developer_role = true,
     .refuses_as_internal = true},
    // Gemma 4
    {.marks = {"<|channel>", "<channel|>", "<|turn>"},
     .think_start = "<|channel>thought\n",
     .think_end = "<channel|>",
     .refuses_as_internal = true},
    // Ministral 3 and its like
    {.marks = {"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"},
     .absent = "[CALL_ID]",
     .think_start = "[THINK]",
     .think_end = "[/THINK]",
     .reasoning = ReasoningForm::part,
     .refuses_as_internal = true},
    // Kimi K2
    {.marks = {"<|tool_calls_section_begin|>"},
     .think_start = "<think>",
     .think_end = "</think>",
     .refuses_as_internal = true},
    // Kimi K3
    {.marks = {"<|open|>", "<|close|>", "<|sep|>"},
     .think_start = "<|open|>think<|sep|>",
     .think_end = "<|close|>think<|sep|><|open|>response<|sep|>",
     .refuses_as_internal = true},
    // LFM2
    {.marks = {"List of tools: ", "<|im_start|>"},
     .think_start = "<think>",
     .think_end = "</think>",
     .reasoning = ReasoningForm::thinking,
     .refuses_as_internal = true},
    // Command A and later
    {.marks = {"<|START_THINKING|>", "<|START_TEXT|>"},
     .think_start = "<|START_THINKING|>",
     .think_end = "<|END_THINKING|><|START_TEXT|>",
     .refuses_as_internal = true},
    // StepFun
    {.marks = {"<tool_call>", "<function=", "<parameter=", "following functions in JSONSchema format"},
     .think_start = kThinkLine,
     .think_end = kThinkLineEnd,
     .trims_content = true,
     .refuses_as_internal = true},
    // Qwen3-Coder and those who took its form of calls, with and without reasoning
    {.marks = {"<tool_call>", "<function=", "<parameter=", "<think>"},
     .think_start = kThinkLine,
     .think_end = kThinkLineEnd,
     .refuses_as_internal = true},
    {.marks = {"<tool_call>", "<function=", "<parameter="}, .refuses_as_internal = true},
    // DeepSeek V3.2 and later
    {.marks = {"DSML"}, .refuses_as_internal = true},
    // Functionary 3.2
    {.marks = {">>>all"}, .refuses_as_internal = true},
    // Granite 3.3
    {.marks = {"Write your thoughts between <think></think>"}, .think_start = "<think>", .think_end = "</think>"},
};

constexpr Family kNone;

}  // namespace

const Family& find_family(std::string_view source) {
  const auto has = [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; };
  for (const Family& family : kFamilies) {
    if (std::all_of(family.marks.begin(), family.marks.end(), has) && (family.absent.empty() || !has(family.absent)))
      return family;
  }
  return kNone;
}

}  // namespace bankml::jinja
