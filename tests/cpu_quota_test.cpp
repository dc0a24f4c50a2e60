// What control groups leave of the processors, read from trees like the kernel's.
#include "src/backend/cpu_quota.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <map>

namespace faltung {
namespace {

namespace fs = std::filesystem;

int quota_of(const std::map<std::string, std::string>& files) {
  static int count = 0;
  const fs::path root = fs::temp_directory_path() /
                        ("faltung-quota-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
  fs::create_directories(root);
  for (const auto& [path, text] : files) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  const int quota = cpu_quota(root.string());
  fs::remove_all(root);
  return quota;
}

TEST(CpuQuota, WithoutGroupsNothingLimits) {
  EXPECT_EQ(quota_of({}), INT_MAX);
  EXPECT_EQ(quota_of({{"proc/self/cgroup", "nothing\n::\n1:\n"}}), INT_MAX);
}

TEST(CpuQuota, Version2) {
  const std::string self = "proc/self/cgroup", text = "0::/a/b\n";
  EXPECT_EQ(quota_of({{self, text}, {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}), INT_MAX);
  EXPECT_EQ(quota_of({{self, text}, {"sys/fs/cgroup/a/b/cpu.max", "300000 100000\n"}}), 3);
  EXPECT_EQ(quota_of({{self, text}, {"sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"}}), 2);
  EXPECT_EQ(quota_of({{self, text}, {"sys/fs/cgroup/a/b/cpu.max", "1000 100000\n"}}), 1);
  EXPECT_EQ(quota_of({{self, text},
                      {"sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"},
                      {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}}),
            2);
  EXPECT_EQ(quota_of({{self, "0::/\n"}, {"sys/fs/cgroup/cpu.max", "400000 100000\n"}}), 4);
  EXPECT_EQ(quota_of({{self, text}, {"sys/fs/cgroup/unified/a/cpu.max", "400000 100000\n"}}), 4);
  EXPECT_EQ(quota_of({{self, text}, {"sys/fs/cgroup/other/cpu.max", "400000 100000\n"}}), INT_MAX);
}

TEST(CpuQuota, Version1) {
  const std::string self = "proc/self/cgroup", text = "5:cpuset:/a\n4:cpu,cpuacct:/docker/x\n0::/\n";
  const auto files = [&](const std::string& directory, const std::string& quota) {
    return std::map<std::string, std::string>{
        {self, text}, {directory + "/cpu.cfs_quota_us", quota}, {directory + "/cpu.cfs_period_us", "50000"}};
  };
  EXPECT_EQ(quota_of(files("sys/fs/cgroup/cpu,cpuacct/docker/x", "-1")), INT_MAX);
  EXPECT_EQ(quota_of(files("sys/fs/cgroup/cpu,cpuacct/docker/x", "100000")), 2);
  EXPECT_EQ(quota_of(files("sys/fs/cgroup/cpu/docker", "250000")), 5);
  EXPECT_EQ(quota_of(files("sys/fs/cgroup/cpu", "50000")), 1);  // the mount is the container's group
  EXPECT_EQ(quota_of(files("sys/fs/cgroup/cpuset/a", "50000")), INT_MAX);
}

}  // namespace
}  // namespace faltung
