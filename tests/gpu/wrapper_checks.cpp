#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "gpu/checks.hpp"
#include "gpu/wrappers.hpp"
#include "kernels/host_device.hpp"

namespace bankml::gpu {

void check_wrappers(Report& report, const Subject& subject) {
  host::HostDevice host_device;
  test::Bench twin(host_device), bench(subject.device);
  int count = 0;
  const host::Probe* const probes = host::probes(count);
  std::mt19937 random(7);
  for (int p = 0; p < count; ++p) {
    constexpr int kRounds = 50;
    int different = 0;
    double worst = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::uint32_t> in(kProbeTotal);
      for (std::uint32_t& word : in) word = static_cast<std::uint32_t>(random());
      const std::vector<std::uint32_t> zeros(kProbeTotal);
      const auto run = [&](test::Bench& on, auto&& probe) {
        const Buffer from = on.upload(in), to = on.upload(zeros);
        probe(on.stream(), to.as<std::uint32_t>(), from.as<const std::uint32_t>());
        return on.download(to.as<std::uint32_t>(), kProbeTotal);
      };
      const auto expected = run(twin, probes[p].run);
      const auto actual = run(bench, [&](Stream& stream, std::uint32_t* out, const std::uint32_t* from) {
        subject.run_probe(p, stream, out, from);
      });
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (actual[i] == expected[i]) continue;
        const double a = std::bit_cast<float>(actual[i]), e = std::bit_cast<float>(expected[i]);
        const double difference = std::abs(a - e) / std::abs(e);
        worst = difference <= worst ? worst : difference;
        different += !(probes[p].tolerance > 0 && difference <= probes[p].tolerance);
      }
    }
    report.check(1, probes[p].name, different == 0,
                 fmt::format("{} words of {} differ, by {:.1e} at most", different, kRounds * kProbeTotal, worst));
  }
}

}  // namespace bankml::gpu
