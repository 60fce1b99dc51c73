// From chat requests to prompts: docs/chat-templates.md sections 1, 2 and 4. The files of tests/data/templates and
// fixtures hold answers of llama-server b11192 to POST /apply-template.
#include "bankml/text/chat_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(BANKML_TEST_DATA "/") + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

json::object object(std::string_view text) {
  return json::parse(text).as_object();
}

// "<role:content>" for each message, then "GEN" where a generation prompt is asked for.
constexpr std::string_view kPlain =
    "{% for m in messages %}<{{ m.role }}:{{ m.content }}>{% endfor %}{% if add_generation_prompt %}GEN{% endif %}";
constexpr std::string_view kThinking =
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>\n{{ m.reasoning_content "
    "}}\n</think>\n\n{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% if not enable_thinking "
    "%}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}";

std::string render(std::string_view source, std::string_view request, TemplateOptions options = {}) {
  return ChatTemplate(source, std::move(options)).render(object(request)).text;
}

void expect_error(std::string_view source, std::string_view request, ErrorKind kind) {
  SCOPED_TRACE(request);
  try {
    ADD_FAILURE() << "rendered: " << render(source, request);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
  }
}

void expect_recorded(const ChatTemplate& chat, const json::array& cases) {
  for (const json::value& entry : cases) {
    const json::object request{{"messages", entry.at("messages")}};
    SCOPED_TRACE(json::serialize(request));
    EXPECT_EQ(chat.render(request).text, std::string_view(entry.at("answer").at("prompt").as_string()));
  }
}

TEST(ChatTemplate, GivesTheRecordedPromptsOfSmolLm2) {
  TemplateOptions options;
  options.bos_token = "<|im_start|>";  // stays: this vocabulary does not add BOS
  options.eos_token = "<|im_end|>";
  const ChatTemplate chat(read_file("templates/smollm2.jinja"), options);
  expect_recorded(chat,
                  json::parse(read_file("fixtures/SmolLM2-135M-Instruct.Q4_1.json")).at("apply_template").as_array());
}

TEST(ChatTemplate, GivesTheRecordedPromptsOfAModelWithoutTemplate) {
  TemplateOptions options;
  options.bos_token = "<bos>";
  options.adds_bos = true;
  const json::value fixtures = json::parse(read_file("fixtures/gemma-3-270m-q4_k_m.json"));
  expect_recorded(ChatTemplate("", options), fixtures.at("apply_template").as_array());
  expect_recorded(ChatTemplate("chatml", options), fixtures.at("apply_template").as_array());
}

TEST(ChatTemplate, RendersTypicalTemplatesLikeTheRecordings) {
  TemplateOptions options;
  options.bos_token = "<|s22|>";
  options.eos_token = "<|s23|>";
  const json::value recordings = json::parse(read_file("templates/prompts.json"));
  for (const json::value& entry : recordings.as_array()) {
    const std::string name(entry.at("template").as_string());
    const ChatTemplate chat(read_file("templates/" + name), options);
    const json::value& caps = entry.at("caps");
    const TemplateCaps& found = chat.caps();
    EXPECT_EQ(found.string_content, caps.at("string_content").as_bool()) << name;
    EXPECT_EQ(found.typed_content, caps.at("typed_content").as_bool()) << name;
    EXPECT_EQ(found.system_role, caps.at("system_role").as_bool()) << name;
    EXPECT_EQ(found.tools, caps.at("tools").as_bool()) << name;
    EXPECT_EQ(found.tool_calls, caps.at("tool_calls").as_bool()) << name;
    EXPECT_EQ(found.parallel_tool_calls, caps.at("parallel_tool_calls").as_bool()) << name;
    EXPECT_EQ(found.object_arguments, caps.at("object_arguments").as_bool()) << name;
    EXPECT_EQ(found.preserve_reasoning, caps.at("preserve_reasoning").as_bool()) << name;
    EXPECT_EQ(found.reasoning_effort, caps.at("reasoning_effort").as_bool()) << name;
    for (const json::value& item : entry.at("cases").as_array()) {
      SCOPED_TRACE(name + " " + json::serialize(item.at("request")));
      const json::object& request = item.at("request").as_object();
      if (item.at("status").as_int64() != 200) {
        EXPECT_THROW(chat.render(request), Error);
      } else {
        EXPECT_EQ(chat.render(request).text, std::string_view(item.at("prompt").as_string()));
      }
    }
  }
}

TEST(ChatTemplate, RejectsBadMessagesWith400) {
  for (
      const char* messages :
      {R"("x")", "null", "[1]", R"([{"role": "user"}])", R"([{"role": "user", "content": 5}])",
       R"([{"role": "user", "content": {"a": 1}}])", R"([{"role": "assistant"}])",
       R"([{"role": "user", "content": ["x"]}])", R"([{"role": "user", "content": [{"text": "x"}]}])",
       R"([{"role": "user", "content": [{"type": "sound"}]}])",
       R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])",
       // the first look goes over all messages before the second one starts
       R"([{"content": "x"}, {"role": "user"}])"}) {
    expect_error(kPlain, std::string(R"({"messages": )") + messages + "}", ErrorKind::invalid_request);
  }
  expect_error(kPlain, "{}", ErrorKind::invalid_request);
}

