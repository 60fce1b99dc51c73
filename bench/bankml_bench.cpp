// bankml-bench: how fast a model runs on this machine, each figure beside the machine's own limit.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/device/cuda.hpp"
#include "support/figure.hpp"
#include "support/machine.hpp"
#include "support/measure.hpp"
#include "support/synthetic.hpp"

namespace bankml::bench {
namespace {

constexpr std::string_view kUsage =
    R"(bankml-bench: prefill, decode, load and switch of a model, beside the limits of the machine

usage: bankml-bench (-m FILE | --synthetic llama:SIZE:TYPE) [options]

  -m, --model FILE          a GGUF model; may be repeated
  --synthetic MODEL         random weights: llama:135m:q4_1 (135m, 1b, 3b, 8b, or
                            DIMxLAYERSxHEADSxKV_HEADSxHIDDENxVOCAB; any type); may be repeated
  --device DEVICE,...       cpu, cuda:0, cuda:1, ...                      (cpu)
  -t, --threads N,...       threads of the CPU                            (all cores)
  --prefill N,...           prompt lengths                                (32,128,512,2000)
  --decode N,...            tokens held before decoding                   (16,512,2000)
  --held N,...              tokens of conversations that take turns       (500,1000,3000)
  --sequences N,...         sequences decoded together                    (1)
  -ub, --ubatch-size N,...  rows of a prefill pass                        (512)
  --kv TYPE,...             types of the KV cache: f16, f32, q8_0         (f16)
  -r, --runs N              runs of each measurement                      (5)
  --format FORMAT           table, json or csv                            (table)
  -o, --output FILE         where to, instead of standard output
  --plot FILE.svg           prefill, decode and switch against tokens
  -h, --help

A list may be empty ('') to leave a measurement out. BANKML_ISA=portable|avx2|avx512 limits the instruction set.
)";

struct Options {
  std::vector<std::string> models, synthetic;
  std::vector<std::string> devices = {"cpu"};
  std::vector<int> threads = {0};
  Plan plan;
  std::string format = "table", output, plot;
  bool help = false;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_request, message + " (bankml-bench --help shows the options)");
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

constexpr int kMostThreads = 1024;  // as of bankmld

int parse_number(const std::string& flag, const std::string& text, int most = 1 << 20) {
  std::size_t used = 0;
  int value = 0;
  try {
    value = std::stoi(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < 1 || value > most) {
    refuse(fmt::format("{}: expected a number from 1 to {}, got '{}'", flag, most, text));
  }
  return value;
}

template <class... Limits>
std::vector<int> parse_numbers(const std::string& flag, const std::string& text, Limits... limits) {
  std::vector<int> numbers;
  for (const std::string& part : parts_of(text)) numbers.push_back(parse_number(flag, part, limits...));
  return numbers;
}

std::vector<DType> parse_kv(const std::string& flag, const std::string& text) {
  std::vector<DType> types;
  for (const std::string& part : parts_of(text)) {
    if (part != "f16" && part != "f32" && part != "q8_0") {
      refuse(fmt::format("{}: expected f16, f32 or q8_0, got '{}'", flag, part));
    }
    types.push_back(part == "f16" ? DType::f16 : part == "f32" ? DType::f32 : DType::q8_0);
  }
  return types;
}

constexpr std::string_view kCuda = "cuda:";

std::vector<std::string> parse_devices(const std::string& flag, const std::string& text) {
  std::vector<std::string> devices = parts_of(text);
  for (const std::string& device : devices) {
    const std::string index = device.rfind(kCuda, 0) == 0 ? device.substr(kCuda.size()) : "";
    const bool is_number =
        !index.empty() && index.size() < 4 && index.find_first_not_of("0123456789") == std::string::npos;
    if (device != "cpu" && !is_number)
      refuse(fmt::format("{}: expected cpu or cuda:0, cuda:1, ..., got '{}'", flag, device));
  }
  if (devices.empty()) refuse(fmt::format("{}: expected at least one device", flag));
  return devices;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "-h" || flag == "--help") {
      o.help = true;
      return o;
    }
    if (i + 1 == argc) refuse(fmt::format("'{}' is unknown or lacks its value", flag));
    const std::string value = argv[++i];
    if (flag == "-m" || flag == "--model")
      o.models.push_back(value);
    else if (flag == "--synthetic")
      o.synthetic.push_back(value);
    else if (flag == "--device")
      o.devices = parse_devices(flag, value);
    else if (flag == "-t" || flag == "--threads")
      o.threads = parse_numbers(flag, value, kMostThreads);
    else if (flag == "--prefill")
      o.plan.prefill = parse_numbers(flag, value);
    else if (flag == "--decode")
      o.plan.decode = parse_numbers(flag, value);
    else if (flag == "--held")
      o.plan.held = parse_numbers(flag, value);
    else if (flag == "--sequences")
      o.plan.sequences = parse_numbers(flag, value);
    else if (flag == "-ub" || flag == "--ubatch-size")
      o.plan.rows = parse_numbers(flag, value);
    else if (flag == "--kv")
      o.plan.kv = parse_kv(flag, value);
    else if (flag == "-r" || flag == "--runs")
      o.plan.runs = parse_number(flag, value);
    else if (flag == "--format")
      o.format = value;
    else if (flag == "-o" || flag == "--output")
      o.output = value;
    else if (flag == "--plot")
      o.plot = value;
    else
      refuse(fmt::format("'{}' is unknown", flag));
  }
  if (o.models.empty() && o.synthetic.empty()) refuse("expected a model: -m FILE or --synthetic llama:135m:q4_1");
  if (o.format != "table" && o.format != "json" && o.format != "csv") {
    refuse(fmt::format("--format: expected table, json or csv, got '{}'", o.format));
  }
  for (const auto& [list, name] : {std::pair(&o.threads, "--threads"), std::pair(&o.plan.sequences, "--sequences"),
                                   std::pair(&o.plan.rows, "--ubatch-size")}) {
    if (list->empty()) refuse(fmt::format("{}: expected at least one number", name));
  }
  return o;
}

