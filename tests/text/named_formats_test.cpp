// The built-in chat formats (--no-jinja) against prompts recorded from llama-server b11192.
#include "text/template/named_formats.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <fstream>
#include <sstream>
#include <string>

#include "bankml/text/chat_template.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

ChatTemplate builtin(std::string_view source) {
  TemplateOptions options;
  options.jinja = false;
  return ChatTemplate(source, std::move(options));
}

boost::json::object chat(std::string_view text) {
  return boost::json::parse(boost::json::string_view(text.data(), text.size())).as_object();
}

TEST(NamedFormats, RenderThePromptsOfThePeer) {
  std::ifstream file(BANKML_TEST_DATA "/templates/builtin_formats.json");
  ASSERT_TRUE(file) << "tests/data/templates/builtin_formats.json is missing";
  std::stringstream text;
  text << file.rdbuf();
  const boost::json::value recording = boost::json::parse(text.str());
  for (const auto& [name, prompts] : recording.at("prompts").as_object()) {
    const ChatTemplate format = builtin(name);
    for (std::size_t i = 0; i < prompts.as_array().size(); ++i) {
      const auto& request = recording.at("requests").at(i).as_object();
      EXPECT_EQ(format.render(request).text, std::string(prompts.at(i).as_string()))
          << std::string(name) << " request " << i;
    }
  }
}

TEST(NamedFormats, AreRecognisedByTheirMarksInTemplates) {
  const auto same = [](std::string_view text, std::string_view name) {
    EXPECT_FALSE(jinja::find_named_format(name).empty()) << name;
    EXPECT_EQ(jinja::find_named_format(text), jinja::find_named_format(name)) << name;
  };
  same("{{ '<|im_start|>' + message['role'] }}", "chatml");
  same("{{ '<|im_start|>' }}{{ '<|im_sep|>' }}", "phi4");
  same("{{ '<|start_header_id|>' + role + '<|end_header_id|>' }}", "llama3");
  same("{{ '[INST] <<SYS>>' }}", "llama2-sys");
  same("{{ '<start_of_turn>' }}", "gemma");
  same("{{ '[SYSTEM_PROMPT]' + text }}{{ '[INST]' }}", "mistral-v7");
  same("{{ '[gMASK]<sop><|user|><|assistant|>' }}", "chatglm4");
  same("{{ '<|header_start|>' + role + '<|header_end|>' }}", "llama4");
  same("{{ '<|start|>' }}{{ '<|channel|>' }}", "gpt-oss");
  EXPECT_TRUE(jinja::find_named_format("{{ messages }}").empty());
}

TEST(NamedFormats, RefuseTemplatesThatAreNotRecognised) {
  expect_error(ErrorKind::invalid_request, "'nosuch'", [] { builtin("nosuch"); });
}

TEST(NamedFormats, JoinPartsAndKeepRoles) {
  EXPECT_EQ(builtin("chatml")
                .render(chat(R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},
                                                                            {"type":"text","text":"b"}]}]})"))
                .text,
            "<|im_start|>developer\na\nb<|im_end|>\n<|im_start|>assistant\n");
}

TEST(NamedFormats, JoinThePartsOfATrailingAssistantMessageLikeOthers) {
  EXPECT_EQ(builtin("chatml")
                .render(chat(R"({"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},
                                                                            {"type":"text","text":"b"}]}]})"))
                .text,
            "<|im_start|>assistant\na\nb<|im_end|>\n");
}

TEST(NamedFormats, AreNotUsedWithJinja) {
  const ChatTemplate literal("llama3");
  EXPECT_FALSE(literal.is_builtin());
  EXPECT_TRUE(builtin("llama3").is_builtin());
  EXPECT_EQ(literal.render(chat(R"({"messages":[{"role":"user","content":"hi"}]})")).text, "llama3");
}

}  // namespace
}  // namespace bankml::test