TEST(ChatTemplate, RejectsWhatTheSecondLookFindsWith500) {
  for (const char* message :
       {R"({"content": "x"})", R"({"role": 1, "content": "x"})", R"({"role": "user", "content": [{"type": "text"}]})",
        R"({"role": "user", "content": [{"type": "text", "text": 5}]})",
        R"({"role": "user", "content": "x", "name": null})",
        R"({"role": "user", "content": "x", "reasoning_content": 5})",
        R"({"role": "tool", "content": "x", "tool_call_id": 5})", R"({"role": "assistant", "tool_calls": "x"})",
        R"({"role": "assistant", "tool_calls": [{"type": "x"}]})",
        R"({"role": "assistant", "tool_calls": [{"type": "function"}]})",
        R"({"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f"}}]})",
        R"({"role": "assistant", "tool_calls": [{"type": "function", "function": {"arguments": "{}"}}]})"}) {
    expect_error(kPlain, std::string(R"({"messages": [)") + message + R"(, {"role": "user", "content": "u"}]})",
                 ErrorKind::internal);
  }
  for (const char* tools : {R"("x")", "[5]", R"([{"type": "x"}])", R"([{"type": "function"}])",
                            R"([{"type": "function", "function": {}}])"}) {
    expect_error(kPlain, std::string(R"({"messages": [{"role": "user", "content": "u"}], "tools": )") + tools + "}",
                 ErrorKind::internal);
  }
}

TEST(ChatTemplate, SaysThatImagesAreNotSupported) {
  for (const auto& [type, name] :
       {std::pair{"image_url", "image"}, {"input_audio", "audio"}, {"input_video", "video"}, {"video_url", "video"}}) {
    try {
      render(kPlain, std::string(R"({"messages": [{"role": "user", "content": [{"type": ")") + type + R"("}]}]})");
      ADD_FAILURE() << type;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_EQ(error.what(), std::string(name) + " input is not supported");
    }
  }
}

TEST(ChatTemplate, ShowsTemplatesTheDocumentedKeysInOrder) {
  const std::string_view source = "{% for m in messages %}{{ m|string }}{% endfor %}{{ tools|string if tools }}";
  EXPECT_EQ(
      render(source,
             R"({"messages": [{"foo": 1, "name": "n", "content": "x", "reasoning_content": "r", "role": "user"}]})"),
      "{'role': 'user', 'content': 'x', 'reasoning_content': 'r', 'name': 'n'}");
  EXPECT_EQ(
      render(
          source,
          R"({"messages": [{"role": "assistant", "content": null, "tool_calls": null}, {"role": "user", "content": []}]})"),
      "{'role': 'assistant', 'content': ''}{'role': 'user', 'content': ''}");
  EXPECT_EQ(
      render(source,
             R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "c1", "function": {"arguments": "{\"x\": 1}",
                   "name": "f"}, "type": "function"}]}, {"role": "tool", "tool_call_id": "c1", "content": "r"}]})"),
      "{'role': 'assistant', 'content': '', 'tool_calls': [{'type': 'function', 'function': {'name': 'f', 'arguments': "
      "{'x': 1}}, "
      "'id': 'c1'}]}{'role': 'tool', 'content': 'r', 'tool_call_id': 'c1'}");
  EXPECT_EQ(
      render(
          source,
          R"({"messages": [], "tools": [{"function": {"parameters": {"b": 1, "a": 2}, "name": "f"}, "x": 1, "type": "function"},
                   {"type": "function", "function": {"name": "g", "description": "d"}}]})"),
      "[{'type': 'function', 'function': {'name': 'f', 'description': '', 'parameters': {'b': 1, 'a': 2}}}, "
      "{'type': 'function', 'function': {'name': 'g', 'description': 'd', 'parameters': {}}}]");
}

