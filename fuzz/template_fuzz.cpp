// Arbitrary bytes as a chat template: parse and render it under small limits. Only bankml::Error may come out.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bankml/base/error.hpp"
#include "text/template/interpreter.hpp"
#include "text/template/parser.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bankml;
  static const boost::json::value messages = boost::json::parse(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}, {"role": "assistant",
          "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1.5}}, "id": "c"}]}])");
  jinja::Limits limits;
  limits.output = 1 << 16;
  limits.memory = 1 << 22;
  limits.range_length = 1000;
  limits.loop_steps = 10'000;
  limits.work = 100'000;
  try {
    const jinja::Program program = jinja::parse({reinterpret_cast<const char*>(data), size}, limits);
    jinja::Heap heap(limits);
    jinja::Interpreter interpreter(program, heap);
    interpreter.set("messages", heap.from_json(messages));
    interpreter.set("add_generation_prompt", true);
    interpreter.run();
  } catch (const Error&) {
  }
  return 0;
}