// A bar on the terminal, if stderr is one.
class Bar {
 public:
  explicit Bar(int steps) : steps_(steps), shown_(::isatty(STDERR_FILENO) == 1) {}
  ~Bar() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;
  void say(std::string text) {
    text_ = std::move(text);
    draw();
  }
  void step() {
    done_ = std::min(done_ + 1, steps_);
    draw();
  }

 private:
  void draw() const {
    if (!shown_) return;
    constexpr int kWidth = 30;
    const int filled = kWidth * done_ / std::max(steps_, 1);
    fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {:3d} %  {}", "", filled, "", kWidth - filled,
               100 * done_ / std::max(steps_, 1), text_);
    std::fflush(stderr);
  }
  int steps_, done_ = 0;
  bool shown_;
  std::string text_;
};

void write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  if (!(out << text).flush()) throw Error(ErrorKind::io, path + ": can't be written");
}

// Before minutes of measuring are lost.
void expect_writable(const std::string& path) {
  if (!path.empty() && !std::ofstream(path, std::ios::binary | std::ios::app)) {
    throw Error(ErrorKind::io, path + ": can't be written");
  }
}

Figure limit_figure(const char* what, int threads, const char* unit, double value) {
  Figure f;
  f.what = what;
  f.threads = threads;
  f.unit = unit;
  f.runs = {value};
  return f;
}

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

struct Subject {
  std::string name;
  std::filesystem::path path;
  std::unique_ptr<SyntheticFile> file;
};

std::vector<Subject> subjects_of(const Options& options, Bar& bar) {
  std::vector<Subject> subjects;
  for (const std::string& path : options.models) subjects.push_back({file_name(path), path, nullptr});
  for (const std::string& text : options.synthetic) {
    const Synthetic model = parse_synthetic(text);
    bar.say("writing " + model.name);
    auto file = std::make_unique<SyntheticFile>(model);
    const std::filesystem::path path = file->path();
    subjects.push_back({model.name, path, std::move(file)});
  }
  return subjects;
}