TEST(ChatTemplate, GivesArgumentsAsTextToTemplatesThatReadText) {
  const std::string_view source =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% "
      "endfor %}";
  EXPECT_FALSE(ChatTemplate(source).caps().object_arguments);
  const auto with = [&](std::string arguments) {
    return render(
        source,
        R"({"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" +
            arguments + R"(}}]}, {"role": "user", "content": "u"}]})");
  };
  EXPECT_EQ(with(R"("{\"x\":  1}")"), R"(f{"x":  1})");
  EXPECT_EQ(with(R"({"y": [1, 2.5, 2.0, null, true, "é\n"]})"), R"(f{"y":[1,2.5,2.0,null,true,"é\n"]})");
  EXPECT_EQ(with(R"("no json")"), "fno json");
}

TEST(ChatTemplate, RejectsArgumentsThatAreNoJsonForTemplatesThatReadMembers) {
  expect_error(
      "{% for m in messages %}{{ m|tojson }}{% endfor %}",
      R"({"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{bad"}}]},
                   {"role": "user", "content": "u"}]})",
      ErrorKind::internal);
}

TEST(ChatTemplate, JoinsPartsForTemplatesThatTakeText) {
  constexpr std::string_view kParts =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2"}]}]})";
  EXPECT_EQ(render(kPlain, kParts), "<user:p1\np2>GEN");
  const std::string_view typed =
      "{% for m in messages %}{% for p in m.content %}{{ p|tojson }}{% endfor %}{% endfor %}";
  EXPECT_EQ(render(typed, kParts), R"({"type": "text", "text": "p1"}{"type": "text", "text": "p2"})");
  EXPECT_EQ(render(typed, R"({"messages": [{"role": "user", "content": "u"}]})"), R"({"type": "text", "text": "u"})");
  const std::string_view both =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text "
      "}}]{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(render(both, kParts), "[p1][p2]");
  EXPECT_EQ(render(both, R"({"messages": [{"role": "user", "content": "u"}]})"), "u");
}

TEST(ChatTemplate, MergesTheSystemMessageForTemplatesWithoutOne) {
  const std::string_view source =
      "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}:{{ m.content }}>{% endif %}{% endfor %}";
  const auto with = [&](std::string messages) { return render(source, R"({"messages": [)" + messages + "]}"); };
  const std::string system = R"({"role": "system", "content": "s"})", user = R"({"role": "user", "content": "u"})";
  EXPECT_EQ(with(system + "," + user), "<user:s\nu>");
  EXPECT_EQ(with(system), "");
  EXPECT_EQ(with(user + "," + system), "<user:u>");
  EXPECT_EQ(with(R"({"role": "developer", "content": "d"},)" + user), "<user:d\nu>");
}

TEST(ChatTemplate, KeepsTheDeveloperRoleForTemplatesWithChannels) {
  constexpr std::string_view kRequest =
      R"({"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}]})";
  EXPECT_EQ(render(kPlain, kRequest), "<system:d><user:u>GEN");
  EXPECT_EQ(render(std::string(kPlain) + "{# <|channel|> #}", kRequest), "<developer:d><user:u>GEN");
}

// Continuing the last message

TEST(ChatTemplate, ContinuesATrailingAssistantMessage) {
  const RenderedPrompt prompt = ChatTemplate(kPlain).render(
      object(R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})"));
  EXPECT_EQ(prompt.text, "<user:u>GENa");
  EXPECT_EQ(prompt.prefill, "a");
  EXPECT_EQ(prompt.generation_prompt, "GEN");
}

TEST(ChatTemplate, AppendsNothingForAnEmptyTrailingMessage) {
  EXPECT_EQ(render(kPlain, R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": ""}]})"),
            "<user:u>");
}

