#include "text/template/capabilities.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bankml/base/error.hpp"
#include "text/template/interpreter.hpp"

namespace bankml::jinja {
namespace {

constexpr std::string_view kMarker = "bankml-trial-text";  // can't be part of a template by chance

// One trial rendering: messages are put together, then run() gives the text, or nothing if the template failed.
class Trial {
 public:
  Trial(const Program& program, const Limits& limits) : heap_(limits), interpreter_(program, heap_) {
    messages_ = heap_.make_list();
    tools_ = heap_.make_list();
    set("messages", messages_);
    set("tools", tools_);
    set("bos_token", text(""));
    set("eos_token", text(""));
    set("add_generation_prompt", true);
  }

  void set(std::string_view name, Value value) { interpreter_.set(name, std::move(value)); }

  static Value text(std::string_view text, Usage* usage = nullptr) { return watched(Value::borrowed(text), usage); }
  static Value watched(Value value, Usage* usage) {
    value.set_usage(usage);
    return value;
  }
  Value dict(std::initializer_list<std::pair<std::string_view, Value>> members) {
    Dict* dict = heap_.make_dict();
    for (const auto& [key, value] : members) heap_.add_new(*dict, text(key), value);
    return dict;
  }
  Value list(std::vector<Value> items) { return heap_.make_list(std::move(items)); }

  void message(std::string_view role, Value content,
               std::initializer_list<std::pair<std::string_view, Value>> more = {}) {
    Value entry = dict({{"role", text(role)}, {"content", std::move(content)}});
    for (const auto& [key, value] : more) heap_.add_new(entry.dict(), text(key), value);
    heap_.append(*messages_, std::move(entry));
  }
  void plain_message(std::string_view role) { message(role, text("text")); }
  void tool(Value value) { heap_.append(*tools_, std::move(value)); }

  std::optional<std::string> run() {
    try {
      return interpreter_.run();
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  Heap heap_;
  Interpreter interpreter_;
  List* messages_ = nullptr;
  List* tools_ = nullptr;
};

void probe_content(const Program& program, const Limits& limits, TemplateCaps& caps) {
  Usage usage;
  Trial trial(program, limits);
  trial.message("user", Trial::text(kMarker, &usage));
  const std::optional<std::string> output = trial.run();
  caps.typed_content = usage.used_as_array;
  caps.string_content = output && !(usage.used_as_array && output->find(kMarker) == std::string::npos);
  if (usage.used_as_array || !usage.asked_if_string) return;

  Usage list_usage;  // a template that asks may do something else with a list
  Trial list_trial(program, limits);
  list_trial.message("user", Trial::watched(list_trial.list({}), &list_usage));
  caps.typed_content = list_trial.run() && list_usage.used_as_array;
}

void probe_system_role(const Program& program, const Limits& limits, TemplateCaps& caps) {
  Usage usage;
  Trial trial(program, limits);
  trial.message("system", Trial::text(kMarker, &usage));
  trial.plain_message("user");
  trial.run();
  caps.system_role = usage.read;
}

struct ToolUsage {
  Usage tool_name, calls, second_call, argument;
};

ToolUsage run_tool_trial(const Program& program, const Limits& limits, bool object_arguments, bool two_calls) {
  ToolUsage usage;
  Trial trial(program, limits);
  const auto call = [&](std::string_view id, Usage* argument) {
    Value arguments =
        object_arguments ? trial.dict({{"arg", Trial::text("value", argument)}}) : Trial::text("{\"arg\": \"value\"}");
    return trial.dict({{"type", Trial::text("function")},
                       {"function", trial.dict({{"name", Trial::text("tool")}, {"arguments", std::move(arguments)}})},
                       {"id", Trial::text(id)}});
  };
  std::vector<Value> calls;
  calls.push_back(call("call00001", &usage.argument));
  if (two_calls) calls.push_back(Trial::watched(call("call00002", nullptr), &usage.second_call));
  trial.plain_message("user");
  trial.message("assistant", Trial::text(""),
                {{"tool_calls", Trial::watched(trial.list(std::move(calls)), &usage.calls)}});
  trial.message("tool", Trial::text("result"),
                {{"name", Trial::text("tool")}, {"tool_call_id", Trial::text("call00001")}});
  trial.plain_message("assistant");
  trial.plain_message("user");
  Value parameters = trial.dict(
      {{"type", Trial::text("object")},
       {"properties",
        trial.dict({{"arg", trial.dict({{"type", Trial::text("string")}, {"description", Trial::text("text")}})}})},
       {"required", trial.list({Trial::text("arg")})}});
  trial.tool(trial.dict({{"type", Trial::text("function")},
                         {"function", trial.dict({{"name", Trial::text("tool", &usage.tool_name)},
                                                  {"description", Trial::text("text")},
                                                  {"parameters", std::move(parameters)}})}}));
  trial.run();
  return usage;
}

void probe_tools(const Program& program, const Limits& limits, TemplateCaps& caps) {
  const ToolUsage objects = run_tool_trial(program, limits, true, false);
  caps.tools = objects.tool_name.read;
  caps.tool_calls = objects.calls.read;
  caps.object_arguments = objects.argument.read;
  if (!caps.object_arguments) {
    const ToolUsage strings = run_tool_trial(program, limits, false, false);
    caps.tools = caps.tools || strings.tool_name.read;
    caps.tool_calls = caps.tool_calls || strings.calls.read;
  }
  caps.parallel_tool_calls = run_tool_trial(program, limits, caps.object_arguments, true).second_call.read;
}

void probe_reasoning(const Program& program, const Limits& limits, TemplateCaps& caps) {
  Usage effort;
  Trial trial(program, limits);
  for (const std::string_view keep : {"preserve_reasoning", "preserve_thinking"}) trial.set(keep, true);
  for (const std::string_view drop : {"clear_thinking", "truncate_history_thinking", "drop_thinking"})
    trial.set(drop, false);
  for (const std::string_view name : {"reasoning_effort", "reasoning_strength"})
    trial.set(name, Trial::text("high", &effort));
  trial.plain_message("user");
  trial.message("assistant", Trial::text("text"), {{"reasoning_content", Trial::text(kMarker)}});
  trial.plain_message("user");
  const std::optional<std::string> output = trial.run();
  caps.preserve_reasoning = output && output->find(kMarker) != std::string::npos;
  caps.reasoning_effort = effort.read;
}

}  // namespace

TemplateCaps probe_capabilities(const Program& program, const Limits& limits) {
  TemplateCaps caps;
  probe_content(program, limits, caps);
  probe_system_role(program, limits, caps);
  probe_tools(program, limits, caps);
  probe_reasoning(program, limits, caps);
  return caps;
}

std::string probe_user_prefix(const Program& program, const Limits& limits) {
  Trial nobody(program, limits), user(program, limits);
  for (Trial* trial : {&nobody, &user}) {
    for (const std::string_view absent : {"tools", "add_generation_prompt"}) trial->set(absent, Value());
  }
  user.message("user", Trial::text(kMarker));
  const std::string rendered = user.run().value_or("");
  const std::size_t at = rendered.find(kMarker);
  if (at == std::string::npos) return {};
  std::string prefix = rendered.substr(0, at);
  // What stands there without any message is not the user's.
  const std::string always = nobody.run().value_or("");
  return prefix.starts_with(always) ? prefix.substr(always.size()) : prefix;
}

}  // namespace bankml::jinja