MachineLimits add_limits_of_cpu(std::vector<Figure>& figures, int threads, Isa isa) {
  const MachineLimits limits = measure_limits(threads, isa);
  figures.push_back(limit_figure("memory read", threads, "GB/s", limits.read_gb));
  figures.push_back(limit_figure("memory copy", threads, "GB/s", limits.copy_gb));
  if (limits.int8_gmac > 0) figures.push_back(limit_figure("int8 products", threads, "GMAC/s", limits.int8_gmac));
  figures.push_back(limit_figure("f32 multiply-adds", threads, "GMAC/s", limits.f32_gmac));
  return limits;
}

MachineLimits add_limits_of_gpu(std::vector<Figure>& figures, const std::string& name, Device& device) {
  const MachineLimits limits = measure_limits(device);
  figures.push_back(limit_figure(("memory copy, " + name).c_str(), 0, "GB/s", limits.copy_gb));
  figures.push_back(limit_figure(("int8 products, " + name).c_str(), 0, "GMAC/s", limits.int8_gmac));
  figures.push_back(limit_figure(("f16 products, " + name).c_str(), 0, "GMAC/s", limits.f16_gmac));
  return limits;
}

void run(const Options& options) {
  expect_writable(options.output);
  expect_writable(options.plot);
  const Isa isa = chosen_isa();
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::string machine = fmt::format("{}, {} kernels", machine_name(), isa_name(isa));
  std::vector<Figure> figures;
  std::string title = machine;
  {
    std::vector<std::pair<std::string, int>> settings;  // device and, for the CPU, threads
    for (const std::string& device : options.devices) {
      if (device != "cpu") settings.emplace_back(device, 0);
      for (const int wanted : options.threads) {
        if (device == "cpu") settings.emplace_back(device, wanted > 0 ? wanted : cores);
      }
    }
    const std::size_t models = options.models.size() + options.synthetic.size();
    Bar bar(Measurement::steps(options.plan) * static_cast<int>(models * settings.size()));
    const std::vector<Subject> subjects = subjects_of(options, bar);
    if (models == 1) title = subjects[0].name + " on " + machine;
    for (const auto& [name, threads] : settings) {
      const bool on_cpu = threads > 0;
      bar.say("limits of the machine");
      const std::unique_ptr<Device> device =
          on_cpu ? make_cpu_device(threads) : make_cuda_device(std::stoi(name.substr(kCuda.size())));
      const MachineLimits limits =
          on_cpu ? add_limits_of_cpu(figures, threads, isa) : add_limits_of_gpu(figures, name, *device);
      for (const Subject& subject : subjects) {
        bar.say(subject.name);
        const std::string model = on_cpu ? subject.name : subject.name + " on " + name;
        Measurement(options.plan, subject.path, model, *device, threads, limits, [&] { bar.step(); }).run(figures);
      }
    }
  }
  std::string report;
  if (options.format == "json") report = json_of(figures, machine);
  if (options.format == "csv") report = csv_of(figures);
  if (options.format == "table") {
    report = fmt::format("{}; medians of {} runs\n\n", machine, options.plan.runs) + table_of(figures);
  }
  if (options.output.empty()) {
    fmt::print("{}", report);
  } else {
    write(options.output, report);
  }
  if (!options.plot.empty()) {
    write(options.plot, svg_of(figures, title));
  }
}

int guarded_main(int argc, char** argv) try {
  LogOptions log;
  log.verbosity = 2;
  configure_log(log);
  const Options options = parse(argc, argv);
  if (options.help) {
    fmt::print("{}", kUsage);
  } else {
    run(options);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bankml-bench: {}\n", error.what());
  return 1;
}

}  // namespace
}  // namespace bankml::bench

int main(int argc, char** argv) {
  return bankml::bench::guarded_main(argc, argv);
}