TEST(ChatTemplate, JoinsContinuedPartsByAnEmptyLine) {
  EXPECT_EQ(
      render(
          kPlain,
          R"({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2"}]}]})"),
      "GENp1\n\np2");
}

TEST(ChatTemplate, AnswersATrailingAssistantMessageWhenPrefillIsOff) {
  TemplateOptions options;
  options.prefill_assistant = false;
  EXPECT_EQ(render(kPlain, R"({"messages": [{"role": "assistant", "content": "a"}]})", options), "<assistant:a>GEN");
  EXPECT_EQ(
      render(kPlain, R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})",
             options),
      "<assistant:a><assistant:b>GEN");
}

TEST(ChatTemplate, HonoursContinueFinalMessage) {
  EXPECT_EQ(
      render(
          kPlain,
          R"({"messages": [{"role": "user", "content": "u"}], "continue_final_message": true, "add_generation_prompt": false})"),
      "GENu");
  EXPECT_EQ(
      render(
          kPlain,
          R"({"messages": [{"role": "user", "content": "u"}], "continue_final_message": 5, "add_generation_prompt": false})"),
      "<user:u>");
  EXPECT_EQ(render(kPlain, R"({"messages": [], "continue_final_message": true, "add_generation_prompt": false})"), "");
  expect_error(kPlain, R"({"messages": [{"role": "user", "content": "u"}], "continue_final_message": true})",
               ErrorKind::invalid_request);
  expect_error(
      kPlain,
      R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}]})",
      ErrorKind::invalid_request);
}

TEST(ChatTemplate, LeavesTheGenerationPromptOutWhenAsked) {
  const RenderedPrompt prompt = ChatTemplate(kPlain).render(
      object(R"({"messages": [{"role": "user", "content": "u"}], "add_generation_prompt": false})"));
  EXPECT_EQ(prompt.text, "<user:u>");
  EXPECT_EQ(prompt.generation_prompt, "GEN") << "the peer reads answers as if it had been there";
  EXPECT_EQ(
      render(
          kPlain,
          R"({"messages": [{"role": "user", "content": "u"}], "chat_template_kwargs": {"add_generation_prompt": false}})"),
      "<user:u>GEN");
}

TEST(ChatTemplate, PutsReasoningIntoAThinkBlockWhenContinuing) {
  const auto with = [](std::string message, std::string more = "") {
    return render(kThinking, R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", )" + message +
                                 "}]" + more + "}");
  };
  EXPECT_EQ(with(R"("content": "A")"), "<user>u<assistant><think>\n\n</think>\n\nA");
  EXPECT_EQ(with(R"("content": "A", "reasoning_content": "R")"), "<user>u<assistant><think>\nR\n</think>\n\nA");
  EXPECT_EQ(with(R"("content": "", "reasoning_content": "R")"), "<user>u<assistant><think>\nR");
  EXPECT_EQ(with(R"("content": "A", "reasoning_content": "R")",
                 R"(, "continue_final_message": "reasoning_content", "add_generation_prompt": false)"),
            "<user>u<assistant><think>\nR");
  EXPECT_EQ(
      with(R"("content": "A", "reasoning_content": "R")", R"(, "chat_template_kwargs": {"enable_thinking": false})"),
      "<user>u<assistant><think>\nR\n</think>\n\nA");
}

// Variables

// As SmolLM3's: it renders no reasoning, but its generation prompt closes a block for a model that isn't to think.
TEST(ChatTemplate, FindsTheBlockThatTheGenerationPromptCloses) {
  constexpr std::string_view kClosing =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
      "{% if not enable_thinking %}<think>\n\n</think>\n{% endif %}{% endif %}";
  EXPECT_EQ(render(kClosing, R"({"messages": [{"role": "user", "content": "u"}]})"), "<user>u<assistant>");
  EXPECT_EQ(render(kClosing, R"({"messages": [{"role": "assistant", "content": "c", "reasoning_content": "r"}]})"),
            "<assistant><think>r</think>c");
}

