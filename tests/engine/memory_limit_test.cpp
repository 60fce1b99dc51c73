#include "engine/memory_limit.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace bankml {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMib = 1024 * 1024;

// A file system of its own for proc and sys.
class MemoryLimit : public ::testing::Test {
 protected:
  MemoryLimit() {
    std::string name = (fs::temp_directory_path() / "bankml-memory-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~MemoryLimit() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_meminfo(std::uint64_t mib) {
    write("proc/meminfo", "MemTotal:       99999999 kB\nMemFree:  1 kB\nMemAvailable:   " + std::to_string(mib * 1024) +
                              " kB\nBuffers: 3 kB\n");
  }

  fs::path root_;
};

TEST_F(MemoryLimit, IsWhatTheKernelCallsAvailable) {
  write_meminfo(4096);
  EXPECT_EQ(available_memory(root_), 4096 * kMib);
}

TEST_F(MemoryLimit, IsUnknownWithoutProc) {
  EXPECT_FALSE(available_memory(root_));
}

TEST_F(MemoryLimit, TakesTheLimitOfAVersion2Group) {
  write_meminfo(4096);
  write("proc/self/cgroup", "0::/system.slice/bankmld.service\n");
  write("sys/fs/cgroup/system.slice/bankmld.service/memory.max", std::to_string(1000 * kMib) + "\n");
  write("sys/fs/cgroup/system.slice/bankmld.service/memory.current", std::to_string(300 * kMib) + "\n");
  EXPECT_EQ(available_memory(root_), 700 * kMib);
}

TEST_F(MemoryLimit, CountsDroppablePageCacheAsFree) {
  write_meminfo(4096);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", std::to_string(1000 * kMib) + "\n");
  write("sys/fs/cgroup/memory.current", std::to_string(300 * kMib) + "\n");
  write("sys/fs/cgroup/memory.stat", "anon 5\ninactive_file " + std::to_string(100 * kMib) + "\nactive_file 7\n");
  EXPECT_EQ(available_memory(root_), 800 * kMib);
}

TEST_F(MemoryLimit, IgnoresAGroupWithoutALimit) {
  write_meminfo(4096);
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.current", "12345\n");
  EXPECT_EQ(available_memory(root_), 4096 * kMib);
}

TEST_F(MemoryLimit, TakesTheLimitOfAGroupAbove) {
  write_meminfo(4096);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/memory.max", std::to_string(512 * kMib));
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(available_memory(root_), 512 * kMib);
}

TEST_F(MemoryLimit, TakesTheLimitOfAVersion1Group) {
  write_meminfo(4096);
  write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n1:name=systemd:/y\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", std::to_string(600 * kMib));
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", std::to_string(100 * kMib));
  EXPECT_EQ(available_memory(root_), 500 * kMib);
}

TEST_F(MemoryLimit, FindsTheMountsOwnLimitInsideAContainer) {
  write_meminfo(4096);
  write("proc/self/cgroup", "4:memory:/docker/not-visible-here\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(600 * kMib));
  EXPECT_EQ(available_memory(root_), 600 * kMib);
}

TEST_F(MemoryLimit, IsNothingInAFullGroup) {
  write_meminfo(4096);
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000\n");
  write("sys/fs/cgroup/a/memory.current", "2000\n");
  EXPECT_EQ(available_memory(root_), 0u);
}

TEST(DefaultCacheLimit, IsEightGibibytesOnALargeMachine) {
  EXPECT_EQ(default_cache_limit_mib(std::nullopt), 8192);
  EXPECT_EQ(default_cache_limit_mib(4 * 8192 * kMib), 8192);
  EXPECT_EQ(default_cache_limit_mib(1000000 * kMib), 8192);
}

TEST(DefaultCacheLimit, IsAQuarterOfTheMemoryOnASmallOne) {
  EXPECT_EQ(default_cache_limit_mib(4096 * kMib), 1024);
  EXPECT_EQ(default_cache_limit_mib(4 * 8192 * kMib - 1), 8191);
  EXPECT_EQ(default_cache_limit_mib(0), 0);
}

}  // namespace
}  // namespace bankml