TEST(ChatTemplate, ContinuesAMessageInTheChannelThatItBelongsTo) {
  constexpr std::string_view kChannels =
      "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  const std::string analysis = "<|start|>assistant<|channel|>analysis<|message|>",
                    final = "<|end|><|start|>assistant<|channel|>final<|message|>";
  EXPECT_EQ(render(kChannels, R"({"messages": [{"role": "assistant", "content": "c", "reasoning_content": "r"}]})"),
            analysis + "r" + final + "c");
  EXPECT_EQ(render(kChannels, R"({"messages": [{"role": "assistant", "content": "c"}]})"), analysis + final + "c");
}

TEST(ChatTemplate, TellsWhatStandsAroundReasoning) {
  const json::object request = object(R"({"messages": [{"role": "user", "content": "u"}]})");
  const ThinkTags tags = ChatTemplate(kThinking).render(request).think;
  EXPECT_EQ(tags.start, "<think>\n");
  EXPECT_EQ(tags.end, "\n</think>\n\n");
  EXPECT_EQ(ChatTemplate(kPlain).render(request).think.end, "");
}

TEST(ChatTemplate, SetsEnableThinkingByWhatTheTemplateShows) {
  constexpr std::string_view kUser = R"({"messages": [{"role": "user", "content": "u"}]})";
  EXPECT_EQ(render("{{ enable_thinking }}", kUser), "False");
  const std::string thinking = std::string(kThinking) + "|{{ enable_thinking }}";
  EXPECT_EQ(render(thinking, kUser), "<user>u<assistant>|True");
  EXPECT_EQ(render(thinking, R"({"messages": [], "reasoning_effort": "none"})"),
            "<assistant><think>\n\n</think>\n\n|False");
  EXPECT_EQ(render("{{ enable_thinking }}", R"({"messages": [], "chat_template_kwargs": {"enable_thinking": true}})"),
            "True");
  TemplateOptions off;
  off.thinking = false;
  EXPECT_EQ(render(thinking, kUser, off), "<user>u<assistant><think>\n\n</think>\n\n|False");
  EXPECT_EQ(render(thinking, R"({"messages": [], "chat_template_kwargs": {"enable_thinking": true}})", off),
            "<assistant>|True");
  expect_error(kPlain, R"({"messages": [], "chat_template_kwargs": {"enable_thinking": "yes"}})",
               ErrorKind::invalid_request);
}

TEST(ChatTemplate, ThinksAtNoEffortWhereEnableThinkingIsNamed) {
  constexpr std::string_view kNoEffort =
      R"({"messages": [{"role": "user", "content": "u"}], "reasoning_effort": "none"})";
  EXPECT_EQ(render(kThinking, kNoEffort), "<user>u<assistant><think>\n\n</think>\n\n");
  TemplateOptions on;
  on.kwargs["enable_thinking"] = true;
  EXPECT_EQ(render(kThinking, kNoEffort, on), "<user>u<assistant>");
}

TEST(ChatTemplate, LetsTheRequestOverrideTheServersVariables) {
  TemplateOptions options;
  options.kwargs = object(R"({"a": 1, "b": 2})");
  EXPECT_EQ(render("{{ a }}{{ b }}", R"({"messages": [], "chat_template_kwargs": {"b": 3}})", options), "13");
  EXPECT_EQ(render("{{ messages|length }}{{ tools }}",
                   R"({"messages": [], "chat_template_kwargs": {"messages": [1, 2], "tools": [3]}})"),
            "23");
  EXPECT_EQ(render("{{ a is defined }}", R"({"messages": [], "chat_template_kwargs": 5})"), "False");
}

TEST(ChatTemplate, SpreadsReasoningVariables) {
  constexpr std::string_view kSource =
      "{{ reasoning_effort }},{{ reasoning_strength }},{{ preserve_thinking }},{{ clear_thinking }},{{ "
      "truncate_history_thinking }},{{ drop_thinking }}";
  EXPECT_EQ(render(kSource, R"({"messages": []})"), ",,True,False,False,False");
  EXPECT_EQ(
      render(
          kSource,
          R"({"messages": [], "reasoning_effort": "high", "chat_template_kwargs": {"preserve_reasoning": false, "reasoning_effort": "low"}})"),
      "high,high,False,True,True,True");
  EXPECT_EQ(render(kSource, R"({"messages": [], "chat_template_kwargs": {"reasoning_effort": "low"}})"),
            "low,low,True,False,False,False");
}

TEST(ChatTemplate, DefinesOnlyTheDocumentedVariables) {
  for (const char* name : {"documents", "custom_tools", "builtin_tools", "tool_choice", "pad_token", "tools"}) {
    EXPECT_EQ(render(std::string("{{ ") + name + " is defined }}", R"({"messages": []})"), "False") << name;
  }
  for (const char* name : {"datetime", "date_string", "bos_token", "eos_token", "messages", "enable_thinking"}) {
    EXPECT_EQ(render(std::string("{{ ") + name + " is defined }}", R"({"messages": []})"), "True") << name;
  }
}

TEST(ChatTemplate, TakesBosAndEosOffWhereTheTokenizerAddsThem) {
  TemplateOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  constexpr std::string_view kSource = "{{ bos_token }}{{ bos_token }}x{{ eos_token }}{{ eos_token }}",
                             kRequest = R"({"messages": []})";
  EXPECT_EQ(render(kSource, kRequest, options), "<s><s>x</s></s>");
  options.adds_bos = true;
  EXPECT_EQ(render(kSource, kRequest, options), "<s>x</s></s>");
  options.adds_eos = true;
  EXPECT_EQ(render(kSource, kRequest, options), "<s>x</s>");
}

// Errors

TEST(ChatTemplate, PassesTheTemplatesOwnErrorOn) {
  const ChatTemplate chat("{% if messages|length > 1 %}{{ raise_exception('one message only') }}{% endif %}");
  try {
    chat.render(object(R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_STREQ(error.what(), "one message only");
  }
}

TEST(ChatTemplate, RefusesATemplateThatCanNotBeParsed) {
  try {
    ChatTemplate("x\n{% if %}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_THAT(error.what(), testing::HasSubstr("line 2, column 7"));
  }
}

TEST(ChatTemplate, ReportsATemplateThatFailsWhenItRenders) {
  expect_error("{{ raise_exception('never') }}", R"({"messages": []})", ErrorKind::invalid_request);
  expect_error("{{ tools|tojson }}", R"({"messages": []})", ErrorKind::invalid_request);
}

TEST(ChatTemplate, RefusesVariablesNestedTooDeep) {
  json::parse_options options;
  options.max_depth = 1000;
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  const json::value request =
      json::parse(R"({"messages": [], "chat_template_kwargs": {"x": )" + deep + "}}", {}, options);
  const ChatTemplate chat("{{ x }}");
  EXPECT_THROW(chat.render(request.as_object()), Error);
}

TEST(ChatTemplate, MayBeUsedByManyThreadsAtOnce) {
  const ChatTemplate chat(read_file("templates/thinking_style.jinja"));
  const json::object request = object(
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "x"}]})");
  const std::string expected = chat.render(request).text;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) EXPECT_EQ(chat.render(request).text, expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What llama-server b11192 logs as the start of a user's message.
TEST(ChatTemplateUserMarker, IsWhatStandsBeforeTheTextOfTheUser) {
  EXPECT_EQ(ChatTemplate("").user_marker(), "<|im_start|>user");
  EXPECT_EQ(ChatTemplate(read_file("templates/header_style.jinja")).user_marker(),
            "<|start_header_id|>user<|end_header_id|>");
  EXPECT_EQ(ChatTemplate(read_file("templates/alternating_style.jinja")).user_marker(), "[INST]");
  EXPECT_EQ(ChatTemplate(read_file("templates/thinking_style.jinja")).user_marker(), "<|im_start|>user");
  EXPECT_EQ(ChatTemplate("{% for m in messages %}{{ 'U' if m.role == 'user' else 'A' }}: {{ m.content }}{% endfor %}")
                .user_marker(),
            "U:");
}

TEST(ChatTemplateUserMarker, HoldsTheSystemMessageThatATemplateAdds) {
  EXPECT_EQ(ChatTemplate(read_file("templates/smollm2.jinja")).user_marker(),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user");
}

TEST(ChatTemplateUserMarker, IsEmptyWhereNothingStandsThere) {
  EXPECT_EQ(ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}").user_marker(), "");
  EXPECT_EQ(ChatTemplate("{{ raise_exception('no') }}").user_marker(), "");
}

}  // namespace
}  // namespace bankml
